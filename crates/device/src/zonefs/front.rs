//! Files of conventional zones: one for each, or one for each run of them if the zonefs was made so.

use std::fs::{File, OpenOptions as FileOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ZonefsDevice;
use crate::image::{Host, drop_cached};
use crate::linux::front::Front;
use crate::lock::explain;
use crate::{Buffer, Result, ZonedDevice};

/// Files one after the other, in the role of one.
struct Files(Vec<Span>);

/// A file, and the bytes before it.
struct Span {
    file: File,
    start: u64,
    length: u64,
}

impl ZonefsDevice {
    /// Its conventional zones; `None` if it has none that this user may use.
    ///
    /// Errors: they cannot be looked at.
    pub(crate) fn front(&self) -> Result<Option<Front>> {
        let read_only = self.shared().read_only;
        let files = match Files::open(&self.port().files.conventional(), !read_only) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!(path = %self.path().display(), "conventional zones are not for this user");
                return Ok(None);
            }
            Err(error) => return Err(explain(self.path(), &error)),
        };
        let bytes = files.0.last().map_or(0, |span| span.start + span.length);
        let zone_blocks = self.geometry().zone_blocks;
        Ok((bytes > 0)
            .then(|| Front::new(self.path(), Box::new(files), bytes, zone_blocks, read_only)))
    }
}

impl Files {
    /// Opens all files of the directory, which are named by number.
    fn open(directory: &Path, write: bool) -> io::Result<Files> {
        let mut spans = Vec::new();
        let mut start = 0;
        for number in 0.. {
            let opened = FileOptions::new()
                .read(true)
                .write(write)
                .open(directory.join(u32::to_string(&number)));
            let file = match opened {
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                opened => opened?,
            };
            let length = file.metadata()?.len();
            spans.push(Span {
                file,
                start,
                length,
            });
            start += length;
        }
        Ok(Files(spans))
    }

    /// The parts of a range of bytes: file, offset in it, and bytes of the range before and behind.
    fn parts(&self, offset: u64, length: u64) -> impl Iterator<Item = (&File, u64, usize, usize)> {
        let first = self
            .0
            .partition_point(|span| span.start + span.length <= offset);
        let end = offset.saturating_add(length);
        let spans = self.0.iter().skip(first);
        spans
            .take_while(move |span| span.start < end)
            .map(move |span| {
                let from = span.start.max(offset);
                let to = (span.start + span.length).min(end);
                let (begin, stop) = ((from - offset) as usize, (to - offset) as usize);
                (&span.file, from - span.start, begin, stop)
            })
    }
}

impl Host for Files {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let length = into.len();
        let mut read = 0;
        for (file, at, begin, stop) in self.parts(offset, length as u64) {
            let part = into
                .get_mut(begin..stop)
                .ok_or(io::ErrorKind::UnexpectedEof)?;
            file.read_exact_at(part, at)?;
            read = stop;
        }
        whole(read, length)
    }

    fn write_at(&self, data: &[Buffer], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for buffer in data {
            self.write_bytes_at(buffer, at)?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    fn write_bytes_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut written = 0;
        for (file, at, begin, stop) in self.parts(offset, bytes.len() as u64) {
            let part = bytes.get(begin..stop).ok_or(io::ErrorKind::UnexpectedEof)?;
            file.write_all_at(part, at)?;
            written = stop;
        }
        whole(written, bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|span| span.file.sync_data())
    }

    fn drop_cached(&self) -> io::Result<()> {
        let mut files = self.0.iter().map(|span| &span.file);
        files.try_for_each(drop_cached)
    }

    fn punch(&self, _: u64, _: u64) -> io::Result<()> {
        // The space of zones is there in any case.
        Ok(())
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}

fn whole(done: usize, length: usize) -> io::Result<()> {
    if done == length {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BufferMut;
    use crate::image::ImageDevice;
    use crate::options::CreateOptions;
    use crate::{Command, ZoneId};

    fn files(dir: &Path, lengths: &[u64]) -> Files {
        for (number, length) in lengths.iter().enumerate() {
            let file = File::create(dir.join(number.to_string())).unwrap();
            file.set_len(*length).unwrap();
        }
        Files::open(dir, true).unwrap()
    }

    #[test]
    fn files_in_a_row_are_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(dir.path(), &[5, 3, 8]);
        let bytes: Vec<u8> = (0..16).collect();
        files.write_bytes_at(&bytes, 0).unwrap();
        for from in 0..16 {
            for to in from..=16 {
                let mut read = vec![0xff; to - from];
                files.read_at(&mut read, from as u64).unwrap();
                assert_eq!(read, bytes[from..to]);
            }
        }
        assert_eq!(std::fs::read(dir.path().join("1")).unwrap(), [5, 6, 7]);
        assert!(files.read_at(&mut [0; 4], 13).is_err());
        assert!(files.write_bytes_at(&[0; 4], 13).is_err());
        assert_eq!(
            Files::open(&dir.path().join("absent"), true)
                .unwrap()
                .0
                .len(),
            0
        );
    }

    #[test]
    fn an_image_lies_across_files() {
        let dir = tempfile::tempdir().unwrap();
        let zone = 1 << 20;
        let host = files(dir.path(), &[zone, zone, zone, zone]);
        let front = Front::new(dir.path(), Box::new(host), 4 * zone, 256, false);
        assert_eq!(front.zone_count(), 2);
        let device = front.create(&CreateOptions::default()).unwrap().unwrap();
        for number in 0..2 {
            let mut data = BufferMut::zeroed(256);
            data.fill(number as u8 + 1);
            device
                .run(Command::Write {
                    zone: ZoneId(number),
                    block: 0,
                    data: vec![data.freeze()],
                })
                .unwrap();
        }
        device.flush().unwrap();
        drop(device);
        let host = Files::open(dir.path(), false).unwrap();
        let front = Front::new(dir.path(), Box::new(host), 4 * zone, 256, true);
        let device: ImageDevice = front.open().unwrap().unwrap();
        for number in 0..2 {
            let read = device.read(ZoneId(number), 0, 256).unwrap();
            assert!(read.iter().all(|byte| *byte == number as u8 + 1));
        }
    }

    #[test]
    fn too_few_zones_hold_no_image() {
        let dir = tempfile::tempdir().unwrap();
        let host = files(dir.path(), &[1 << 20]);
        let front = Front::new(dir.path(), Box::new(host), 1 << 20, 256, false);
        assert!(front.create(&CreateOptions::default()).unwrap().is_none());
        let host = Files::open(dir.path(), true).unwrap();
        let front = Front::new(dir.path(), Box::new(host), 1 << 20, 256, false);
        assert!(front.open().unwrap().is_none());
    }

    /// The second superblock of an image lies at its end: a drive that was emptied had the zones of the volume before.
    #[test]
    fn an_image_that_was_cleared_is_found_at_neither_end() {
        let dir = tempfile::tempdir().unwrap();
        let zone = 1 << 20;
        let front = |write| {
            let host = Files::open(dir.path(), write).unwrap();
            Front::new(dir.path(), Box::new(host), 4 * zone, 256, !write)
        };
        files(dir.path(), &[zone, zone, zone, zone]);
        drop(front(true).create(&CreateOptions::default()).unwrap());
        assert!(front(false).open().unwrap().is_some());
        front(true).clear().unwrap();
        assert!(front(false).open().unwrap().is_none());
    }
}
