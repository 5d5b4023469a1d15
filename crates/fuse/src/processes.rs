//! What is to be known of the processes whose requests the kernel sends: it tells their user, group and number, but neither
//! supplementary groups nor capabilities. A process waits for its answer, so it does not change meanwhile.

use std::fs;
use std::io::Read;

use persimmon_vfs::Processes;

/// `CAP_FSETID`, by its bit.
const FSETID: u32 = 4;
/// A process may be in 65,536 groups.
const STATUS_BYTES_MAX: u64 = 1 << 20;

/// By `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Proc;

impl Processes for Proc {
    fn is_in_group(&self, pid: u32, gid: u32) -> bool {
        status(pid).is_some_and(|status| in_group(&status, gid))
    }

    fn has_fsetid(&self, pid: u32) -> bool {
        status(pid).is_some_and(|status| has_capability(&status, FSETID))
    }
}

/// 0 is a process that is not visible from here.
fn status(pid: u32) -> Option<String> {
    if pid == 0 {
        return None;
    }
    let file = fs::File::open(format!("/proc/{pid}/status")).ok()?;
    let mut bytes = Vec::new();
    file.take(STATUS_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    // The name of a process may be any bytes, and is in its first line; the rest is ASCII.
    bytes.retain(u8::is_ascii);
    String::from_utf8(bytes).ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// By the supplementary groups and the effective group of the filesystem.
fn in_group(status: &str, gid: u32) -> bool {
    let own = field(status, "Gid:").and_then(|ids| ids.split_ascii_whitespace().nth(3));
    let more = field(status, "Groups:").unwrap_or_default();
    let mut groups = own.into_iter().chain(more.split_ascii_whitespace());
    groups.any(|group| group.parse() == Ok(gid))
}

fn has_capability(status: &str, bit: u32) -> bool {
    field(status, "CapEff:")
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << bit) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_read() {
        let status =
            "Name:\tx\nGid:\t1\t2\t3\t4\nGroups:\t50 4294967294 \nCapEff:\t0000000000000010\n";
        for gid in [4, 50, 4_294_967_294] {
            assert!(in_group(status, gid));
        }
        for gid in [1, 2, 3, 5, 0] {
            assert!(!in_group(status, gid), "{gid}");
        }
        assert!(has_capability(status, FSETID));
        assert!(!has_capability(status, 3));
        assert!(!in_group("Groups:\t\n", 0) && !has_capability("", FSETID));
    }

    #[test]
    fn this_process_is_known_and_others_are_not() {
        let gid = rustix::process::getegid().as_raw();
        assert!(Proc.is_in_group(std::process::id(), gid));
        assert!(!Proc.is_in_group(0, gid) && !Proc.has_fsetid(0));
        assert!(!Proc.is_in_group(u32::MAX, gid));
    }
}
