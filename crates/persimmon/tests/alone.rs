//! The library stands alone: a program that names nothing but `persimmon` can name every type that it meets, and the examples are such
//! programs, and run.

#![allow(clippy::unwrap_used, reason = "tests from top to bottom")]

use std::path::Path;

#[path = "../examples/device.rs"]
#[allow(dead_code, reason = "its own program")]
mod device;
#[path = "../examples/log.rs"]
#[allow(dead_code, reason = "its own program")]
mod log;
#[path = "../examples/notes.rs"]
#[allow(dead_code, reason = "its own program")]
mod notes;

#[test]
fn the_examples_run() {
    let dir = tempfile::tempdir().unwrap();
    notes::notes(&dir.path().join("notes.img")).unwrap();
    log::log(&dir.path().join("log.img")).unwrap();
    device::device().unwrap();
}

/// Of functions and fields that are public: what they take, answer and hold, also inside of what they answer.
#[test]
fn every_type_has_a_name() {
    use persimmon::{device as d, vfs as v};
    fn is<T: ?Sized>() {}
    // Filesystem, File, DirEntry.
    is::<(
        persimmon::Filesystem,
        persimmon::File,
        persimmon::PendingRead,
    )>();
    is::<(persimmon::ReadDir, persimmon::DirEntry, persimmon::Walk)>();
    is::<(
        persimmon::OpenOptions,
        persimmon::Create,
        persimmon::Options,
    )>();
    is::<(
        persimmon::Attr,
        persimmon::FileKind,
        persimmon::Ino,
        persimmon::StatFs,
    )>();
    is::<(
        persimmon::SetAttr,
        persimmon::SetTime,
        persimmon::Timestamp,
        v::Author,
    )>();
    is::<(
        persimmon::RenameMode,
        persimmon::SeekTo,
        persimmon::Allocate,
        persimmon::Lifetime,
    )>();
    // Options.
    is::<(
        persimmon::EngineOptions,
        persimmon::FsyncOrder,
        persimmon::Barrier,
    )>();
    is::<(
        persimmon::CleaningOptions,
        persimmon::VfsOptions,
        persimmon::AccessTimes,
    )>();
    is::<(
        persimmon::OnError,
        persimmon::CommitInterval,
        persimmon::Threshold,
        persimmon::Unit,
    )>();
    is::<dyn v::Processes>();
    is::<dyn persimmon::Clock>();
    // What is told of the volume.
    is::<(
        persimmon::RecoveryReport,
        persimmon::Statistics,
        persimmon::Cleaned,
    )>();
    is::<(
        persimmon::ZoneStatus,
        persimmon::ZitEntry,
        persimmon::Role,
        persimmon::ZoneId,
    )>();
    is::<(
        persimmon::ZoneFailure,
        persimmon::Scrubbed,
        persimmon::ScrubFinding,
    )>();
    is::<(persimmon::Damage, persimmon::Addr)>();
    // Errors, down to the last.
    is::<(
        persimmon::Error,
        persimmon::FilesystemError,
        persimmon::VolumeError,
    )>();
    is::<(
        persimmon::DeviceError,
        persimmon::FormatError,
        persimmon::FormatOptionsError,
    )>();
    is::<(d::PairError, d::ZoneState, persimmon::PageId)>();
    // Devices.
    is::<dyn d::ZonedDevice>();
    is::<(
        d::Geometry,
        d::ZoneInfo,
        d::ZoneKind,
        d::Command,
        d::Completion,
    )>();
    is::<(d::Pending, d::Completer, d::Buffer, d::BufferMut, d::Block)>();
    is::<(
        d::Drive,
        d::Hold,
        d::ImageDevice,
        d::ImageGeometry,
        d::CreateOptions,
        d::OpenOptions,
    )>();
    // By inode number.
    is::<(
        persimmon::Vfs,
        persimmon::Caller,
        v::Handle,
        v::OpenFlags,
        v::WriteFlags,
    )>();
    is::<(
        v::Written,
        v::Listing,
        v::XattrMode,
        v::LockKind,
        v::LockOwner,
        v::FileLock,
    )>();
    is::<v::Entry<'static>>();
}

#[test]
fn nothing_else_is_named_here_and_in_the_examples() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Written apart, for this file is looked at too.
    let others = ["engine", "vfs", "device", "format", "sim", "sync"]
        .map(|c| format!("{}_{c}", "persimmon"));
    for file in [
        "examples/device.rs",
        "examples/log.rs",
        "examples/notes.rs",
        "tests/alone.rs",
    ] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let named = others.iter().find(|name| text.contains(*name));
        assert_eq!(named, None, "{file}");
        assert!(!text.contains(concat!("persimmon::", "internal")), "{file}");
    }
}
