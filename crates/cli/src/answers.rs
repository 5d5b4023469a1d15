//! What the daemon of a live mount answers, and does when it is told to.

use std::sync::Arc;

use persimmon::CommitInterval;
use persimmon_engine::Volume;
use persimmon_fuse::Live;
use tracing::error;

use crate::control;
use crate::report::Source;
use crate::sync::Synced;

/// Zones in one answer of a daemon, so that it fits the longest extended attribute.
const ZONES_PER_ANSWER: usize = 256;

/// Who answers for a mount.
pub struct Answers {
    volume: Arc<Volume>,
    source: Source,
    commit: Arc<CommitInterval>,
}

impl Answers {
    /// Of a volume, of which `source` tells, and in which what is written is durable after a while.
    pub fn new(volume: Arc<Volume>, source: Source, commit: Arc<CommitInterval>) -> Answers {
        Answers {
            volume,
            source,
            commit,
        }
    }

    /// Makes everything durable, or logs and tells why not.
    fn sync(&self) -> Synced {
        let synced = self.volume.sync();
        let failed = synced.inspect_err(|error| error!("sync: {error}")).err();
        Synced {
            durable: failed.is_none(),
            reason: failed.map(|error| error.to_string()),
        }
    }
}

impl Live for Answers {
    fn answer(&self, question: &str) -> Option<Vec<u8>> {
        let answer = match question {
            "info" => serde_json::to_vec(&self.source.info()),
            "stats" => serde_json::to_vec(&self.source.stats()),
            "sync" => serde_json::to_vec(&self.sync()),
            _ => {
                let from: usize = question.strip_prefix("zones.")?.parse().ok()?;
                let zones = self.source.zones();
                let page: Vec<_> = zones.iter().skip(from).take(ZONES_PER_ANSWER).collect();
                serde_json::to_vec(&page)
            }
        };
        answer.ok()
    }

    fn control(&self, command: &[u8]) -> Result<Vec<u8>, String> {
        control::carry_out(&self.volume, &self.commit, command)
    }
}
