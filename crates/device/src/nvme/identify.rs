//! What a drive says of itself: the identify data structures of the base, NVM and ZNS command sets.

use std::fs::File;

use persimmon_format::shown;

use super::passthrough::{NvmeCommand, Queue, op, run};
use crate::linux::failure::Failure;

/// Bytes of each structure.
const BYTES: usize = 4096;
/// The zoned namespace command set.
const ZNS: u32 = 2;
/// The smallest memory page a drive may have, the unit of transfer limits.
const PAGE_BYTES: u64 = 4096;

/// Which structure is asked for.
#[derive(Clone, Copy, Debug)]
enum Structure {
    Namespace = 0x00,
    Controller = 0x01,
    ZonedNamespace = 0x05,
    ZonedController = 0x06,
}

/// A zoned namespace and its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identified {
    /// Model of the drive.
    pub model: String,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block are two to the power of this.
    pub block_shift: u32,
    /// Bytes beside each logical block.
    pub metadata_bytes: u16,
    /// Logical blocks from one zone to the next.
    pub zone_blocks: u64,
    /// Zones that may be open at once; `None` is no limit.
    pub max_open: Option<u32>,
    /// Zones that may be active at once; `None` is no limit.
    pub max_active: Option<u32>,
    /// Bytes of one command; `None` is no limit.
    pub transfer_bytes_max: Option<u64>,
    /// Bytes of one zone append; `None` is that of all commands.
    pub append_bytes_max: Option<u64>,
    /// Completed writes may be lost at a power cut until a flush.
    pub volatile_cache: bool,
}

/// Asks the drive. `None`: the namespace has no zones.
pub fn identify(file: &File, nsid: u32) -> Result<Option<Identified>, Failure> {
    let zoned = match ask(file, nsid, Structure::ZonedNamespace, ZNS) {
        Ok(zoned) => zoned,
        // Other command sets have no such structure.
        Err(Failure::Nvme(_)) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let namespace = ask(file, nsid, Structure::Namespace, 0)?;
    let controller = ask(file, 0, Structure::Controller, 0)?;
    let zoned_controller = ask(file, 0, Structure::ZonedController, ZNS)?;
    let found = decode(&namespace, &controller, &zoned, &zoned_controller);
    Ok((found.zone_blocks > 0).then_some(found))
}

fn ask(file: &File, nsid: u32, what: Structure, set: u32) -> Result<Vec<u8>, Failure> {
    let mut data = vec![0; BYTES];
    let command = NvmeCommand {
        opcode: op::IDENTIFY,
        nsid,
        cdw10: what as u32,
        cdw11: set << 24,
        ..NvmeCommand::default()
    };
    run(file, Queue::Admin, command, &mut data)?;
    Ok(data)
}

fn decode(
    namespace: &[u8],
    controller: &[u8],
    zoned: &[u8],
    zoned_controller: &[u8],
) -> Identified {
    // Four bits, and two more above a bit that says something else.
    let formatted = byte(namespace, 26);
    let format = usize::from(formatted & 0xf | formatted >> 1 & 0x30);
    let format_at = 128 + 4 * format;
    // Limits are counted from zero; all ones is none.
    let limit = |at| match u32_at(zoned, at) {
        u32::MAX => None,
        number => Some(number + 1),
    };
    // As a power of two of pages; zero is none.
    let transfer = |exponent: u8| match exponent {
        0 => None,
        _ => Some(PAGE_BYTES << exponent.min(40)),
    };
    let model = controller.get(24..64).unwrap_or_default();
    let model = model.split(|byte| *byte == 0).next().unwrap_or_default();
    Identified {
        model: shown(model.trim_ascii()).to_string(),
        blocks: u64_at(namespace, 0),
        block_shift: u32::from(byte(namespace, format_at + 2)),
        metadata_bytes: u16::from(byte(namespace, format_at))
            | u16::from(byte(namespace, format_at + 1)) << 8,
        zone_blocks: u64_at(zoned, 2816 + 16 * format),
        max_active: limit(4),
        max_open: limit(8),
        transfer_bytes_max: transfer(byte(controller, 77)),
        append_bytes_max: transfer(byte(zoned_controller, 0)),
        volatile_cache: byte(controller, 525) & 1 != 0,
    }
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    u32::from_le_bytes(word.copied().unwrap_or_default())
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    u64::from_le_bytes(word.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_as_it_describes_itself() {
        let mut namespace = vec![0; BYTES];
        namespace[0..8].copy_from_slice(&65536u64.to_le_bytes());
        // The third format: blocks of 4 KiB, without metadata.
        namespace[26] = 2;
        namespace[128 + 8 + 2] = 12;
        let mut controller = vec![0; BYTES];
        controller[24..30].copy_from_slice(b"Model ");
        controller[77] = 7;
        controller[525] = 7;
        let mut zoned = vec![0; BYTES];
        zoned[4..8].copy_from_slice(&13u32.to_le_bytes());
        zoned[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        zoned[2816 + 32..2816 + 40].copy_from_slice(&4096u64.to_le_bytes());
        let mut zoned_controller = vec![0; BYTES];
        let found = decode(&namespace, &controller, &zoned, &zoned_controller);
        let expected = Identified {
            model: "Model".to_owned(),
            blocks: 65536,
            block_shift: 12,
            metadata_bytes: 0,
            zone_blocks: 4096,
            max_open: None,
            max_active: Some(14),
            transfer_bytes_max: Some(512 << 10),
            append_bytes_max: None,
            volatile_cache: true,
        };
        assert_eq!(found, expected);
        zoned_controller[0] = 5;
        let found = decode(&namespace, &controller, &zoned, &zoned_controller);
        assert_eq!(found.append_bytes_max, Some(128 << 10));
        // Too short: no drive does that, and nothing is made of it.
        assert_eq!(decode(&[], &[], &[], &[]).zone_blocks, 0);
    }
}
