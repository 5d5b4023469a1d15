//! What is on a file or block device, by the magic bytes at its start, or, of few, near its end.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use persimmon_format::container::{SECOND_COPY, Superblock, has_magic};
use persimmon_format::gate::FixedFields;
use persimmon_format::log::LOG_CANDIDATES;
use persimmon_format::{BLOCK_SIZE, FormatError};

/// Bytes looked at at the start: the farthest signature is in the last of ZFS's uberblocks, below 256 KiB.
pub(crate) const HEAD_BYTES: usize = 256 << 10;
/// Bytes of a file that must be zero for it to count as blank.
const BLANK_BYTES: usize = 1 << 20;

const IMAGE: &str = "a Persimmon image";
const GPT: &str = "a GPT partition table";
const MBR: &str = "an MBR partition table";

/// What a file or device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    name: &'static str,
    unfinished: bool,
}

impl Finding {
    /// A Persimmon image, or at least the beginning of one.
    #[must_use]
    pub fn is_image(&self) -> bool {
        self.name == IMAGE
    }

    /// A partition table, and nothing behind it is known.
    #[must_use]
    pub fn is_partition_table(&self) -> bool {
        self.name == GPT || self.name == MBR
    }

    /// A Persimmon image whose making was interrupted: nothing is lost by overwriting it.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Offset, bytes there, what has them: what libblkid knows (util-linux, `libblkid/src/superblocks` and `partitions`), and
/// files that are no disk at all. The first that matches counts: what lies in others' boot sectors comes last, and what is told
/// by two bytes.
const SIGNATURES: &[(usize, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS filesystem"),
    (0x10040, b"_BHRfS_M", "a btrfs filesystem"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an f2fs filesystem"),
    (0, b"SFOZ", "a zonefs"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted device"),
    (0, b"SKUL\xba\xbe", "a LUKS encrypted device"),
    (0x4000, b"SKUL\xba\xbe", "a LUKS encrypted device"),
    (4086, b"SWAPSPACE2", SWAP),
    (4086, b"SWAP-SPACE", SWAP),
    (4086, b"S1SUSPEND", SWAP),
    (4086, b"S2SUSPEND", SWAP),
    (4086, b"ULSUSPEND", SWAP),
    (4086, b"LINHIB0001", SWAP),
    (8192 - 10, b"SWAPSPACE2", SWAP),
    (0x4000 - 10, b"SWAPSPACE2", SWAP),
    (0x8000 - 10, b"SWAPSPACE2", SWAP),
    (0x10000 - 10, b"SWAPSPACE2", SWAP),
    (0, b"hsqs", SQUASHFS),
    (0, b"sqsh", SQUASHFS),
    (0, &[0x45, 0x3d, 0xcd, 0x28], CRAMFS),
    (0, &[0x28, 0xcd, 0x3d, 0x45], CRAMFS),
    (512, &[0x45, 0x3d, 0xcd, 0x28], CRAMFS),
    (0, &[0xce, 0xfa, 0xad, 0x1b], "an SCO BFS filesystem"),
    (0, b"-rom1fs-", "a romfs filesystem"),
    (0, &[0x31, 0x18, 0x10, 0x06], "a UBIFS filesystem"),
    (0, b"UBI#", "a UBI device"),
    (544, b"1SFB", "a BeFS filesystem"),
    (544, b"BFS1", "a BeFS filesystem"),
    (32, b"1SFB", "a BeFS filesystem"),
    (0x200, &[0x49, 0xe8, 0x95, 0xf9], "an HPFS filesystem"),
    (1024, &[0xf5, 0xfc, 0x01, 0xa5], "a VxFS filesystem"),
    (3, b"\0\0\0\0\0ReFS", "a ReFS filesystem"),
    (3, b"ReFS\0\0\0\0", "a ReFS filesystem"),
    (0x10000, b"ReIsEr4", "a Reiser4 filesystem"),
    (0x2034, b"ReIsEr", "a ReiserFS filesystem"),
    (4, b"\x4d\x03\x00\x00QNX4", "a QNX4 filesystem"),
    (4100, b"QNX4FS", "a QNX4 filesystem"),
    (32, b"ORCLDISK", "an Oracle ASM disk"),
    (512, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis pool"),
    (516, b"!Stra0tis\x86\xff\x02^\x41rh", "a Stratis pool"),
    (0x8001, b"BEA01", "a UDF filesystem"),
    (0x8001, b"BOOT2", "a UDF filesystem"),
    (0x8001, b"NSR02", "a UDF filesystem"),
    (0x8001, b"NSR03", "a UDF filesystem"),
    (0x8001, b"TEA01", "a UDF filesystem"),
    (0x8801, b"NSR02", "a UDF filesystem"),
    (0x8801, b"NSR03", "a UDF filesystem"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (0x8000, b"JFS1", "a JFS filesystem"),
    (0x10034, b"ReIsEr", "a ReiserFS filesystem"),
    (
        4096 + 24,
        BCACHEFS,
        "a bcachefs filesystem or bcache device",
    ),
    (4096, &MD_MAGIC, MD),
    (0, &MD_MAGIC, MD),
    (512 + 24, b"LVM2 001", "an LVM physical volume"),
    (24, b"LVM2 001", "an LVM physical volume"),
    (1024 + 24, b"LVM2 001", "an LVM physical volume"),
    (1536 + 24, b"LVM2 001", "an LVM physical volume"),
    (1024, b"H+", "an HFS+ filesystem"),
    (1024, b"HX", "an HFS+ filesystem"),
    (32, b"NXSB", "an APFS container"),
    (1030, &[0x34, 0x34], "a NILFS filesystem"),
    (0x10000, &[0x01, 0x16, 0x19, 0x70], "a GFS2 filesystem"),
    (1024, b"OCFSV2", "an OCFS2 filesystem"),
    (2048, b"OCFSV2", "an OCFS2 filesystem"),
    (4096, b"OCFSV2", "an OCFS2 filesystem"),
    (8192, b"OCFSV2", "an OCFS2 filesystem"),
    (8192 + 1372, &[0x54, 0x19, 0x01, 0x00], "a UFS filesystem"),
    (65536 + 1372, &[0x19, 0x01, 0x54, 0x19], "a UFS filesystem"),
    (0, b"bluestore block device", "a Ceph BlueStore device"),
    (3, b"-FVE-FS-", "a BitLocker encrypted device"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (3, b"EXFAT   ", "an exFAT filesystem"),
    (82, b"FAT32   ", "a FAT filesystem"),
    (54, b"FAT16   ", "a FAT filesystem"),
    (54, b"FAT12   ", "a FAT filesystem"),
    (0, b"QFI\xfb", "a QCOW2 disk image"),
    (0, b"KDMV", "a VMDK disk image"),
    (0x40, &[0x7f, 0x10, 0xda, 0xbe], "a VirtualBox disk image"),
    (0, b"vhdxfile", "a VHDX disk image"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"PK\x05\x06", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, &[0x1f, 0x8b], "gzip data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd data"),
    (0, b"BZh", "bzip2 data"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "an ELF program"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"\x89PNG", "a PNG picture"),
    (0, b"\xff\xd8\xff", "a JPEG picture"),
    (0, b"#!", "a script"),
    (512, b"EFI PART", GPT),
    (4096, b"EFI PART", GPT),
    (0, &[0x0b, 0xe5, 0xa9, 0x41], "an SGI partition table"),
    (512, &[0x57, 0x45, 0x56, 0x82], "a BSD disk label"),
    (512, b"PM\0\0", "a Mac partition table"),
    (512, b"TS\0\0", "a Mac partition table"),
    (508, &[0xda, 0xbe], "a Sun disk label"),
    (1024, b"BD", "an HFS filesystem"),
    (0x410, &[0x7f, 0x13], MINIX),
    (0x410, &[0x8f, 0x13], MINIX),
    (0x410, &[0x68, 0x24], MINIX),
    (0x410, &[0x78, 0x24], MINIX),
    (0x410, &[0x13, 0x7f], MINIX),
    (0x410, &[0x13, 0x8f], MINIX),
    (0x410, &[0x24, 0x68], MINIX),
    (0x410, &[0x24, 0x78], MINIX),
    (0x418, &[0x5a, 0x4d], MINIX),
    (0x418, &[0x4d, 0x5a], MINIX),
];

const SWAP: &str = "a swap area";
const SQUASHFS: &str = "a squashfs filesystem";
const CRAMFS: &str = "a cramfs filesystem";
const MINIX: &str = "a minix filesystem";

/// Where ZFS keeps uberblocks, by turns: the first ones of a young pool are not in the first places.
const ZFS_UBERBLOCKS: std::ops::Range<usize> = 128 << 10..256 << 10;
/// How far apart they are at least.
const ZFS_UBERBLOCK_BYTES: usize = 1024;
const ZFS_MAGIC: [u8; 8] = [0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0];

fn is_of_zfs(head: &[u8]) -> bool {
    ZFS_UBERBLOCKS.step_by(ZFS_UBERBLOCK_BYTES).any(|at| {
        let found = bytes_at(head, at, ZFS_MAGIC.len());
        found.is_some_and(|found| found == ZFS_MAGIC || found.iter().rev().eq(&ZFS_MAGIC))
    })
}

const ZFS: &str = "a member of a ZFS pool";
const MD: &str = "a member of an md RAID array";
const MD_MAGIC: [u8; 4] = [0xfc, 0x4e, 0x2b, 0xa9];

const BCACHEFS: &[u8] = &[
    0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca, 0x82, 0x65, 0xf5, 0x7f, 0x48, 0xba, 0x6d, 0x81,
];

/// How the volume on an image calls itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its UUID.
    pub uuid: uuid::Uuid,
    /// Its label; may be empty.
    pub label: String,
    /// Why this program cannot read it: one of the zone headers of the volume is of a newer Persimmon, or it
    /// is of one of earlier days.
    pub unsupported: Option<FormatError>,
}

/// Why a volume cannot be read of which one of these headers is.
pub(crate) fn unsupported<'a>(
    headers: impl IntoIterator<Item = &'a FixedFields>,
    uuid: &[u8; 16],
) -> Option<FormatError> {
    let mut ours = headers.into_iter().filter(|header| header.uuid == *uuid);
    ours.find_map(|header| header.check().err())
}

/// Opens what may be anything, to look at it: for a pipe that nobody writes to one would wait.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// UUID and label of the volume on an image, without opening or locking it: for finding a volume
/// by either. `None`: no image, an unfinished one, or one whose superblocks are damaged at the start.
pub fn identity(file: &File) -> io::Result<Option<Identity>> {
    let head = read_head(file, HEAD_BYTES)?;
    let decoded = |at: u64| {
        let block = head.get(at as usize..)?.first_chunk::<BLOCK_SIZE>()?;
        Superblock::decode(block).ok()
    };
    // Without the first copy something else may be there by now.
    let found = decoded(0).or_else(|| {
        let is_image = |found: &Finding| found.is_image() || found.is_partition_table();
        let copy = decoded(SECOND_COPY)?;
        identify_head(&head)
            .as_ref()
            .is_none_or(is_image)
            .then_some(copy)
    });
    let complete = found.filter(|superblock| superblock.complete);
    Ok(complete.map(|superblock| Identity {
        uuid: uuid::Uuid::from_bytes(superblock.uuid),
        unsupported: unsupported(&headers_in(file, &superblock), &superblock.volume),
        label: superblock.label,
    }))
}

/// The headers of the zones that can be of the log, those of zones that were reset since among them.
fn headers_in(file: &File, superblock: &Superblock) -> Vec<FixedFields> {
    let Ok(layout) = superblock.layout() else {
        return Vec::new();
    };
    let header = |zone: u32| {
        let mut block = [0; BLOCK_SIZE];
        let at = layout.data + u64::from(zone) * layout.zone_stride;
        file.read_exact_at(&mut block, at).ok()?;
        FixedFields::read(&block).ok()
    };
    let zones = 0..superblock.geometry.zone_count.min(LOG_CANDIDATES);
    zones.filter_map(header).collect()
}

/// Looks at the start of a file or device, and near its end. `None`: nothing known.
pub fn identify(file: &File) -> io::Result<Option<Finding>> {
    if let Some(found) = identify_head(&read_head(file, HEAD_BYTES)?) {
        return Ok(Some(found));
    }
    let mut end = file;
    let length = end.seek(SeekFrom::End(0))?;
    for offset in md_superblocks(length).into_iter().flatten() {
        let mut magic = [0; MD_MAGIC.len()];
        match file.read_exact_at(&mut magic, offset) {
            Ok(()) if magic == MD_MAGIC => return Ok(known(MD)),
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
    }
    Ok(None)
}

/// Where the superblock of a member of an md array is that has it at its end, by versions 1.0 and 0.90 of that (md(4)).
fn md_superblocks(length: u64) -> [Option<u64>; 2] {
    let newer = (length / 512).checked_sub(16);
    let older = (length & !0xffff).checked_sub(0x1_0000);
    [newer.map(|sector| (sector & !7) * 512), older]
}

fn known(name: &'static str) -> Option<Finding> {
    Some(Finding {
        name,
        unfinished: false,
    })
}

/// As [`identify`], of bytes already read from offset 0.
#[must_use]
pub fn identify_head(head: &[u8]) -> Option<Finding> {
    if has_magic(head) {
        let block = head.first_chunk::<BLOCK_SIZE>();
        let superblock = block.and_then(|block| Superblock::decode(block).ok());
        return Some(Finding {
            name: IMAGE,
            unfinished: superblock.is_some_and(|superblock| !superblock.complete),
        });
    }
    if let Some(name) = ext_version(head) {
        return known(name);
    }
    if is_of_zfs(head) {
        return known(ZFS);
    }
    for (offset, magic, name) in SIGNATURES {
        if bytes_at(head, *offset, magic.len()) == Some(magic) {
            return known(name);
        }
    }
    if is_partitioned(head) {
        return known(MBR);
    }
    // Its start may have been lost.
    let second = bytes_at(head, SECOND_COPY as usize, BLOCK_SIZE);
    second
        .filter(|block| has_magic(block))
        .and_then(|_| known(IMAGE))
}

/// Whether the first MiB is zeros, or the file empty.
pub fn is_blank(file: &File) -> io::Result<bool> {
    Ok(read_head(file, BLANK_BYTES)?.iter().all(|byte| *byte == 0))
}

fn ext_version(head: &[u8]) -> Option<&'static str> {
    if bytes_at(head, 0x438, 2)? != [0x53, 0xef] {
        return None;
    }
    let flags = |at| {
        let bytes: [u8; 4] = bytes_at(head, at, 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let (compatible, incompatible) = (flags(0x45c)?, flags(0x460)?);
    // Extents, 64bit, flex_bg: ext4 only. Has a journal: ext3.
    Some(if incompatible & 0x2c0 != 0 {
        "an ext4 filesystem"
    } else if compatible & 0x4 != 0 {
        "an ext3 filesystem"
    } else {
        "an ext2 filesystem"
    })
}

/// A boot sector with at least one partition, and nothing but partitions.
fn is_partitioned(head: &[u8]) -> bool {
    if bytes_at(head, 510, 2) != Some(&[0x55, 0xaa]) {
        return false;
    }
    let Some(entries) = bytes_at(head, 446, 64) else {
        return false;
    };
    let entries = entries.as_chunks::<16>().0;
    let plausible = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    plausible && entries.iter().any(|entry| entry[4] != 0)
}

fn bytes_at(head: &[u8], offset: usize, length: usize) -> Option<&[u8]> {
    head.get(offset..offset.checked_add(length)?)
}

/// Up to `length` bytes from the start.
fn read_head(file: &File, length: usize) -> io::Result<Vec<u8>> {
    let mut head = vec![0; length];
    let mut filled = 0;
    while let Some(rest) = head.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(head: &[u8]) -> Option<&'static str> {
        identify_head(head).map(|found| found.name)
    }

    #[test]
    fn every_signature_is_found_alone() {
        for (offset, magic, name) in SIGNATURES {
            let mut head = vec![0; HEAD_BYTES];
            head[*offset..offset + magic.len()].copy_from_slice(magic);
            assert_eq!(named(&head), Some(*name));
            // Cut off in the middle it is nothing.
            head.truncate(offset + magic.len() - 1);
            assert_eq!(named(&head), None, "{name}");
        }
    }

    #[test]
    fn arrays_that_say_so_at_their_end_are_found() {
        let file = tempfile::tempfile().unwrap();
        let length = (10 << 20) + 4096;
        for offset in [(10 << 20) + 4096 - 8192, (10 << 20) - 65536] {
            file.set_len(0).unwrap();
            file.set_len(length).unwrap();
            assert_eq!(identify(&file).unwrap(), None);
            file.write_all_at(&MD_MAGIC, offset).unwrap();
            assert_eq!(identify(&file).unwrap(), known(MD));
        }
        file.set_len(100).unwrap();
        assert_eq!(identify(&file).unwrap(), None);
    }

    /// Those that were not known were overwritten without `--force`: what the tools of Debian's util-linux-extra and e2fsprogs
    /// make is found. Others were compared by hand.
    #[test]
    fn what_tools_make_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("file"), "content").unwrap();
        let source = source.to_str().unwrap();
        for (tool, options, is) in [
            ("mkfs.minix", &["-1"][..], MINIX),
            ("mkfs.minix", &["-2"], MINIX),
            ("mkfs.minix", &["-3"], MINIX),
            ("mkfs.minix", &["-1", "-n", "14"], MINIX),
            ("mkfs.minix", &["-2", "-n", "14"], MINIX),
            ("mkfs.cramfs", &["-N", "little", source], CRAMFS),
            ("mkfs.cramfs", &["-N", "big", source], CRAMFS),
            ("mkfs.bfs", &[], "an SCO BFS filesystem"),
            ("mkswap", &[], SWAP),
            ("mkswap", &["-p", "65536"], SWAP),
            ("mkfs.ext4", &["-q"], "an ext4 filesystem"),
        ] {
            let image = dir.path().join("image");
            let file = File::create(&image).unwrap();
            file.set_len(8 << 20).unwrap();
            let mut command = std::process::Command::new(format!("/usr/sbin/{tool}"));
            let made = command.args(options).arg(&image).output().unwrap();
            assert!(made.status.success(), "{tool} {options:?}: {made:?}");
            let found = identify(&File::open(&image).unwrap()).unwrap();
            assert_eq!(found, known(is), "{tool} {options:?}");
            std::fs::remove_file(&image).unwrap();
        }
    }

    #[test]
    fn a_young_zfs_pool_is_found() {
        for at in [0x20000, 0x21000, 0x3fc00] {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + 8].copy_from_slice(&ZFS_MAGIC);
            assert_eq!(named(&head), Some(ZFS));
            head[at..at + 8].reverse();
            assert_eq!(named(&head), Some(ZFS));
        }
    }

    #[test]
    fn ext_versions_are_told_apart() {
        let mut head = vec![0; 4096];
        head[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
        assert_eq!(named(&head), Some("an ext2 filesystem"));
        head[0x45c] = 4;
        assert_eq!(named(&head), Some("an ext3 filesystem"));
        head[0x460] = 0x40;
        assert_eq!(named(&head), Some("an ext4 filesystem"));
    }

    #[test]
    fn partition_tables_need_a_partition() {
        let mut head = vec![0; 4096];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(named(&head), None);
        head[446 + 4] = 0x83;
        assert_eq!(named(&head), Some("an MBR partition table"));
        // What looks like code there is a boot sector of something else.
        head[446] = 0x33;
        assert_eq!(named(&head), None);
    }

    #[test]
    fn nothing_is_nothing() {
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[0; 4096]), None);
    }
}
