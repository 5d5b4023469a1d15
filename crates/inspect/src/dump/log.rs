//! The log: its zones, its blocks and its records.

use std::ops::ControlFlow;

use persimmon_format::Addr;
use persimmon_format::log::{Body, LogBlock};
use serde::Serialize;

use super::content::{OpDump, op};
use crate::error::Result;
use crate::volume::Inspector;

/// The log.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogDump {
    /// Its zones, in order.
    pub zones: Vec<LogZoneRow>,
    /// The last good block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub newest: Option<String>,
    /// Blocks from the replay position on.
    pub blocks: Vec<LogBlockDump>,
    /// Records that a mount replays.
    pub records: Vec<RecordDump>,
}

/// A zone of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogZoneRow {
    /// The zone.
    pub zone: u32,
    /// Its sequence.
    pub sequence: u64,
    /// Sequence of its first block.
    pub first_log_sequence: u64,
    /// Blocks written, header included.
    pub written_blocks: u32,
}

/// A log block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogBlockDump {
    /// Where.
    pub addr: String,
    /// `journal`, `footer`, or what is wrong.
    pub kind: String,
    /// Its number in the log.
    pub sequence: u64,
    /// Epoch.
    pub epoch: u32,
    /// The opening that wrote it.
    pub opening: u32,
    /// Last LSN valid of earlier epochs.
    pub resume_after: u64,
    /// Durable LSN.
    pub durable: u64,
    /// The footer it names.
    pub footer: String,
    /// Journal: first LSN; footer: number of the part.
    pub first: u64,
    /// Journal: bytes that end a record begun before; footer: parts.
    pub lead: u16,
    /// Bytes of records, or of the footer.
    pub used_bytes: usize,
    /// Bytes that they take in the block: fewer, if they are compressed.
    pub stored_bytes: usize,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordDump {
    /// Its LSN.
    pub lsn: u64,
    /// Its operations.
    pub ops: Vec<OpDump>,
}

pub(super) fn log_block(addr: Addr, block: &LogBlock<'_>) -> LogBlockDump {
    let (kind, first, lead, used_bytes, stored_bytes) = match &block.body {
        Body::Journal {
            first_lsn,
            lead,
            records,
        } => {
            let (used, stored) = (records.len(), records.stored_len());
            ("journal", first_lsn.0, *lead, used, stored)
        }
        Body::Footer { part, parts, bytes } => {
            ("footer", u64::from(*part), *parts, bytes.len(), bytes.len())
        }
    };
    LogBlockDump {
        addr: addr.to_string(),
        kind: kind.into(),
        sequence: block.sequence,
        epoch: block.state.epoch,
        opening: block.state.opening,
        resume_after: block.state.resume_after.0,
        durable: block.state.durable.0,
        footer: block.state.footer.to_string(),
        first,
        lead,
        used_bytes,
        stored_bytes,
    }
}

pub(super) fn log(inspector: &Inspector<'_>) -> Result<LogDump> {
    let log = &inspector.log;
    let from = match &inspector.checkpoint {
        Some(checkpoint) => checkpoint.footer.replay.sequence,
        None => 0,
    };
    let mut blocks = Vec::new();
    log.scan(
        &inspector.media,
        &inspector.key,
        from,
        &mut |addr, block| {
            blocks.push(match block {
                Ok(block) => log_block(addr, &block),
                Err(error) => LogBlockDump {
                    addr: addr.to_string(),
                    kind: error.to_string(),
                    sequence: 0,
                    epoch: 0,
                    opening: 0,
                    resume_after: 0,
                    durable: 0,
                    footer: String::new(),
                    first: 0,
                    lead: 0,
                    used_bytes: 0,
                    stored_bytes: 0,
                },
            });
            ControlFlow::Continue(())
        },
    );
    let zones = log.zones.iter().map(|zone| LogZoneRow {
        zone: zone.zone.0,
        sequence: zone.sequence,
        first_log_sequence: zone.first_log_sequence,
        written_blocks: zone.written,
    });
    let records = inspector.journal.records.iter().map(|record| RecordDump {
        lsn: record.lsn.0,
        ops: record.ops.iter().map(op).collect(),
    });
    Ok(LogDump {
        zones: zones.collect(),
        newest: log.newest.map(|newest| newest.addr.to_string()),
        blocks,
        records: records.collect(),
    })
}
