//! Damage to a volume that knows its structures: fields take hostile values, and what is changed
//! is sealed again, so that it is believed.

use persimmon_format::envelope::{self, HEADER_LEN, Kind};
use persimmon_format::page;
use persimmon_format::{BLOCK_SIZE, ZoneId, checksum};
use persimmon_sim::SimDevice;

use crate::input::Input;
use crate::sample::{Place, Sample, What, buffer, key, read, unpack};

/// Changes made to one structure at most.
const EDITS_MAX: usize = 6;

const WHATS: [What; 8] = [
    What::Header,
    What::Sealed(Kind::Journal),
    What::Sealed(Kind::Footer),
    What::Sealed(Kind::MatChunk),
    What::Sealed(Kind::ZitChunk),
    What::Sealed(Kind::Page),
    What::Sealed(Kind::Summary),
    What::Data,
];

/// Does one piece of damage.
pub fn damage(device: &SimDevice, sample: &Sample, input: &mut Input<'_>) {
    let what = *input.pick(&WHATS);
    let dead_too = input.rarely(8);
    let places: Vec<&Place> = sample.of(what).filter(|p| p.live || dead_too).collect();
    if places.is_empty() {
        return;
    }
    // The newest are those that are still in use, mostly.
    let place = places[places.len() - 1 - input.below(places.len())];
    let (zone, block) = (place.addr.zone(), place.addr.block());
    match input.u8() % 16 {
        0 => {
            let (byte, mask) = (input.below(BLOCK_SIZE), input.u8());
            device.corrupt(zone, block, byte, mask);
        }
        1 => put(device, place, &vec![0; place.blocks as usize * BLOCK_SIZE]),
        2 => {
            let other = input.pick(&sample.places);
            let size = place.blocks as usize * BLOCK_SIZE;
            let mut bytes = read(device, other);
            bytes.resize(size, 0);
            put(device, place, &bytes);
        }
        3 if input.rarely(4) => device.set_offline(ZoneId(input.below(24) as u32)),
        4 if input.rarely(4) => device.set_read_only(ZoneId(input.below(24) as u32)),
        _ => {
            let mut bytes = read(device, place);
            edit(&mut bytes, input);
            put(device, place, &bytes);
        }
    }
}

fn put(device: &SimDevice, place: &Place, bytes: &[u8]) {
    device.replace(place.addr.zone(), place.addr.block(), buffer(bytes));
}

/// Changes a structure, whatever it is, and seals it.
pub fn edit(bytes: &mut [u8], input: &mut Input<'_>) {
    let Ok(fields) = envelope::peek(bytes) else {
        if bytes.starts_with(&persimmon_format::zone_header::MAGIC) {
            // The fields end where the zeros begin.
            overwrite(&mut bytes[8..192], input);
            seal_header(bytes);
        } else {
            overwrite(bytes, input);
        }
        return;
    };
    let used = (fields.payload_len as usize).min(bytes.len() - HEADER_LEN);
    let mut len = used;
    if fields.kind == Kind::Page && !input.rarely(8) {
        len = edit_page(&mut bytes[HEADER_LEN..], used, input).unwrap_or(used);
    } else {
        overwrite(&mut bytes[HEADER_LEN..HEADER_LEN + used], input);
        if input.rarely(16) {
            len = input.near(used as u64) as usize;
        }
    }
    let (mut owner, mut sequence) = (fields.owner, fields.sequence);
    if input.rarely(16) {
        owner = input.near(owner);
        sequence = input.near(sequence);
    }
    envelope::seal(bytes, &key(), fields.kind, owner, sequence, len);
}

/// Seals a zone header again.
pub fn seal_header(block: &mut [u8]) {
    let sum = checksum::plain(&block[..BLOCK_SIZE - 8]);
    block[BLOCK_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
}

/// Puts hostile numbers into some places.
pub fn overwrite(bytes: &mut [u8], input: &mut Input<'_>) {
    for _ in 0..=input.below(EDITS_MAX) {
        if bytes.is_empty() {
            return;
        }
        let at = match input.u8() % 4 {
            // Most structures say first what they are.
            0 => input.below(bytes.len().min(64)),
            1 => input.below(bytes.len()) & !7,
            _ => input.below(bytes.len()),
        };
        let width = 1 << input.below(4);
        let number = input.number().to_le_bytes();
        for (to, from) in bytes[at..].iter_mut().zip(&number[..width]) {
            *to = *from;
        }
    }
}

/// Changes the page inside a page's payload. `None`, and the payload is as it was, if the changed
/// page has no room in the page's blocks.
fn edit_page(payload: &mut [u8], used: usize, input: &mut Input<'_>) -> Option<usize> {
    let packed = if input.u8().is_multiple_of(2) {
        edit_columns(&payload[..used], input)?
    } else {
        let mut image = unpack(&payload[..used])?;
        edit_image(&mut image, input);
        page::pack(&image)
    };
    let len = packed.len();
    if len > payload.len() {
        return None;
    }
    payload.fill(0);
    payload[..len].copy_from_slice(&packed);
    Some(len)
}

/// The payload of a page, changed in its columns: what they give is often no page any more.
fn edit_columns(payload: &[u8], input: &mut Input<'_>) -> Option<Vec<u8>> {
    let Ok((page::Compression::Columns, stored)) = page::split(payload) else {
        return None;
    };
    let mut columns = lz4_flex::block::decompress(stored, 2 * page::PAGE_SIZE).ok()?;
    overwrite(&mut columns, input);
    Some(with_columns(&columns))
}

/// The payload of a page that has these bytes for its columns.
pub fn with_columns(columns: &[u8]) -> Vec<u8> {
    let stored = lz4_flex::block::compress(columns);
    let mut payload = vec![2, 0, 0, 0];
    payload.extend((stored.len() as u32).to_le_bytes());
    payload.extend(stored);
    payload
}

/// Changes the image of a page so that it mostly stays a page: values more than the frame.
pub fn edit_image(image: &mut [u8], input: &mut Input<'_>) {
    let count = usize::from(u16::from_le_bytes([image[2], image[3]]));
    let slots = persimmon_format::page::HEADER_LEN;
    let slots_end = (slots + count * persimmon_format::page::SLOT_LEN).min(image.len());
    let heap = usize::from(u16::from_le_bytes([image[4], image[5]])).min(image.len());
    match input.u8() % 8 {
        0 => overwrite(&mut image[..slots], input),
        1 => overwrite(&mut image[slots..slots_end], input),
        2 if count > 0 => {
            // The key of the last slot can grow and stay in order.
            let at = slots_end - persimmon_format::page::SLOT_LEN;
            overwrite(&mut image[at..at + 21], input);
        }
        _ => overwrite(&mut image[heap..], input),
    }
}
