//! What the daemon of a live mount answers, and does when it is told to.

use std::sync::Arc;

use persimmon::vfs::{Error, Result as VfsResult};
use persimmon::{CommitInterval, Ino, Vfs};
use persimmon_fuse::Live;
use persimmon_fuse::live::{Answered, Asked};
use tracing::error;

use crate::control::{self, Command, send::Senders};
use crate::report::Source;
use crate::storage;
use crate::sync::Synced;
use crate::upgrade::Successor;

/// Zones in one answer of a daemon, so that it fits the longest extended attribute.
const ZONES_PER_ANSWER: usize = 256;

/// Who answers for a mount.
pub struct Answers {
    vfs: Arc<Vfs>,
    source: Source,
    commit: Arc<CommitInterval>,
    senders: Senders,
    successor: Option<Successor>,
}

impl Answers {
    /// Of a volume, of which `source` tells, and in which what is written is durable after a while.
    /// `successor`: by which a daemon that can be replaced is.
    pub fn new(
        vfs: Arc<Vfs>,
        source: Source,
        commit: Arc<CommitInterval>,
        successor: Option<Successor>,
    ) -> Answers {
        Answers {
            vfs,
            source,
            commit,
            senders: Senders::default(),
            successor,
        }
    }
}

impl Live for Answers {
    fn answer(&self, of: Ino, question: &str) -> VfsResult<Vec<u8>> {
        let (kind, from) = match question.split_once('.') {
            None => (question, None),
            Some((kind, from)) => {
                let from: Option<u64> = from.parse().ok();
                (kind, Some(from.ok_or(Error::NoAttribute)?))
            }
        };
        let answer = match (kind, from) {
            ("info", None) => serde_json::to_vec(&self.source.info()),
            ("stats", None) => serde_json::to_vec(&self.source.stats()),
            ("zones", Some(from)) => {
                let from = usize::try_from(from).unwrap_or(usize::MAX);
                serde_json::to_vec(&self.source.zones_from(from, ZONES_PER_ANSWER))
            }
            (storage::QUESTION, Some(from)) => {
                serde_json::to_vec(&storage::look(&self.vfs, of, from)?)
            }
            _ => return Err(Error::NoAttribute),
        };
        answer.map_err(|_| Error::NoAttribute)
    }

    fn sync(&self) -> Vec<u8> {
        let synced = self.vfs.keeping(|| self.vfs.volume().sync());
        let failed = synced.inspect_err(|error| error!("sync: {error}")).err();
        let told = Synced {
            durable: failed.is_none(),
            reason: failed.map(|error| error.to_string()),
        };
        serde_json::to_vec(&told).unwrap_or_default()
    }

    fn control(&self, command: &[u8], asked: Asked) -> Result<Answered, String> {
        match (control::parse(command)?, &self.successor) {
            (Command::Upgrade { program }, Some(successor)) => {
                let taken = successor.take_over(&self.vfs, &program, asked);
                taken.map(Answered::from)
            }
            (Command::Upgrade { .. }, None) => Err(
                "its daemon has no supervisor, so none can go on: mount with -o supervise".into(),
            ),
            (Command::Clone(_), Some(_)) => control::clones::refuse(),
            (command, _) => {
                control::carry_out(&self.vfs, &self.commit, &self.senders, command, asked)
            }
        }
    }

    fn is_for_anybody(&self, command: &[u8]) -> bool {
        let own = Command::Quota(control::quota::Question::Own);
        serde_json::to_vec(&own).is_ok_and(|own| own == command)
    }
}
