//! Near duplicates: pieces of files whose sketches agree are tried with each other. The engine decides whether it is worth it.

use super::sketch::{GROUPS, Sketcher};
use super::table::{Place, Table};
use super::{BLOCK, Pair, Run, Window};
use crate::fs::tree::{Content, Copied};

/// Bytes of the pieces that have a sketch: half a frame, so that what moved by some blocks is found too.
const PIECE_BYTES: u64 = 64 << 10;
/// Pieces between two of a run whose sketches need not agree: what changed more is tried with the others.
const GAP_PIECES: u64 = 4;
/// Bytes that one call looks at, as those of equal blocks.
const CALL_BYTES_MAX: u64 = 16 << 20;

/// What was seen, and may be near what comes.
pub struct Near {
    table: Table,
    sketcher: Sketcher,
}

/// Where a file may be near another one.
#[derive(Clone, Copy)]
struct NearRun {
    from: u64,
    from_offset: u64,
    to_offset: u64,
    len: u64,
}

impl NearRun {
    /// Whether a piece goes on with it.
    fn goes_on(&self, next: &NearRun) -> bool {
        let end = self.to_offset + self.len;
        let is_same = self.from == next.from
            && self.from_offset.wrapping_sub(self.to_offset)
                == next.from_offset.wrapping_sub(next.to_offset);
        is_same
            && next.to_offset >= end
            && next.to_offset - end <= GAP_PIECES * PIECE_BYTES
            && next.to_offset + next.len - self.to_offset <= CALL_BYTES_MAX
    }
}

impl Near {
    /// With tables of at most `bytes`.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn new(bytes: u64) -> rustix::io::Result<Near> {
        Ok(Near {
            table: Table::new(bytes)?,
            sketcher: Sketcher::new(),
        })
    }

    /// Memory that they take.
    pub fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Another file's piece that this one is much like. What is like none is remembered.
    fn look(&mut self, piece: &[u8], here: Place) -> Option<Place> {
        let sketch: [u64; GROUPS] = self.sketcher.sketch(piece)?;
        let mut places = sketch.iter().filter_map(|hash| self.table.find(*hash));
        let found = places.find(|place| place.ino != here.ino);
        if found.is_none() {
            for hash in sketch {
                if self.table.find(hash).is_none() {
                    self.table.insert(hash, here);
                }
            }
        }
        found
    }
}

impl Run<'_> {
    /// The pieces of a file, one after the other; those that are much like what was seen before are packed so.
    pub(super) fn near_file(
        &mut self,
        mut near: Near,
        ino: u64,
        content: &mut dyn Content,
        size: u64,
    ) -> Copied<()> {
        let looked = self.near_pieces(&mut near, ino, content, size);
        self.near = Some(near);
        looked
    }

    fn near_pieces(
        &mut self,
        near: &mut Near,
        ino: u64,
        content: &mut dyn Content,
        size: u64,
    ) -> Copied<()> {
        let mut window = Window::default();
        let mut run: Option<NearRun> = None;
        let mut at = 0;
        while let Some(data) = content.next_data(at)? {
            at = at.max(data.start / PIECE_BYTES * PIECE_BYTES);
            let end = data.end.min(size);
            while at < end {
                let len = PIECE_BYTES.min(size - at);
                let Some(piece) = window.bytes(content, at, len)? else {
                    // It became shorter.
                    return Ok(());
                };
                let block = at / BLOCK as u64;
                let found = near.look(piece, Place { ino, block });
                let found = found.map(|place| NearRun {
                    from: place.ino,
                    from_offset: place.block * BLOCK as u64,
                    to_offset: at,
                    len,
                });
                match (&mut run, found) {
                    (Some(run), Some(next)) if run.goes_on(&next) => {
                        run.len = next.to_offset + next.len - run.to_offset;
                    }
                    (_, Some(next)) => {
                        if let Some(before) = run.replace(next) {
                            self.pack(ino, before)?;
                        }
                    }
                    (_, None) => {}
                }
                at += PIECE_BYTES;
                self.pace()?;
            }
            if at >= size {
                break;
            }
        }
        run.map_or(Ok(()), |run| self.pack(ino, run))
    }

    fn pack(&mut self, ino: u64, run: NearRun) -> Copied<()> {
        let packed = self.door.pack_near(&Pair {
            from: run.from,
            from_offset: run.from_offset,
            to: ino,
            to_offset: run.to_offset,
            len: run.len,
            least: 0,
            only_tells: false,
        })?;
        self.outcome.bytes += packed.bytes;
        self.outcome.near_bytes += packed.shared;
        self.pace()
    }
}
