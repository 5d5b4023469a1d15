//! The bytes of each structure, frozen: a change here is a change of the format.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod samples;

use persimmon_format::delta;
use persimmon_format::extent::Extent;
use persimmon_format::footer::{Footer, Valid};
use persimmon_format::inode::Inode;
use persimmon_format::name::{self, DirEntry, ITEM_END, ITEM_MIN, first_item};
use persimmon_format::quota::QuotaState;
use persimmon_format::record::Op;
use persimmon_format::table::MatEntry;
use persimmon_format::xattr::{Pieces, Xattr, XattrValue, cut, piece_key, slot_of};
use persimmon_format::zone_header::{DELTAS, PROPERTIES, Properties, SPLIT, ZoneHeader};
use persimmon_format::{Addr, BLOCK_SIZE, DeviceId, Ino, Lsn, ZoneId, checksum};

/// Compares bytes with their hexadecimal form; `..` stands for the zeros that follow.
fn assert_golden(bytes: &[u8], golden: &str) {
    let shown = hex(bytes);
    let expected: String = golden.split_whitespace().collect();
    assert_eq!(shown, expected, "\nbytes are now:\n{}", lines(&shown));
}

fn hex(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let mut out: String = bytes[..end]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    if end < bytes.len() {
        out.push_str("..");
    }
    out
}

fn lines(hex: &str) -> String {
    hex.as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line) + "\n")
        .collect()
}

#[test]
fn addresses() {
    let addr = Addr::new(DeviceId(0xab), ZoneId(0x0123_4567), 0x089a_bcde);
    assert_eq!(addr.to_raw(), 0xab12_3456_789a_bcde);
}

#[test]
fn checksums() {
    let key = samples::key();
    assert_eq!(checksum::data_block(b"123456789"), 0xe306_9283);
    assert_eq!(checksum::plain(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(format!("{:016x}", key.checksum(b"")), "074a556327a2a612");
    assert_eq!(
        format!("{:016x}", key.checksum(&[7; BLOCK_SIZE])),
        "d7ca77b9f87ea950"
    );
}

/// Computed by another program, from what FORMAT.md says.
#[test]
fn names_and_cookies() {
    let key = samples::key();
    let item = first_item(&key, b"a file name");
    assert_eq!(item, 0x521c_fecf_6f75_39ec);
    let cookies = [
        (1, item, 0x04b0_02ce_d951_15d7),
        (2, item, 0x7eb9_2184_b66b_ecb5),
        (1, ITEM_MIN, 0x1169_285f_8d17_6dc1),
        (1, ITEM_END - 1, 0x3a1b_56d4_de84_6367),
    ];
    for (directory, item, cookie) in cookies {
        assert_eq!(name::cookie(&key, Ino(directory), item), cookie);
        assert_eq!(name::item_of_cookie(&key, Ino(directory), cookie), item);
    }
}

#[test]
fn zone_header() {
    let block = samples::zone_header().encode();
    assert_eq!(block.len(), BLOCK_SIZE);
    assert_golden(
        &block[..4088],
        "
        5052534d5a4f4e450100000000000000101112131415161718191a1b1c1d1e1f8081828384858687
        88898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f70c3a4636b6368656e00000000000000
        00000000000000000000000000000000000000000000000000000000000000000000000000000000
        00000000000000007a00000000000000020100000000000004030000000000003101030042410000
        525100000000000012110000222100006261000000000000fbffffffffffffff..
    ",
    );
    assert_golden(&block[4088..], "b1b0155f00e458dc");
}

#[test]
fn zone_header_of_a_pair() {
    let mut header = samples::zone_header();
    header.partner = Some(ZoneId(0x7172));
    assert_golden(&header.encode()[184..200], "fbffffffffffffff7371..");
}

#[test]
fn zone_header_of_a_volume_on_two_devices() {
    let mut header = samples::zone_header();
    header.volume.incompatible |= SPLIT;
    header.volume.metadata_zones = 0x7576;
    assert_golden(&header.encode()[192..208], "000000007675..");
}

#[test]
fn device_label() {
    let block = samples::device_label().encode();
    assert_eq!(block.len(), BLOCK_SIZE);
    assert_golden(
        &block[..4088],
        "
        5052534d504152540100000001000000101112131415161718191a1b1c1d1e1f
        70c3a4636b6368656e0000000000000000000000000000000000000000000000
        0000000000000000000000000000000000000000000000000000000000000000
        1211000022210000323100004241..
    ",
    );
    assert_golden(&block[4088..], "9f28e3e84404a79c");
}

#[test]
fn label_of_a_device_that_grew() {
    let block = samples::grown_device_label().encode();
    assert_golden(
        &block[..4088],
        "
        5052534d504152540200000001000000101112131415161718191a1b1c1d1e1f
        70c3a4636b6368656e0000000000000000000000000000000000000000000000
        0000000000000000000000000000000000000000000000000000000000000000
        1211000022210000323100004241000052510000020000001211000031310000
        6261000001..
    ",
    );
    assert_golden(&block[4088..], "3c1a1e7fa55a0456");
}

#[test]
fn label_of_a_device_in_stripe_sets_that_grew() {
    let mut label = samples::stripe_label();
    label.before = Some(0x4142);
    let block = label.encode();
    assert_golden(
        &block[..4088],
        "
        5052534d534554530200000007000000101112131415161718191a1b1c1d1e1f
        1211000022210000323100004241..
    ",
    );
    assert_golden(&block[4088..], "f9e1a64cdc366bc7");
}

#[test]
fn stripe_label() {
    let block = samples::stripe_label().encode();
    assert_eq!(block.len(), BLOCK_SIZE);
    assert_golden(
        &block[..4088],
        "
        5052534d534554530100000007000000101112131415161718191a1b1c1d1e1f
        12110000222100003231..
    ",
    );
    assert_golden(&block[4088..], "879dda2beb0fc190");
}

#[test]
fn journal_block() {
    assert_golden(
        &samples::journal_block(),
        "
        5052534d0101010010111213141516170b0a00000000000066000000000000003c00000000000000
        f9d6ffd721d6910a1100000012000000220000000000000033000000000000005500004004000001
        770000000000000002000c00000000007265636f7264206279746573..
    ",
    );
}

#[test]
fn compressed_journal_block() {
    assert_golden(
        &samples::compressed_journal_block(),
        "
        5052534d0101010010111213141516170b0a0000000000006600000000000000
        480000000000000080f3d9161fcb5ee011000000120000002200000000000000
        3300000000000000550000400400000177000000000000000200180018010000
        ef7265636f72642062797465732c200e00f2507465732c20..
    ",
    );
}

#[test]
fn footer_block() {
    assert_golden(
        &samples::footer_block(),
        "
        5052534d0201010010111213141516170b0a00000000000066000000000000003c00000000000000
        6cea3b0795500cb51100000012000000220000000000000033000000000000005500004004000001
        01000300000000000000000000000000666f6f746572206279746573..
    ",
    );
}

#[test]
fn footer() {
    assert_golden(
        &samples::footer().encode(),
        "
        7a0000000000000000000000000001010200000000000020
        01000000000000000200000000000000030000000000000005000040000000010600000000000000
        07000000000000000800000000000000080001000000000009000000000000000a00000000000000
        0b000000000000000c000000000000000d0000000e0000000f000000020000001100000001000001
        0000000000000000010000001300002001000001010000001400000003020e000d0c0b0a1d1c1b1a
        2b2a00003b3a0000000000004b4a..
    ",
    );
}

#[test]
fn footer_with_properties() {
    let mut footer = samples::footer();
    let without = footer.encode();
    footer.features.incompatible |= PROPERTIES;
    footer.properties = Some(Properties {
        zone_count: 0x0102_0304,
        uuid: *b"0123456789abcdef",
        label: "kakī".into(),
    });
    let bytes = footer.encode();
    let mut expected = without;
    expected[1] |= 4;
    let mut properties = vec![4, 3, 2, 1];
    properties.extend(b"0123456789abcdef");
    properties.extend("kakī".as_bytes());
    properties.resize(84, 0);
    expected.splice(132..132, properties);
    assert_eq!(bytes, expected);
    assert_eq!(Footer::decode(&bytes), Ok(footer));
    assert!(Footer::decode(&bytes[..200]).is_err());
}

#[test]
fn footer_with_deltas() {
    let mut footer = samples::footer();
    let mut expected = footer.encode();
    footer.features.incompatible |= DELTAS;
    footer.deltas = 0x0102;
    expected[1] |= 16;
    expected.splice(132..132, [2, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(footer.encode(), expected);
    assert_eq!(Footer::decode(&expected), Ok(footer));
}

/// The delta of block 7: 5 where there was 3.
#[test]
fn record_with_a_delta() {
    let base = [3; BLOCK_SIZE];
    let mut new = base;
    new[9] = 5;
    let extent = Extent::Compressed(delta::between(&base, &new).unwrap());
    let op = Op::Map {
        ino: Ino(20),
        block: delta::place_of(7),
        extent,
    };
    let mut bytes = Vec::new();
    op.encode(&mut bytes);
    assert_golden(
        &bytes,
        "
        031487808080808080042704624836f214000100140609000f0200ffffffffff
        ffffffffffffffffffffe460..
    ",
    );
}

#[test]
fn zone_header_with_properties() {
    let mut header = samples::zone_header();
    let without = header.encode();
    header.volume = header.volume.with(Properties {
        zone_count: 0x0102_0304,
        uuid: *b"0123456789abcdef",
        label: "kakī".into(),
    });
    let block = header.encode();
    let mut expected = without;
    expected[64..128].fill(0);
    expected[64..69].copy_from_slice("kakī".as_bytes());
    expected[129] |= 4;
    expected[168..172].copy_from_slice(&[4, 3, 2, 1]);
    expected[200..216].copy_from_slice(b"0123456789abcdef");
    assert_eq!(block[..4088], expected[..4088]);
    assert_eq!(ZoneHeader::decode(&block), Ok(header));
}

#[test]
fn footer_with_counts() {
    let mut footer = samples::footer();
    let without = footer.encode();
    footer.counted = Lsn(0x66);
    let count = |blocks, short| Valid { blocks, short };
    footer.counts = vec![
        (ZoneId(0), count(0x45, 0)),
        (ZoneId(3), count(0x1234, 7)),
        (ZoneId(4), count(0, 0)),
    ];
    let bytes = footer.encode();
    let (front, counts) = bytes.split_at(without.len());
    assert_eq!(front, without);
    assert_golden(
        counts,
        "
        660000000000000003000000018a0103e9480701..
    ",
    );
    assert_eq!(Footer::decode(&bytes), Ok(footer));
}

#[test]
fn mat_chunk() {
    assert_eq!(MatEntry::PER_CHUNK, 337);
    assert_golden(
        &samples::mat_chunk(),
        "
        5052534d030101001011121314151617880000000000000099000000000000002400000000000000
        14219dbfd70a01a7070000100000000101000000070000200000000105..
    ",
    );
}

#[test]
fn zit_chunk() {
    assert_golden(
        &samples::zit_chunk(),
        "
        5052534d040101001011121314151617880000000000000099000000000000004000000000000000
        94ffec1a5d9a8dce03020e000d0c0b0a1d1c1b1a2b2a00003b3a0000000000004b4a..
    ",
    );
}

#[test]
fn page() {
    let page = samples::page();
    let (front, back) = page.split_at(4 * BLOCK_SIZE);
    assert_golden(
        front,
        "
        5052534d050105001011121314151617880000000000000099000000000000000840000000000000
        2de51b038bc092e8000000000040000000000300f63f000088000000000000009900000000000000
        0000000000000000080706050403020101000000000000000000000000fb3f050008070605040302
        0104121100000000000000000000fb3f0000090706050403020105282726252423222134333231f6
        3f05..
    ",
    );
    assert_golden(
        &back[..64],
        "
        00000000000000000000000000000000000000000000000000000000000000000000000000000000
        00000000000074686972646669727374..
    ",
    );
}

#[test]
fn summary() {
    assert_golden(
        &samples::summary(),
        "
        5052534d0601010010111213141516170b0a00000000000028000000000000004b00000000000000
        641f466ee61d836307000000050000800dac0201e0c50802040302010807060504ad02e3c5080c0b
        0a0906ac02e2c508febc15141312110b0500800220bc9504242322210300900310bd1534333231
        f1a2041f..
    ",
    );
}

#[test]
fn keys() {
    let [inode, _, extent] = samples::keys();
    assert_golden(&inode.to_bytes(), "080706050403020101..");
    assert_golden(
        &extent.to_bytes(),
        "090706050403020105282726252423222134333231",
    );
}

#[test]
fn inode() {
    assert_golden(
        &samples::inode().encode(),
        "
        a4810000121100002221000032310000464544434241000056555453525100006261000000000000
        ffffffffffffffff01030201feffffffffffffff02030201fdffffffffffffff03030201fcffffff
        ffffffff040302017271000000000000040500008281..
    ",
    );
}

#[test]
fn quota() {
    let inode = Inode {
        project: 0x9192_9394,
        ..samples::inode()
    };
    assert_golden(
        &inode.encode(),
        "
        a4810000121100002221000032310000464544434241000056555453525100006261000000000000
        ffffffffffffffff01030201feffffffffffffff02030201fdffffffffffffff03030201fcffffff
        ffffffff040302017271000000000000040500008281000094939291
    ",
    );
    assert_golden(
        &samples::owner().key().to_bytes(),
        "00000000000000000c0403020103..",
    );
    assert_golden(
        &samples::quota().encode(),
        "12110000000000002221000000000000323100000000000042410000000000005251000000000000626100000000000072710000000000008281000000000000feffffffffffffff",
    );
    assert_golden(&QuotaState::KEY.to_bytes(), "00000000000000000c..");
    assert_golden(
        &samples::quota_state().encode(),
        "01000000323100002423222100000000010302010113121102030201021312110303020103131211",
    );
}

#[test]
fn names() {
    let entry = DirEntry {
        ino: Ino(0x0102_0304),
        file_type: 8,
        name: b"name",
    };
    assert_golden(&entry.encode(), "0403020100000000086e616d65");
    let xattr = Xattr {
        name: b"user.a",
        value: XattrValue::Inline(b"value"),
    };
    assert_golden(&xattr.encode(), "06757365722e6176616c7565");
}

#[test]
fn values_in_pieces() {
    let mut value = vec![0x61; 3998];
    value.extend_from_slice(b"xyz");
    let pieces = Pieces::new(0x0102_0304, &value).unwrap();
    let xattr = Xattr {
        name: b"user.a",
        value: XattrValue::Pieces(pieces),
    };
    assert_golden(
        &xattr.encode(),
        "0006757365722e610403020100000000a10f0000dd5e4a14",
    );
    let items: Vec<_> = cut(&value).collect();
    assert_eq!(items.len(), 2);
    assert_golden(&items[0], &format!("00{}7879", "61".repeat(3998)));
    assert_golden(&items[1], "017a");
    let second = piece_key(Ino(7), 0x0102_0304, 1);
    assert_golden(&second.to_bytes(), "0700000000000000028160402000000080..");
    assert_eq!(slot_of(&second), Some(0x0102_0304));
}

#[test]
fn extents() {
    let [
        frame,
        inline,
        reserved,
        compressed,
        packed,
        part,
        shared,
        near,
        of_frame,
    ] = samples::extents();
    assert_golden(&frame.encode(), "0103000020000000010403020108070605");
    assert_golden(&inline.encode(), "02696e6c696e65");
    assert_golden(&reserved.encode(), "0304030201");
    assert_golden(&compressed.encode(), "04636f6d70726573736564");
    assert_golden(&packed.encode(), "050300002000000001fe01bc0a000004030201");
    assert_golden(
        &part.encode(),
        "060300002000000001fe02200304bc0a010004030201",
    );
    assert_golden(&shared.encode(), "0706050403020100000001");
    assert_golden(
        &near.encode(),
        "060300002000000001fe03200304bc0a00000403020108070605040302001f",
    );
    assert_golden(&of_frame.encode(), "09060504030201000004200386..");
}

#[test]
fn references() {
    let (key, references) = samples::references();
    assert_golden(&key.to_bytes(), "02000000000000000824232221..");
    assert_golden(&references.encode(), "0403020114131211");
}

#[test]
fn operations() {
    let goldens = [
        "01888e98a8c0e0808101010000000000000000000576616c7565",
        "
        07ac02a483029222a242b262c68a919aa4a810d6aad19aa5aa14e2c20100f2e2010482830208050101030201
        030203020105030302010704030201
        ",
        "07ad02a483029222a242b262c68a919aa4a810d6aad19aa5aa14e2c20100f2e201048283020301010302010704030201",
        "
        07ae02a483029222a242b262c68a919aa4a810d6aad19aa5aa14e2c20100f2e2
        0104828302180592a3020101030201030203020105030302010704030201
    ",
        "02888e98a8c0e0808101041211..",
        "03ac02f0a204110103000020000000010403020108070605",
        "0305000702696e6c696e65",
        "0305010b04636f6d70726573736564",
        "03050616060300002000000001fe02200304bc0a010004030201",
        "04ac0201ffffffffffffffffff01",
        "06ac0209c80108617070656e646564",
        "09ac02f0a204ad0203c8018020",
        "08908004",
        "
        05ac021ff4030302030201050303020101010302018081..
    ",
    ];
    for (op, golden) in samples::ops().iter().zip(goldens) {
        let mut bytes = Vec::new();
        op.encode(&mut bytes);
        assert_golden(&bytes, golden);
    }
}
