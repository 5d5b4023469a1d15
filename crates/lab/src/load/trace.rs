//! Recorded traces: what was written to files or disks somewhere, written again.
//!
//! Three kinds are read: logs of fio (`fio --write_iolog`, versions 2 and 3), and traces of disks as
//! tables, those of Microsoft Research Cambridge (`time,host,disk,Write,offset,bytes,response`) and of
//! Alibaba Cloud (`device,W,offset,bytes,time`). Reads and times are left out: they cost no writing.

use std::collections::HashMap;
use std::path::Path;

use persimmon_device::BLOCK_SIZE;

/// Blocks of one operation at most: a line that says more is no line of a trace.
const OPERATION_BLOCKS_MAX: u64 = 1 << 30;

/// A trace, its files laid one behind the other without what is never written to.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Where it was read from.
    pub name: String,
    /// Blocks that are written to, at least once.
    pub blocks: u64,
    /// What is done, in order.
    pub changes: Vec<TraceChange>,
}

/// What a trace does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceChange {
    /// Blocks are written.
    Write {
        /// The first.
        block: u64,
        /// How many.
        blocks: u64,
    },
    /// Blocks are told not to be needed.
    Trim {
        /// The first.
        block: u64,
        /// How many.
        blocks: u64,
    },
    /// All that was written becomes durable.
    Sync,
}

/// An operation as it was recorded: bytes of a file, if it has any.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    /// Host and disk, or a path.
    file: (&'a str, &'a str),
    does: Does,
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Write,
    Trim,
    Sync,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// fio's, with times before the rest or not.
    Fio {
        timed: bool,
    },
    Cambridge,
    Alibaba,
}

/// Blocks of a file that are written to, and where they lie among all.
#[derive(Clone, Copy, Debug)]
struct Range {
    file: usize,
    first: u64,
    end: u64,
    at: u64,
}

impl Trace {
    /// Reads one from a file.
    ///
    /// # Errors
    /// In words, with the number of the line.
    pub fn read(path: &Path) -> Result<Trace, String> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
        Trace::parse(&name, &text).map_err(|why| format!("{name}: {why}"))
    }

    fn parse(name: &str, text: &str) -> Result<Trace, String> {
        let first = text.lines().next().unwrap_or_default();
        let kind = match first.split(',').count() {
            _ if first.starts_with("fio version 2") => Kind::Fio { timed: false },
            _ if first.starts_with("fio version 3") => Kind::Fio { timed: true },
            7 => Kind::Cambridge,
            5 => Kind::Alibaba,
            _ => {
                let kinds =
                    "a log of fio (version 2 or 3), or a table as of MSR Cambridge or Alibaba";
                return Err(format!("the first line is not that of {kinds}"));
            }
        };
        let header = usize::from(matches!(kind, Kind::Fio { .. }));
        let mut files: HashMap<(&str, &str), usize> = HashMap::new();
        let mut found: Vec<(usize, Does, u64, u64)> = Vec::new();
        for (number, text) in text.lines().enumerate().skip(header) {
            let line = kind
                .line(text)
                .map_err(|why| format!("line {}: {why}", number + 1))?;
            if let Some(line) = line {
                let next = files.len();
                let file = *files.entry(line.file).or_insert(next);
                if line.bytes / BLOCK_SIZE as u64 > OPERATION_BLOCKS_MAX {
                    return Err(format!("line {}: {} bytes at once", number + 1, line.bytes));
                }
                let (first, end) = line.blocks();
                if first < end || line.does == Does::Sync {
                    found.push((file, line.does, first, end));
                }
            }
        }
        let ranges = lay_out(&found);
        let changes = found
            .into_iter()
            .flat_map(|(file, does, first, end)| changes(&ranges, file, does, first, end))
            .collect();
        let blocks = ranges
            .last()
            .map_or(0, |last| last.at + last.end - last.first);
        if blocks == 0 {
            return Err("it writes nothing".into());
        }
        Ok(Trace {
            name: name.to_owned(),
            blocks,
            changes,
        })
    }
}

impl Line<'_> {
    /// The first of its blocks, and the one after the last: of a trim those that go as a whole.
    fn blocks(&self) -> (u64, u64) {
        let block = BLOCK_SIZE as u64;
        let end = self.offset.saturating_add(self.bytes);
        match self.does {
            Does::Trim => (self.offset.div_ceil(block), end / block),
            Does::Write | Does::Sync => (self.offset / block, end.div_ceil(block)),
        }
    }
}

impl Kind {
    /// What a line says; `None` where it writes nothing.
    fn line(self, text: &str) -> Result<Option<Line<'_>>, String> {
        let comma = matches!(self, Kind::Cambridge | Kind::Alibaba);
        let mut words: Vec<&str> = if comma {
            text.split(',').map(str::trim).collect()
        } else {
            text.split_whitespace().collect()
        };
        if let Kind::Fio { timed: true } = self
            && !words.is_empty()
        {
            words.remove(0);
        }
        let (file, does, offset, bytes) = match (self, words.as_slice()) {
            (_, []) => return Ok(None),
            (Kind::Fio { .. }, [file, does]) => ((*file, ""), *does, "0", "0"),
            (Kind::Fio { .. }, [_, _, _]) => return Ok(None),
            (Kind::Fio { .. }, [file, does, offset, bytes]) => {
                ((*file, ""), *does, *offset, *bytes)
            }
            (Kind::Cambridge, [_, host, disk, does, offset, bytes, _]) => {
                ((*host, *disk), *does, *offset, *bytes)
            }
            (Kind::Alibaba, [disk, does, offset, bytes, _]) => {
                ((*disk, ""), *does, *offset, *bytes)
            }
            _ => return Err(format!("{} words", words.len())),
        };
        let does = match does {
            "write" | "Write" | "W" => Does::Write,
            "trim" => Does::Trim,
            "sync" | "datasync" => Does::Sync,
            "read" | "Read" | "R" | "add" | "open" | "close" | "wait" => return Ok(None),
            other => return Err(format!("'{other}' is not known")),
        };
        let number = |word: &str| {
            let number: Result<u64, _> = word.parse();
            number.map_err(|_| format!("'{word}' is no number"))
        };
        let (offset, bytes) = match does {
            Does::Sync => (0, 0),
            Does::Write | Does::Trim => (number(offset)?, number(bytes)?),
        };
        Ok((does == Does::Sync || bytes > 0).then_some(Line {
            file,
            does,
            offset,
            bytes,
        }))
    }
}

/// What is written to, one range behind the other.
fn lay_out(found: &[(usize, Does, u64, u64)]) -> Vec<Range> {
    let mut written: Vec<(usize, u64, u64)> = found
        .iter()
        .filter(|(_, does, ..)| *does == Does::Write)
        .map(|(file, _, first, end)| (*file, *first, *end))
        .collect();
    written.sort_unstable();
    let mut ranges: Vec<Range> = Vec::new();
    for (file, first, end) in written {
        match ranges.last_mut() {
            Some(last) if last.file == file && first <= last.end => last.end = last.end.max(end),
            last => {
                let at = last.map_or(0, |last| last.at + last.end - last.first);
                ranges.push(Range {
                    file,
                    first,
                    end,
                    at,
                });
            }
        }
    }
    ranges
}

/// An operation where its blocks lie now. Trims may reach beyond what is written to, and over several ranges.
fn changes(ranges: &[Range], file: usize, does: Does, first: u64, end: u64) -> Vec<TraceChange> {
    if does == Does::Sync {
        return vec![TraceChange::Sync];
    }
    let from = ranges.partition_point(|range| (range.file, range.end) <= (file, first));
    let of_file = ranges.iter().skip(from);
    of_file
        .take_while(|range| range.file == file && range.first < end)
        .map(|range| {
            let (from, to) = (range.first.max(first), range.end.min(end));
            let (block, blocks) = (range.at + from - range.first, to - from);
            match does {
                Does::Trim => TraceChange::Trim { block, blocks },
                Does::Write | Does::Sync => TraceChange::Write { block, blocks },
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(block: u64, blocks: u64) -> TraceChange {
        TraceChange::Write { block, blocks }
    }

    #[test]
    fn logs_of_fio_are_read() {
        let log = "fio version 2 iolog\n/a add\n/a open\n/b add\n/b open\n/a write 40960 8192\n\
                   /b write 4096 4096\n/a read 0 4096\n/a wait 100\n/a write 45056 8192\n/a sync\n\
                   /a trim 0 49000\n/b datasync\n/a trim 40961 4096\n/a close\n";
        let trace = Trace::parse("log", log).unwrap();
        // Blocks 10 to 12 of the one file, block 1 of the other.
        assert_eq!(trace.blocks, 4);
        // The trim ends inside block 11, which stays.
        let trim = TraceChange::Trim {
            block: 0,
            blocks: 1,
        };
        let (sync, changes) = (TraceChange::Sync, &trace.changes);
        assert_eq!(
            *changes,
            [write(0, 2), write(3, 1), write(1, 2), sync, trim, sync]
        );

        let timed = "fio version 3 iolog\n1 /a add\n2 /a open\n5 /a write 1 1\n9 /a write 4095 2\n";
        let trace = Trace::parse("log", timed).unwrap();
        assert_eq!(trace.changes, [write(0, 1), write(0, 2)]);
    }

    #[test]
    fn tables_are_read() {
        let cambridge = "128166372003061629,usr,0,Read,7014609920,24576,41286\n\
                         128166372016382155,usr,0,Write,2517696512,4096,703\n\
                         128166372026382245,usr,1,Write,2517696512,512,703\n";
        let trace = Trace::parse("usr_0.csv", cambridge).unwrap();
        assert_eq!(
            (trace.blocks, trace.changes),
            (2, vec![write(0, 1), write(1, 1)])
        );

        let alibaba = "419,W,8792731648,16384,1577808144360767\n725,R,59110326272,360448,1577808144360813\n\
                       419,W,8792735744,4096,1577808144360999\n";
        let trace = Trace::parse("io.csv", alibaba).unwrap();
        assert_eq!(
            (trace.blocks, trace.changes),
            (4, vec![write(0, 4), write(1, 1)])
        );
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        for (text, words) in [
            ("", "first line"),
            ("hello", "first line"),
            ("fio version 2 iolog\n/a read 0 4096\n", "writes nothing"),
            (
                "fio version 2 iolog\n/a write 0 x\n",
                "line 2: 'x' is no number",
            ),
            (
                "fio version 2 iolog\n/a turn 0 1\n",
                "line 2: 'turn' is not known",
            ),
            (
                "fio version 2 iolog\n/a write 0 18446744073709551615\n",
                "line 2",
            ),
            ("1,W,0,4096,5\n1,W,0\n", "line 2: 3 words"),
        ] {
            let why = Trace::parse("x", text).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
        let why = Trace::read(Path::new("/nowhere/trace")).unwrap_err();
        assert!(why.contains("/nowhere/trace"), "{why}");
    }
}
