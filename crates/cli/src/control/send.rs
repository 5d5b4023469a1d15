//! Snapshots of a mount that are sent: the daemon reads them for the command, so that compressed frames stay as they are stored, and no file has
//! to be found by a path. What is asked and answered is what [`persimmon::stream::Remote`] makes of it, in pieces that fit a message.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use persimmon::Vfs;
use persimmon::stream::{Origin, Remote, SourceError, VolumeSource, answer};
use persimmon_fuse::control::TEXT_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::{Command, Name, ask, ask_bytes, encode};

/// Snapshots that are sent at a time without being looked up anew for each question.
const SENDERS_MAX: usize = 4;
/// One that asked nothing for so long is gone.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// An answer in pieces: its length and its checksum (u32 each) before each piece.
const HEAD_BYTES: usize = 8;
/// Tries to get all pieces of one answer: how content is stored may change between two of them.
const TRIES: usize = 16;

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Which snapshots have these names.
    Find {
        /// What is sent.
        name: Name,
        /// From where on.
        from: Option<Name>,
    },
    /// What a source answers, from a byte on.
    Read {
        /// Which snapshots.
        origin: Vec<u8>,
        /// What is asked of the source.
        question: Vec<u8>,
        /// From this byte of the answer on.
        offset: u32,
    },
}

/// A snapshot that is sent, and the last answer.
struct Sender {
    origin: Origin,
    source: VolumeSource,
    question: Vec<u8>,
    answer: Answer,
    used: Instant,
}

/// An answer that goes in pieces, and its checksum.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    crc: u32,
}

impl Answer {
    fn new(bytes: Vec<u8>) -> Answer {
        Answer {
            crc: checksum(&bytes),
            bytes,
        }
    }

    fn piece(&self, offset: u32) -> Result<Vec<u8>, String> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.bytes.get(offset..).unwrap_or_default();
        let part = rest.get(..TEXT_BYTES_MAX - HEAD_BYTES).unwrap_or(rest);
        let len = u32::try_from(self.bytes.len()).map_err(|_| "the answer is too long")?;
        let mut out = len.to_le_bytes().to_vec();
        out.extend(self.crc.to_le_bytes());
        out.extend(part);
        Ok(out)
    }
}

/// The daemon's side.
#[derive(Default)]
pub struct Senders(Mutex<Vec<Sender>>);

impl Senders {
    pub(super) fn answer(&self, vfs: &Arc<Vfs>, question: Question) -> Result<Vec<u8>, String> {
        match question {
            Question::Find { name, from } => {
                let from = from.as_ref().map(Name::bytes);
                let source = VolumeSource::new(Arc::clone(vfs), name.bytes(), from);
                let origin = persimmon::stream::Source::origin(&source.map_err(said)?).clone();
                encode(&origin.encode())
            }
            Question::Read {
                origin,
                question,
                offset,
            } => {
                let origin = Origin::decode(&origin).map_err(|error| error.to_string())?;
                let mut sender = match self.take(&origin) {
                    Some(sender) => sender,
                    None => match VolumeSource::of(Arc::clone(vfs), origin.clone()) {
                        Ok(source) => Sender {
                            origin,
                            source,
                            question: Vec::new(),
                            answer: Answer::default(),
                            used: Instant::now(),
                        },
                        // Told as the source tells it.
                        Err(SourceError::Gone) => return Answer::new(vec![1, 0]).piece(0),
                        Err(error) => return Err(said(error)),
                    },
                };
                if sender.question != question {
                    sender.answer = Answer::new(answer(&mut sender.source, &question));
                    sender.question = question;
                }
                let piece = sender.answer.piece(offset);
                self.keep(sender);
                piece
            }
        }
    }

    /// Takes one out, so that no lock is held while it reads. Those that nobody asks for any more are dropped.
    fn take(&self, origin: &Origin) -> Option<Sender> {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|sender| sender.used.elapsed() < IDLE_MAX);
        let at = senders.iter().position(|sender| sender.origin == *origin)?;
        Some(senders.remove(at))
    }

    fn keep(&self, sender: Sender) {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if senders.len() >= SENDERS_MAX {
            senders.remove(0);
        }
        senders.push(Sender {
            used: Instant::now(),
            ..sender
        });
    }
}

fn said(error: SourceError) -> String {
    error.to_string()
}

fn checksum(answer: &[u8]) -> u32 {
    persimmon::internal::format::checksum::data_block(answer)
}

/// Takes a question to the daemon.
pub type Ask = Box<dyn FnMut(&[u8]) -> io::Result<Vec<u8>>>;

/// The command's side: a source that the daemon behind `dir` reads.
///
/// # Errors
/// There are no such snapshots, or no such daemon.
pub fn source(dir: &Path, name: &[u8], from: Option<&[u8]>) -> Result<Remote<Ask>> {
    let question = Question::Find {
        name: Name::new(name),
        from: from.map(Name::new),
    };
    let origin: Vec<u8> = ask(dir, &Command::Send(question))?;
    let origin = Origin::decode(&origin).map_err(|error| anyhow!("{}: {error}", dir.display()))?;
    let (dir, named) = (dir.to_owned(), origin.encode());
    let ask: Ask = Box::new(move |question| read(&dir, &named, question));
    Ok(Remote::new(origin, ask))
}

/// All pieces of an answer.
fn read(dir: &Path, origin: &[u8], question: &[u8]) -> io::Result<Vec<u8>> {
    for _ in 0..TRIES {
        let mut answer = Vec::new();
        let mut due = None;
        loop {
            let command = Command::Send(Question::Read {
                origin: origin.to_vec(),
                question: question.to_vec(),
                offset: answer.len() as u32,
            });
            let piece = ask_bytes(dir, &command).map_err(io::Error::other)?;
            let Some((head, part)) = piece.split_first_chunk::<HEAD_BYTES>() else {
                return Err(io::Error::other("an answer without a length"));
            };
            // Of another answer to the same question.
            if *due.get_or_insert(*head) != *head {
                break;
            }
            answer.extend_from_slice(part);
            let [l0, l1, l2, l3, c0, c1, c2, c3] = *head;
            let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            if answer.len() >= len || part.is_empty() {
                if answer.len() == len && checksum(&answer) == u32::from_le_bytes([c0, c1, c2, c3])
                {
                    return Ok(answer);
                }
                break;
            }
        }
    }
    Err(io::Error::other("its answers do not match"))
}
