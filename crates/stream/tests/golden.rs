//! Bytes of the header, of each record, and of a whole stream: what they are they stay.

#![allow(clippy::unwrap_used, reason = "a test from top to bottom")]

use persimmon_format::compression::Codec;
use persimmon_stream::{
    Cursor, DecodeError, FrameReader, FrameWriter, Header, Identity, Kind, Origin, Position,
    ReceiveError, Record, Stage, Time,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn identity(id: u16, name: &[u8]) -> Identity {
    Identity {
        id,
        taken: time(7),
        name: name.to_vec(),
    }
}

fn time(seconds: i64) -> Time {
    Time {
        seconds,
        nanoseconds: 9,
    }
}

fn header() -> Header {
    Header {
        origin: Origin {
            volume: [0xab; 16],
            snapshot: identity(2, b"two"),
            base: Some(identity(1, b"one")),
        },
        resumed: Some(Position {
            sequence: 3,
            content_bytes: 4,
            digest: [0xcd; 16],
            cursor: Cursor {
                stage: Stage::Files,
                ino: 5,
                at: 6,
            },
        }),
    }
}

fn records() -> Vec<(Record, &'static str)> {
    let name = b"n".to_vec();
    vec![
        (
            Record::Remove {
                dir: 1,
                ino: 16,
                is_gone: true,
                name: name.clone(),
            },
            "01000000000000001000000000000000016e",
        ),
        (Record::RemoveDirectory { ino: 16 }, "1000000000000000"),
        (Record::MakeDirectory { ino: 17 }, "1100000000000000"),
        (
            Record::Name {
                dir: 1,
                ino: 18,
                kind: Kind::Symlink,
                rdev: 0,
                name: name.clone(),
                target: b"to".to_vec(),
            },
            "010000000000000012000000000000000a00000000016e746f",
        ),
        (
            Record::Plain {
                ino: 16,
                block: 2,
                bytes: b"abc".to_vec(),
            },
            "10000000000000000200000000000000616263",
        ),
        (
            Record::Frame {
                ino: 16,
                block: 2,
                codec: Codec::Zstd,
                frame_blocks: 4,
                skip: 1,
                blocks: 2,
                bytes: b"abc".to_vec(),
            },
            "1000000000000000020000000000000002040102616263",
        ),
        (
            Record::Hole {
                ino: 16,
                block: 2,
                blocks: 3,
            },
            "100000000000000002000000000000000300000000000000",
        ),
        (
            Record::Size {
                ino: 16,
                size: 0x1234,
            },
            "10000000000000003412000000000000",
        ),
        (
            Record::Owner {
                ino: 16,
                uid: 1,
                gid: 2,
            },
            "10000000000000000100000002000000",
        ),
        (
            Record::SetXattr {
                ino: 16,
                name: b"user.a".to_vec(),
                value: b"v".to_vec(),
            },
            "100000000000000006757365722e6176",
        ),
        (
            Record::RemoveXattr {
                ino: 16,
                name: b"user.a".to_vec(),
            },
            "1000000000000000757365722e61",
        ),
        (
            Record::Permissions {
                ino: 16,
                mode: 0o4755,
                atime: time(-1),
                mtime: time(1),
            },
            "1000000000000000ed090000ffffffffffffffff09000000010000000000000009000000",
        ),
        (
            Record::Mark {
                is_barrier: true,
                cursor: Cursor {
                    stage: Stage::Directories,
                    ino: 5,
                    at: 6,
                },
            },
            "010605000000000000000600000000000000",
        ),
        (
            Record::End {
                records: 1,
                content_bytes: 2,
                digest: [3; 16],
            },
            "0100000000000000020000000000000003030303030303030303030303030303",
        ),
    ]
}

#[test]
fn records_are_what_they_were() {
    for (kind, (record, due)) in (1..).zip(records()) {
        let bytes = record.encode();
        assert_eq!(hex(&bytes), due, "{record:?}");
        assert_eq!(Record::decode(kind, &bytes).unwrap(), record);
        for len in 0..bytes.len() {
            // Cut short it is another one, or none; never a panic.
            let _ = Record::decode(kind, &bytes[..len]);
        }
    }
    assert_eq!(Record::decode(15, &[]), Err(DecodeError::Kind(15)));
}

#[test]
fn the_header_is_what_it_was() {
    let bytes = header().encode();
    let due = "7065727373\
               74726d01000000030000000000000066000000abababababababababababababababab02000700000000000000090000000374776f\
               01010007000000000000000900000003\
               6f6e6503000000000000000400000000000000cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd0505000000000000000600000000000000";
    let (body, _) = bytes.split_at(bytes.len() - 4);
    assert_eq!(hex(body), due);
    assert_eq!(Header::decode(&bytes).unwrap(), header());
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        assert!(Header::decode(&altered).is_err(), "byte {at}");
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let mut bytes = header().encode();
    bytes[8] = 2;
    assert_eq!(Header::decode(&bytes), Err(DecodeError::Version(2)));
    let mut bytes = header().encode();
    bytes[13] = 1;
    let error = Header::decode(&bytes).unwrap_err();
    assert!(error.to_string().contains("0x100"), "{error}");
    assert_eq!(Header::decode(&[0; 64]), Err(DecodeError::NoStream));
}

/// Names that lead elsewhere, and values that nothing can have.
#[test]
fn wrong_fields_are_refused() {
    let name = |name: &[u8]| Record::Remove {
        dir: 1,
        ino: 16,
        is_gone: false,
        name: name.to_vec(),
    };
    for bad in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", &[b'a'; 256]] {
        assert!(Record::decode(1, &name(bad).encode()).is_err(), "{bad:?}");
    }
    let wrong = [
        Record::MakeDirectory { ino: 0 },
        Record::MakeDirectory { ino: 1 << 48 },
        Record::Size {
            ino: 16,
            size: 1 << 63,
        },
        Record::Hole {
            ino: 16,
            block: u64::MAX,
            blocks: 2,
        },
        Record::Hole {
            ino: 16,
            block: 0,
            blocks: 0,
        },
        Record::Permissions {
            ino: 16,
            mode: 0o100_644,
            atime: time(0),
            mtime: time(0),
        },
        Record::Frame {
            ino: 16,
            block: 0,
            codec: Codec::Lz4,
            frame_blocks: 33,
            skip: 0,
            blocks: 1,
            bytes: vec![0],
        },
        Record::Frame {
            ino: 16,
            block: 0,
            codec: Codec::Lz4,
            frame_blocks: 4,
            skip: 3,
            blocks: 2,
            bytes: vec![0],
        },
        Record::Plain {
            ino: 16,
            block: 0,
            bytes: Vec::new(),
        },
    ];
    let kinds = [3, 3, 8, 7, 7, 12, 6, 6, 5];
    for (kind, record) in kinds.into_iter().zip(wrong) {
        assert!(
            Record::decode(kind, &record.encode()).is_err(),
            "{record:?}"
        );
    }
}

#[test]
fn a_whole_stream_is_what_it_was() {
    let origin = Origin {
        base: None,
        ..header().origin
    };
    let mut out = Vec::new();
    let mut frames = FrameWriter::new(&mut out, &origin, None).unwrap();
    frames.write(&Record::MakeDirectory { ino: 17 }).unwrap();
    frames.end().unwrap();
    let tail: Vec<u8> = out[out.len() - 74..].to_vec();
    assert_eq!(hex(&tail), GOLDEN_STREAM);
    let mut frames = FrameReader::new(out.as_slice()).unwrap();
    assert_eq!(frames.header().origin, origin);
    assert_eq!(
        frames.read().unwrap(),
        Some(Record::MakeDirectory { ino: 17 })
    );
    assert!(matches!(frames.read(), Ok(Some(Record::End { .. }))));
    assert!(matches!(frames.read(), Ok(None)));
    let mut header = Vec::new();
    FrameWriter::new(&mut header, &origin, None).unwrap();
    let header = header.len();
    // What is shorter than a header was taken for one that was cut.
    for short in ["no", "no stream"] {
        let no = FrameReader::new(short.as_bytes()).map(|_| ());
        let due: Result<(), _> = Err(ReceiveError::Decode(DecodeError::NoStream));
        assert_eq!(format!("{no:?}"), format!("{due:?}"), "{short}");
    }
    for end in 0..out.len() {
        let cut = FrameReader::new(&out[..end]).and_then(|mut frames| {
            frames.read()?;
            frames.read()
        });
        match end < header {
            // Nothing was begun, so nothing goes on.
            true => assert!(matches!(cut, Err(ReceiveError::NoHeader)), "{end}: {cut:?}"),
            false => assert!(matches!(cut, Err(ReceiveError::Cut)), "{end}: {cut:?}"),
        }
    }
}

const GOLDEN_STREAM: &str = "080000000000000000000000031100000000000000251021152000000001000000000000000e01000000000000000000000000000000e64681bf090f88f831a6cae5cd8583c4c070b77f";
