//! Decoders of single structures. What decodes is encoded and decoded again, and must be the same.

use persimmon_format::compression::{Codec, Compression};
use persimmon_format::dictionary::Dictionary;
use persimmon_format::envelope::{self, BLOCK_PAYLOAD, HEADER_LEN, Kind};
use persimmon_format::extent::Extent;
use persimmon_format::footer::Footer;
use persimmon_format::inode::Inode;
use persimmon_format::log::LogBlock;
use persimmon_format::name::DirEntry;
use persimmon_format::packed;
use persimmon_format::record::Op;
use persimmon_format::stripe_label::{self, StripeLabel};
use persimmon_format::summary::Summary;
use persimmon_format::table::{MatEntry, ZitEntry};
use persimmon_format::xattr::{Piece, Xattr, piece_key};
use persimmon_format::zone_header::ZoneHeader;
use persimmon_format::{BLOCK_SIZE, Ino, Key, ZoneId};

use crate::edit::{overwrite, seal_header};
use crate::input::Input;
use crate::sample::{Sample, What, key};

/// A block of these bytes, cut or filled up with zeros.
fn block_of(bytes: &[u8]) -> Vec<u8> {
    let mut block = bytes.to_vec();
    block.resize(BLOCK_SIZE, 0);
    block
}

/// The payloads of structures of a kind, as seeds. Journals and summaries have many: some do.
fn payload_seeds(kind: Kind, prefix: &[u8]) -> Vec<Vec<u8>> {
    let payloads = Sample::proving().payloads(kind);
    let step = payloads.len().div_ceil(12).max(1);
    payloads
        .into_iter()
        .step_by(step)
        .map(|payload| [prefix, &payload].concat())
        .collect()
}

/// Seals a payload as a block. The first bytes of the input choose its owner and sequence.
fn sealed(kind: Kind, input: Input<'_>, owner: u64, sequence: u64) -> Vec<u8> {
    let payload = input.rest();
    let len = payload.len().min(BLOCK_PAYLOAD);
    let mut block = vec![0; BLOCK_SIZE];
    block[HEADER_LEN..HEADER_LEN + len].copy_from_slice(&payload[..len]);
    envelope::seal(&mut block, &key(), kind, owner, sequence, len);
    block
}

/// The label of a device in stripe sets, raw and under a good checksum, which is where that of a header is.
fn stripe_label(bytes: &[u8]) {
    let _ = StripeLabel::decode(bytes);
    let mut block = block_of(bytes);
    block[..8].copy_from_slice(&stripe_label::MAGIC);
    block[8..12].copy_from_slice(&stripe_label::VERSION.to_le_bytes());
    seal_header(&mut block);
    if let Ok(label) = StripeLabel::decode(&block) {
        assert_eq!(StripeLabel::decode(&label.encode()), Ok(label));
    }
}

pub fn zone_header(bytes: &[u8]) {
    stripe_label(bytes);
    let _ = ZoneHeader::decode(bytes);
    let mut input = Input::new(bytes);
    let numbers = input.bytes(24);
    let mut block = block_of(input.rest());
    overwrite(&mut block[8..192], &mut Input::new(numbers));
    seal_header(&mut block);
    if let Ok(header) = ZoneHeader::decode(&block) {
        let _ = header.volume.key();
        let again = ZoneHeader::decode(&header.encode()).unwrap();
        assert_eq!(again.volume.uuid, header.volume.uuid);
        assert_eq!((again.zone, again.role), (header.zone, header.role));
        assert_eq!(again.sequence, header.sequence);
    }
}

pub fn zone_header_seeds() -> Vec<Vec<u8>> {
    let sample = Sample::proving();
    let headers = sample.of(What::Header).take(4);
    headers
        .map(|place| [&[0; 24][..], &sample.bytes(place)[..192]].concat())
        .collect()
}

/// What an envelope and a log block make of raw bytes, and of a payload under a good checksum.
pub fn log_block(bytes: &[u8]) {
    let _ = envelope::peek(bytes);
    let _ = LogBlock::decode(bytes, &key(), 7);
    let mut input = Input::new(bytes);
    let kind = *input.pick(&[Kind::Journal, Kind::Footer, Kind::Page]);
    let sequence = input.number();
    let block = sealed(kind, input, 7, sequence);
    if let Ok(decoded) = LogBlock::decode(&block, &key(), 7) {
        let mut again = vec![0; BLOCK_SIZE];
        decoded.encode_into(&mut again, &key(), 7);
        assert_eq!(LogBlock::decode(&again, &key(), 7), Ok(decoded));
    }
}

pub fn log_block_seeds() -> Vec<Vec<u8>> {
    let mut seeds = payload_seeds(Kind::Journal, &[0, 1, 9]);
    seeds.extend(payload_seeds(Kind::Footer, &[1, 1, 9]));
    seeds
}

pub fn footer(bytes: &[u8]) {
    if let Ok(footer) = Footer::decode(bytes) {
        assert_eq!(Footer::decode(&footer.encode()), Ok(footer));
    }
}

pub fn footer_seeds() -> Vec<Vec<u8>> {
    // Footers of this size have one part.
    let payloads = Sample::proving().payloads(Kind::Footer);
    payloads
        .into_iter()
        .map(|part| part[48..].to_vec())
        .collect()
}

pub fn table(bytes: &[u8]) {
    if let Ok(entries) = MatEntry::decode_chunk(bytes) {
        let mut encoded = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut encoded));
        assert_eq!(MatEntry::decode_chunk(&encoded), Ok(entries));
    }
    if let Ok(entries) = ZitEntry::decode_chunk(bytes) {
        let mut encoded = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut encoded));
        assert_eq!(ZitEntry::decode_chunk(&encoded), Ok(entries));
    }
}

pub fn table_seeds() -> Vec<Vec<u8>> {
    let mut seeds = payload_seeds(Kind::MatChunk, &[]);
    seeds.extend(payload_seeds(Kind::ZitChunk, &[]));
    seeds
}

pub fn summary(bytes: &[u8]) {
    let _ = Summary::decode(bytes, &key(), 7, 40);
    let mut input = Input::new(bytes);
    let place = input.u16().into();
    let block = sealed(Kind::Summary, input, 7, u64::from(place));
    if let Ok(summary) = Summary::decode(&block, &key(), 7, place) {
        assert!(summary.previous < place);
        for entry in &summary.entries {
            assert!(entry.zone_block as usize + entry.crcs.len() <= place as usize);
        }
        for entry in &summary.packed {
            let packed = entry.packed(ZoneId(0));
            assert!(entry.zone_block + packed.span() <= place);
        }
    }
}

pub fn summary_seeds() -> Vec<Vec<u8>> {
    payload_seeds(Kind::Summary, &90u16.to_le_bytes())
}

/// The values of all kinds of keys. An empty name is no name, but an inode may be anything.
pub fn value(bytes: &[u8]) {
    if let Ok(inode) = Inode::decode(bytes) {
        let _ = (
            inode.file_type(),
            inode.is_file(),
            inode.is_dir(),
            inode.is_symlink(),
        );
        assert_eq!(Inode::decode(&inode.encode()), Ok(inode));
    }
    if let Ok(entry) = DirEntry::decode(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    if let Ok(xattr) = Xattr::decode(bytes) {
        assert_eq!(xattr.encode(), bytes);
    }
    let number = bytes.first().map_or(0, |number| number % 32);
    let key = piece_key(Ino(5), 7, number);
    if let Ok(piece) = Piece::decode(&key, bytes) {
        assert_eq!(piece.encode(), bytes);
    }
    if let Some(key) = bytes.first_chunk() {
        assert_eq!(&Key::from_bytes(key).to_bytes(), key);
    }
    decompress(bytes);
    let _ = Extent::peek_blocks(bytes);
    let Ok(extent) = Extent::decode(bytes) else {
        return;
    };
    assert_eq!(extent.encode(), bytes);
    assert_eq!(Extent::peek_blocks(bytes), Ok(extent.blocks()));
    match &extent {
        Extent::Compressed(bytes) => drop(packed::decompress(bytes)),
        Extent::Packed(packed) => {
            let (len, blocks) = (packed.frame.len as usize, usize::from(packed.frame.blocks));
            assert!(len < blocks * BLOCK_SIZE && blocks <= packed::COMPRESSED_BLOCKS_MAX);
            assert!(packed.span() as usize <= blocks + 1);
            assert!(packed.skip + packed.blocks <= packed.frame.blocks && packed.blocks > 0);
            let whole = packed.stored(blocks as u64);
            assert_eq!(whole.units, packed.frame.pack_units());
            assert!(packed.stored(packed.blocks.into()).units <= whole.units);
            let named = packed.dictionary().map_or(0, |named| named.bytes());
            let _ = packed.content(bytes, &vec![0; named]);
        }
        _ => {}
    }
    let mut input = Input::new(bytes);
    for _ in 0..3 {
        let (skip, take) = (input.number(), input.number());
        let _ = extent.fits_at(skip);
        let part = extent.part(skip, take);
        assert!(part.blocks() <= extent.blocks() && part.sectors() <= extent.sectors());
    }
}

/// The bytes of a frame: its first byte chooses how it was compressed, and how many blocks it gives.
fn decompress(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let dictionary = Dictionary { at: 256, blocks: 2 };
    let codecs = [Codec::Lz4, Codec::Zstd, Codec::ZstdAfter(dictionary)];
    let codec = *input.pick(&codecs);
    let blocks = 1 + input.below(packed::COMPRESSED_BLOCKS_MAX);
    let named = vec![b'd'; codec.dictionary().map_or(0, |named| named.bytes())];
    if let Some(content) = codec.decompress(input.rest(), blocks, &named) {
        assert_eq!(content.len(), blocks * BLOCK_SIZE);
    }
}

pub fn value_seeds() -> Vec<Vec<u8>> {
    let images = Sample::proving().page_images();
    let mut values: Vec<Vec<u8>> = images
        .iter()
        .filter_map(|image| persimmon_format::page::PageView::new(image).ok())
        .filter(|page| page.level() == 0)
        .flat_map(|page| {
            page.items()
                .map(|(_, value)| value.to_vec())
                .collect::<Vec<_>>()
        })
        .collect();
    values.sort_by_key(|value| (value.len(), value.clone()));
    values.dedup();
    let step = values.len().div_ceil(200).max(1);
    let mut seeds: Vec<Vec<u8>> = values.into_iter().step_by(step).collect();
    // And compressed frames.
    for (first, compression) in (0u8..).zip([Compression::Lz4, Compression::Zstd(3)]) {
        for blocks in [1u8, 3] {
            let content = b"some content. ".repeat(300 * usize::from(blocks));
            let content = &content[..usize::from(blocks) * BLOCK_SIZE];
            let compressed = compression.compress(content, BLOCK_SIZE);
            seeds.extend(compressed.map(|(_, bytes)| [&[first, blocks - 1], &bytes[..]].concat()));
        }
    }
    seeds
}

pub fn record(bytes: &[u8]) {
    let Ok(ops) = Op::decode_all(bytes) else {
        return;
    };
    let mut encoded = Vec::new();
    ops.iter().for_each(|op| op.encode(&mut encoded));
    assert_eq!(Op::decode_all(&encoded), Ok(ops));
}

pub fn record_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for payload in Sample::proving().payloads(Kind::Journal) {
        let lead = usize::from(u16::from_le_bytes([payload[40], payload[41]]));
        let mut bytes = &payload[48 + lead..];
        while let Some((len, rest)) = bytes.split_first_chunk::<4>()
            && let Some((record, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)
        {
            if seeds.len() % 5 == 0 || record.len() > 300 {
                seeds.push(record.to_vec());
            }
            bytes = rest;
        }
    }
    seeds.truncate(150);
    seeds
}
