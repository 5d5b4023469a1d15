//! Volumes with one hostile thing in them, for tests that say which.

use persimmon_device::{Command, ZonedDevice};
use persimmon_engine::{Error, Options, RecoveryReport, Volume};
use persimmon_format::footer::Footer;
use persimmon_format::log::{BODY_LEN, Body, LogBlock, LogState, Records};
use persimmon_format::record::Op;
use persimmon_format::{BLOCK_SIZE, envelope::Kind};
use persimmon_sim::SimDevice;

use crate::metered::Metered;
use crate::sample::{LogEnd, Sample, buffer, key};

/// The sound volume that the others are made from, on a device whose write pointers are proof.
#[must_use]
pub fn sound() -> SimDevice {
    Sample::proving().device()
}

/// A volume with one more checkpoint, which differs from the newest by `change`.
#[must_use]
pub fn with_footer(change: impl FnOnce(&mut Footer)) -> SimDevice {
    let sample = Sample::proving();
    let mut footer = sample.footer();
    footer.checkpoint += 1;
    change(&mut footer);
    let bytes = footer.encode();
    let parts = bytes.chunks(BODY_LEN);
    let count = parts.len() as u16;
    let bodies = parts.enumerate().map(|(part, bytes)| Body::Footer {
        part: part as u16,
        parts: count,
        bytes,
    });
    with_log(sample, &sample.log_end, bodies)
}

/// A volume, also where write pointers are no proof, whose log goes on with these records, of a few
/// KiB in all, in a block whose state is changed by `change`.
#[must_use]
pub fn with_records(
    on_host: bool,
    records: &[Vec<Op>],
    change: impl FnOnce(&mut LogState),
) -> SimDevice {
    let sample = if on_host {
        Sample::on_host()
    } else {
        Sample::proving()
    };
    let mut end = sample.log_end;
    change(&mut end.state);
    let mut bytes = Vec::new();
    for ops in records {
        let mut record = Vec::new();
        ops.iter().for_each(|op| op.encode(&mut record));
        bytes.extend_from_slice(&(record.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    let body = Body::Journal {
        first_lsn: end.next_lsn,
        lead: 0,
        records: Records::plain(&bytes),
    };
    with_log(sample, &end, [body])
}

fn with_log<'a>(
    sample: &Sample,
    end: &LogEnd,
    bodies: impl IntoIterator<Item = Body<'a>>,
) -> SimDevice {
    let mut blocks = Vec::new();
    for body in bodies {
        blocks.extend(seal(end, blocks.len() / BLOCK_SIZE, body));
    }
    let device = sample.device();
    let written = device.run(Command::Write {
        zone: end.zone,
        block: end.block,
        data: vec![buffer(&blocks)],
    });
    written.expect("the log has room");
    device
}

/// A log block, `at` blocks past the end of the log.
pub(crate) fn seal(end: &LogEnd, at: usize, body: Body<'_>) -> Vec<u8> {
    let mut block = vec![0; BLOCK_SIZE];
    let content = LogBlock {
        sequence: end.sequence + at as u64,
        state: end.state,
        body,
    };
    content.encode_into(&mut block, &key(), end.zone_sequence);
    block
}

/// Opens a volume on a device that ends what does not end by itself.
pub fn open(device: SimDevice) -> Result<(Volume, RecoveryReport), Error> {
    Volume::open(Metered::new(device), Options::default())
}

impl Sample {
    /// The newest footer, which has one part.
    pub(crate) fn footer(&self) -> Footer {
        let parts = self.payloads(Kind::Footer);
        let footers = parts
            .iter()
            .map(|part| Footer::decode(&part[48..]).expect("a footer"));
        footers
            .max_by_key(|footer| footer.checkpoint)
            .expect("a checkpoint")
    }
}
