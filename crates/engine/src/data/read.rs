//! Reading: staged blocks from memory, the others from the device, every block verified.

use persimmon_device::{BLOCK_SIZE, Buffer};
use persimmon_format::extent::Extent;
use persimmon_format::packed::{self, Packed};
use persimmon_format::{Addr, Ino, checksum};

use super::{block_of, blocks_in};
use crate::Volume;
use crate::error::{Error, Result};
use crate::meta::extents::Piece;
use crate::zones::Pin;

/// Times a block is looked up before it counts as damaged.
const LOOKUPS: usize = 3;

/// Blocks whose extents are looked up together: those of 1 MiB, which is read in one look wherever it begins, and more.
const LOOKED_UP_BLOCKS: u64 = 512;

impl Volume {
    /// Reads from a regular file; returns the bytes read, fewer than asked for at its end.
    ///
    /// It reads again if the file was made shorter meanwhile: a hole that was found may be where
    /// there was no file, and somebody may have made it longer again.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let cuts = self.files.cuts();
        let read = self.read_meanwhile(ino, offset, buf);
        if self.files.cuts() == cuts {
            return read;
        }
        // Some file was: who does that to this one tells of it there, as long as it is in the table.
        let file = self.files.get_or_create(ino);
        let read = loop {
            let cuts = file.lock().cuts;
            let read = self.read_meanwhile(ino, offset, buf);
            if file.lock().cuts == cuts {
                break read;
            }
        };
        self.files.forget_if_clean_of(ino, file);
        read
    }

    /// Reads by a size, and then by what is staged and mapped.
    fn read_meanwhile(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.files.get(ino);
        let staged_size = file.as_ref().and_then(|f| f.lock().size);
        let size = match staged_size {
            Some(size) => size,
            None => {
                self.view::<_, Error>(|v| v.inode(ino))?
                    .ok_or(Error::NotFound(ino))?
                    .size
            }
        };
        let len = (buf.len() as u64).min(size.saturating_sub(offset)) as usize;
        let Some(buf) = buf.get_mut(..len) else {
            return Ok(0);
        };
        if len == 0 {
            return Ok(0);
        }
        look_again(|| self.read_once(ino, offset, buf)).map(|()| len)
    }

    /// Reads all of `buf`, from staging and by the tree. Staging is looked at first: what leaves
    /// it meanwhile is in the tree by then. What was written meanwhile can be in the tree before
    /// it has arrived; then this fails, and staging has it when looked at again.
    fn read_once(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (first, end) = (block_of(offset), blocks_in(offset + buf.len() as u64));
        let mut holes = vec![(first, end)];
        if let Some(file) = self.files.get(ino) {
            let staged = file.lock();
            holes.clear();
            let mut start = first;
            for block in first..end {
                if let Some(content) = staged.block(block) {
                    copy_block(buf, offset, block, content);
                    if start < block {
                        holes.push((start, block));
                    }
                    start = block + 1;
                }
            }
            if start < end {
                holes.push((start, end));
            }
        }
        for (from, to) in holes {
            self.read_tree(ino, from, to, offset, buf)?;
        }
        Ok(())
    }

    /// One whole block as it is in the history, zeros where nothing is mapped.
    pub(crate) fn read_block(&self, ino: Ino, block: u64) -> Result<Vec<u8>> {
        let mut content = vec![0; BLOCK_SIZE];
        let offset = block * BLOCK_SIZE as u64;
        look_again(|| self.read_tree(ino, block, block + 1, offset, &mut content))?;
        Ok(content)
    }

    /// Reads blocks `from..to` by the tree into `buf`, whose first byte is at `offset`. Of more than is read at once the
    /// extents are looked up piece by piece: a look begins again at each page that it misses.
    fn read_tree(&self, ino: Ino, from: u64, to: u64, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut start = from;
        while start < to {
            let end = to.min(start.saturating_add(LOOKED_UP_BLOCKS));
            let pieces = self.pinned_extents(ino, start, end)?;
            self.read_pieces(ino, &pieces, start, end, offset, buf)?;
            start = end;
        }
        Ok(())
    }

    /// Extents of a range; their zones stay as they are while the pins live.
    fn pinned_extents(&self, ino: Ino, from: u64, to: u64) -> Result<Vec<(Piece, Option<Pin>)>> {
        self.view(|view| {
            let pieces = view.extents(ino, from, to, usize::MAX)?;
            Ok(pieces
                .into_iter()
                .map(|piece| {
                    let place = piece.extent.on_device();
                    let pin = place.and_then(|(addr, _)| self.zones.pin(addr.zone()));
                    (piece, pin)
                })
                .collect())
        })
    }

    fn read_pieces(
        &self,
        ino: Ino,
        pieces: &[(Piece, Option<Pin>)],
        from: u64,
        to: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let mut done = from;
        let mut last = None;
        for (piece, _pin) in pieces {
            let (start, end) = (piece.block.max(from), piece.end().min(to));
            zero_blocks(buf, offset, done, start);
            match &piece.extent {
                Extent::Reserved { .. } => zero_blocks(buf, offset, start, end),
                Extent::Inline(bytes) => {
                    let mut content = [0; BLOCK_SIZE];
                    if let Some(out) = content.get_mut(..bytes.len()) {
                        out.copy_from_slice(bytes);
                    }
                    copy_block(buf, offset, start, &content);
                }
                Extent::Compressed(bytes) => {
                    let content = packed::decompress(bytes).ok_or_else(|| {
                        let what = format_args!("block {start}: compressed content is malformed");
                        Error::item_damaged(ino, what)
                    })?;
                    copy_block(buf, offset, start, &content);
                }
                Extent::Packed(piece) => {
                    let blocks = self
                        .packed_blocks(piece, &mut last)
                        .map_err(|error| self.lost_data(error, ino, start, piece.addr))?;
                    let content = piece.content(&blocks).ok_or(Error::DataDamaged {
                        ino,
                        block: start,
                        addr: piece.addr,
                    })?;
                    copy_block(buf, offset, start, &content);
                }
                Extent::Frame { addr, crcs } => {
                    let skip = (start - piece.block) as usize;
                    let at = addr.offset(skip as u32);
                    let mut content = [0; BLOCK_SIZE];
                    if end == start + 1
                        && self.tails.copy(ino, at, &mut content)
                        && crcs.get(skip) == Some(&checksum::data_block(&content))
                    {
                        copy_block(buf, offset, start, &content);
                        done = end;
                        continue;
                    }
                    let data = self
                        .media
                        .read(at, (end - start) as u32)
                        .map_err(|error| self.lost_data(error, ino, start, at))?;
                    let blocks = data.chunks_exact(BLOCK_SIZE).zip(crcs.iter().skip(skip));
                    for (i, (content, crc)) in blocks.enumerate() {
                        let block = start + i as u64;
                        if checksum::data_block(content) != *crc {
                            let addr = at.offset(i as u32);
                            return Err(Error::DataDamaged { ino, block, addr });
                        }
                        copy_block(buf, offset, block, content);
                    }
                }
            }
            done = end;
        }
        zero_blocks(buf, offset, done, to);
        Ok(())
    }

    /// The blocks that hold a packed piece. What was read last is taken again where it holds them:
    /// neighbours in a file are mostly neighbours on the device.
    pub(crate) fn packed_blocks(
        &self,
        piece: &Packed,
        last: &mut Option<(Addr, Buffer)>,
    ) -> Result<Buffer> {
        if let Some((addr, blocks)) = last
            && *addr == piece.addr
            && blocks.blocks() >= piece.span()
        {
            return Ok(blocks.clone());
        }
        let blocks = self.media.read(piece.addr, piece.span())?;
        *last = Some((piece.addr, blocks.clone()));
        Ok(blocks)
    }

    /// Why data cannot be read: its zone may have failed for good.
    fn lost_data(&self, error: Error, ino: Ino, block: u64, addr: Addr) -> Error {
        self.zones.examine(&self.media);
        if self.zones.is_lost(addr.zone()) {
            return Error::DataLost { ino, block, addr };
        }
        error
    }
}

/// Reads, and reads again what does not match or cannot be read: it may have moved, or have been
/// written meanwhile, and is elsewhere then.
fn look_again(mut read: impl FnMut() -> Result<()>) -> Result<()> {
    let mut result = read();
    for _ in 1..LOOKUPS {
        if !matches!(
            result,
            Err(Error::DataDamaged { .. } | Error::DataLost { .. } | Error::Device(_))
        ) {
            break;
        }
        result = read();
    }
    result
}

/// Where block `block` of the file lies in a buffer that begins at `offset`: the buffer's range,
/// and the first byte of the block that falls into it.
fn place(len: usize, offset: u64, block: u64) -> (usize, usize, usize) {
    let start = block * BLOCK_SIZE as u64;
    let skip = offset.saturating_sub(start).min(BLOCK_SIZE as u64) as usize;
    let at = start.saturating_sub(offset).min(len as u64) as usize;
    let count = (BLOCK_SIZE - skip).min(len - at);
    (at, count, skip)
}

fn copy_block(buf: &mut [u8], offset: u64, block: u64, content: &[u8]) {
    let (at, count, skip) = place(buf.len(), offset, block);
    if let (Some(out), Some(bytes)) = (buf.get_mut(at..at + count), content.get(skip..skip + count))
    {
        out.copy_from_slice(bytes);
    }
}

fn zero_blocks(buf: &mut [u8], offset: u64, from: u64, to: u64) {
    if from < to {
        let (start, _, _) = place(buf.len(), offset, from);
        let (last, count, _) = place(buf.len(), offset, to - 1);
        if let Some(out) = buf.get_mut(start..last + count) {
            out.fill(0);
        }
    }
}
