//! Drives of the guest: of QEMU, or made by a module of the guest's kernel.

use anyhow::{Context, Result, bail};

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drive {
    pub kind: Kind,
    pub size_bytes: u64,
    pub zone_bytes: u64,
    pub capacity_bytes: u64,
    /// 0: no limit.
    pub max_open: u32,
    /// 0: no limit.
    pub max_active: u32,
    pub block_bytes: u64,
    pub conventional_zones: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// QEMU's emulated NVMe drive with a zoned namespace.
    Nvme,
    /// The same without zones.
    Disk,
    /// The kernel's null_blk, in the guest's memory.
    Null,
    /// The kernel's scsi_debug as a host-managed disk, in the guest's memory.
    Scsi,
}

impl Drive {
    /// `KIND[:NAME=VALUE,...]`.
    pub fn parse(text: &str) -> Result<Drive> {
        let (kind, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut drive = Drive {
            kind: match kind {
                "nvme" => Kind::Nvme,
                "disk" => Kind::Disk,
                "null" => Kind::Null,
                "scsi" => Kind::Scsi,
                _ => bail!("`{kind}` is no kind of drive: nvme, disk, null, scsi"),
            },
            size_bytes: 256 << 20,
            zone_bytes: 4 << 20,
            capacity_bytes: 0,
            max_open: 14,
            max_active: 14,
            block_bytes: 4096,
            conventional_zones: 0,
        };
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let (name, value) = setting
                .split_once('=')
                .with_context(|| format!("`{setting}` is not NAME=VALUE"))?;
            let number = bytes(value)?;
            let small = u32::try_from(number);
            match name {
                "size" => drive.size_bytes = number,
                "zone" => drive.zone_bytes = number,
                "capacity" => drive.capacity_bytes = number,
                "block" => drive.block_bytes = number,
                "open" => drive.max_open = small?,
                "active" => drive.max_active = small?,
                "conventional" => drive.conventional_zones = small?,
                _ => bail!("`{name}` is no setting of a drive"),
            }
        }
        if drive.capacity_bytes == 0 {
            drive.capacity_bytes = drive.zone_bytes / 4 * 3;
        }
        Ok(drive)
    }

    /// QEMU's arguments for it, as number `nsid` of the NVMe controller `nvme`, kept in `file`.
    pub fn qemu(&self, nsid: usize, file: &str) -> Vec<String> {
        let mut namespace = format!(
            "nvme-ns,bus=nvme,drive=drive{nsid},nsid={nsid},logical_block_size={block},\
             physical_block_size={block}",
            block = self.block_bytes
        );
        if self.kind == Kind::Nvme {
            namespace += &format!(
                ",zoned=true,zoned.zone_size={},zoned.zone_capacity={},zoned.max_open={},\
                 zoned.max_active={}",
                self.zone_bytes, self.capacity_bytes, self.max_open, self.max_active
            );
        }
        vec![
            "-drive".to_owned(),
            format!("file={file},if=none,id=drive{nsid},format=raw,cache=unsafe"),
            "-device".to_owned(),
            namespace,
        ]
    }

    /// Whether QEMU emulates it.
    pub fn is_of_qemu(&self) -> bool {
        matches!(self.kind, Kind::Nvme | Kind::Disk)
    }

    /// The command that makes it in the guest; of its kind it is number `index`.
    pub fn command(&self, index: usize) -> String {
        let mib = |bytes: u64| bytes >> 20;
        match self.kind {
            Kind::Nvme | Kind::Disk => "true".to_owned(),
            Kind::Null => {
                let settings = [
                    ("size", mib(self.size_bytes)),
                    ("blocksize", self.block_bytes),
                    ("memory_backed", 1),
                    ("zoned", 1),
                    ("zone_size", mib(self.zone_bytes)),
                    ("zone_capacity", mib(self.capacity_bytes)),
                    ("zone_nr_conv", u64::from(self.conventional_zones)),
                    ("zone_max_open", u64::from(self.max_open)),
                    ("zone_max_active", u64::from(self.max_active)),
                    ("power", 1),
                ];
                let dir = format!("/sys/kernel/config/nullb/nullb{index}");
                let mut command = format!("modprobe null_blk nr_devices=0; mkdir {dir}");
                for (name, value) in settings {
                    command += &format!(" && echo {value} >{dir}/{name}");
                }
                command
            }
            Kind::Scsi => format!(
                "modprobe scsi_debug zbc=host-managed dev_size_mb={} sector_size={} \
                 zone_size_mb={} zone_cap_mb={} zone_nr_conv={} zone_max_open={}; modprobe sd_mod; \
                 i=0; while ! test -b /dev/sda && test $i -lt 100; do sleep 0.1; i=$((i+1)); done; \
                 test -b /dev/sda",
                mib(self.size_bytes),
                self.block_bytes,
                mib(self.zone_bytes),
                mib(self.capacity_bytes),
                self.conventional_zones,
                self.max_open
            ),
        }
    }
}

/// A number with K, M or G behind it.
fn bytes(text: &str) -> Result<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits
        .parse()
        .with_context(|| format!("`{text}` is no number"))?;
    Ok(number << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_read() {
        let drive = Drive::parse("nvme:size=1G,zone=16M,active=6").unwrap();
        assert_eq!((drive.size_bytes, drive.zone_bytes), (1 << 30, 16 << 20));
        assert_eq!((drive.capacity_bytes, drive.max_active), (12 << 20, 6));
        assert!(Drive::parse("floppy").is_err());
        assert!(Drive::parse("nvme:size=").is_err());
        assert!(Drive::parse("nvme:colour=1").is_err());
    }
}
