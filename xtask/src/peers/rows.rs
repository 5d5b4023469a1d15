//! What is compared: workloads, each on a volume of its own.

use super::filesystem::DIR;

/// A workload: what comes before, which is not counted, and what is counted, by mounts.
pub struct Row {
    pub name: String,
    pub unit: Unit,
    /// Commands of `drive-tests work`, in one mount.
    pub before: Vec<String>,
    /// The same; each is mounted and unmounted for itself.
    pub counted: Vec<String>,
    /// They want programs of this machine, whose root the guest sees.
    pub programs: bool,
}

/// What the bytes that were sent are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// By bytes that the user wrote: write amplification.
    UserBytes,
    /// By so many files, in KiB.
    Files(u64),
    /// By operations, in KiB.
    Operations,
    /// The same, where each is a transaction of a database.
    Transactions,
}

impl Unit {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Unit::UserBytes => "bytes sent per byte written",
            Unit::Files(_) => "KiB a file",
            Unit::Operations => "KiB an fsync",
            Unit::Transactions => "KiB a transaction",
        }
    }
}

/// All of them, for drives of so many MiB.
pub fn all(size_mib: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    for percent in [75, 85] {
        for (name, flag) in [("uniform", ""), ("zipf", " --zipf")] {
            rows.push(Row {
                name: format!("overwrite at {percent} %, {name}"),
                unit: Unit::UserBytes,
                before: vec![format!("fill {DIR} {}", size_mib * percent / 100)],
                counted: vec![format!("overwrite {DIR} {}{flag}", size_mib * 2)],
                programs: false,
            });
        }
    }
    for percent in [75, 85] {
        rows.push(Row {
            name: format!("overwrite at {percent} %, large files"),
            unit: Unit::UserBytes,
            before: vec![format!("fill {DIR} {} --files 8", size_mib * percent / 100)],
            counted: vec![format!("overwrite {DIR} {} --mixed", size_mib * 2)],
            programs: false,
        });
    }
    for (name, bytes) in [
        ("empty", 0u64),
        ("64 B", 64),
        ("16 KB", 16_000),
        ("100 KB", 100_000),
    ] {
        for files in [10u64, 100, 1000] {
            rows.push(Row {
                name: format!("small: {files} of {name}"),
                unit: Unit::Files(files),
                before: Vec::new(),
                counted: vec![
                    format!("create {DIR} {files} {bytes}"),
                    format!("update {DIR} {files} {bytes}"),
                    format!("delete {DIR} {files}"),
                ],
                programs: false,
            });
        }
    }
    for (kib, count) in [(4u64, 4000), (16, 2000), (64, 1000)] {
        rows.push(Row {
            name: format!("fsync {kib} KiB"),
            unit: Unit::Operations,
            before: vec![format!("fsync {DIR} 64 4096 0")],
            counted: vec![format!("fsync {DIR} 64 {} {count}", kib << 10)],
            programs: false,
        });
    }
    rows.push(Row {
        name: "varmail".to_owned(),
        unit: Unit::UserBytes,
        before: Vec::new(),
        counted: vec![format!("varmail {DIR} 3000")],
        programs: false,
    });
    rows.push(Row {
        name: "untar".to_owned(),
        unit: Unit::UserBytes,
        before: Vec::new(),
        counted: vec![format!("untar {DIR} 10")],
        programs: false,
    });
    for (journal, name) in [("wal", "WAL"), ("delete", "DELETE journal")] {
        rows.push(Row {
            name: format!("SQLite, {name}"),
            unit: Unit::Transactions,
            before: vec![format!("sqlite {DIR} {journal} 0")],
            counted: vec![format!("sqlite {DIR} {journal} 3000")],
            programs: true,
        });
    }
    rows.push(Row {
        name: "PostgreSQL, pgbench".to_owned(),
        unit: Unit::Transactions,
        before: vec![format!("pgbench {DIR} 0")],
        counted: vec![format!("pgbench {DIR} 3000")],
        programs: true,
    });
    rows
}
