//! What a receiver remembers of its directory as a whole: file `state`. Bytes: magic 0..8, version (u16), whether all was received (u8), origin,
//! position, number of late permissions (u32), each of them inode (u64) and permissions (u32), CRC-32C of all before it (u32).

use persimmon_format::checksum::crc_of_more;

use crate::codec::{Put, Reader};
use crate::error::{DecodeError, ReceiveError};
use crate::wire::{Origin, Position, token};

const MAGIC: [u8; 8] = *b"persrcvd";
const VERSION: u16 = 1;
/// Directories whose permissions are set at the end.
pub(crate) const LATE_MAX: usize = 4096;

/// What was received last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// All of it is there.
    pub is_complete: bool,
    /// What it is of.
    pub origin: Origin,
    /// How far it has come, for good.
    pub position: Position,
    /// Permissions that directories get at the end: with them, one who is not privileged could not work in them.
    pub(crate) late: Vec<(u64, u32)>,
}

impl State {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put(&MAGIC);
        out.put_u16(VERSION);
        out.put_flag(self.is_complete);
        self.origin.put(&mut out);
        self.position.put(&mut out);
        out.put_u32(self.late.len() as u32);
        for (ino, mode) in &self.late {
            out.put_u64(*ino);
            out.put_u32(*mode);
        }
        out.put_u32(crc_of_more(0, &out));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<State, ReceiveError> {
        let body = verified(bytes, "state")?;
        decode(body).map_err(|_| ReceiveError::State("state"))
    }

    /// What `persimmon send --resume` needs to go on; none when all is there.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        (!self.is_complete).then(|| token(&self.origin, &self.position))
    }
}

/// Bytes before their checksum.
pub(crate) fn verified<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a [u8], ReceiveError> {
    match bytes.split_last_chunk() {
        Some((body, crc)) if u32::from_le_bytes(*crc) == crc_of_more(0, body) => Ok(body),
        _ => Err(ReceiveError::State(what)),
    }
}

fn decode(body: &[u8]) -> Result<State, DecodeError> {
    let mut r = Reader::new(body, "the state");
    if r.array()? != MAGIC || r.u16()? != VERSION {
        return Err(r.bad("version"));
    }
    let (is_complete, origin, position) =
        (r.flag()?, Origin::read(&mut r)?, Position::read(&mut r)?);
    let count = r.u32()?;
    let mut late = Vec::new();
    for _ in 0..count {
        late.push((r.u64()?, r.u32()?));
    }
    r.end()?;
    Ok(State {
        is_complete,
        origin,
        position,
        late,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Identity, Time};

    #[test]
    fn it_reads_back_and_damage_is_seen() {
        let state = State {
            is_complete: false,
            origin: Origin {
                volume: [7; 16],
                snapshot: Identity {
                    id: 3,
                    taken: Time {
                        seconds: 5,
                        nanoseconds: 6,
                    },
                    name: b"s".to_vec(),
                },
                base: None,
            },
            position: Position::default(),
            late: vec![(9, 0o500)],
        };
        let bytes = state.encode();
        assert_eq!(State::decode(&bytes).unwrap(), state);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(State::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(State::decode(&bytes[..20]).is_err());
    }
}
