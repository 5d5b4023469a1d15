//! The items of a page column by column, which compresses to half of what the image does: keys that follow each other
//! become zeros, and of the addresses beside each other only the lowest bytes differ.
//!
//! Level (u8), page id (u64), sequence (u64), items (u16). Then, for all items: what the ino is more than
//! that of the item before (varint; the first one's is whole); the kinds (u8); the items (varint:
//! what it is more than the item before if that has the same ino and kind, else whole); the
//! versions (varint); the lengths of the values (varint). Then the first byte of each value that has one, the second
//! of each that has two, and so on to the [`HEAD_LEN`]th; then what is left of each value.

use super::{HEADER_LEN, PAGE_SIZE, PageView, SEQUENCE_OFFSET, SLOT_LEN};
use crate::codec::{Put, Reader};
use crate::{Ino, Key, KeyKind, PageId, Result, VersionId};

/// Bytes of each value that stand in columns: a tag and an address.
pub(super) const HEAD_LEN: usize = 9;
/// Bytes that the columns of a page take at most.
pub(super) const LEN_MAX: usize = PAGE_SIZE + (PAGE_SIZE / SLOT_LEN) * (ITEM_LEN_MAX - SLOT_LEN);
/// What an item takes at most, but for its value: numbers of 64 and 32 bits, a kind and a length.
const ITEM_LEN_MAX: usize = 10 + 1 + 10 + 5 + 2;
const WHAT: &str = "columns of a metadata page";

/// The columns of a page's image; of one that is none there are none.
pub(super) fn from_image(image: &[u8; PAGE_SIZE]) -> Option<Vec<u8>> {
    let page = PageView::new(image).ok()?;
    let mut out = Vec::with_capacity(LEN_MAX);
    out.put_u8(page.level());
    out.put_u64(page.id().0);
    out.put_u64(page.sequence());
    out.put_u16(page.count() as u16);
    let keys = || page.items().map(|(key, _)| key);
    let values = || page.items().map(|(_, value)| value);

    let mut before = Ino(0);
    for key in keys() {
        out.put_varint(key.ino.0.wrapping_sub(before.0));
        before = key.ino;
    }
    out.extend(keys().map(|key| key.kind.0));
    let mut before = None;
    for key in keys() {
        out.put_varint(key.item.wrapping_sub(base(before, key.ino, key.kind)));
        before = Some(key);
    }
    keys().for_each(|key| out.put_varint(key.version.0.into()));
    values().for_each(|value| out.put_varint(value.len() as u64));
    for at in 0..HEAD_LEN {
        out.extend(values().filter_map(|value| value.get(at)));
    }
    values().for_each(|value| out.put(value.get(HEAD_LEN..).unwrap_or(&[])));
    Some(out)
}

/// Makes the image again. Whether it is a page's is for its reader to check: here it is only
/// certain that the items fit.
pub(super) fn to_image(columns: &[u8], image: &mut [u8; PAGE_SIZE]) -> Result<()> {
    let mut r = Reader::new(columns, WHAT);
    let level = r.u8()?;
    let id = PageId(r.u64()?);
    let sequence = r.u64()?;
    let count = usize::from(r.u16()?);
    let slots_end = HEADER_LEN + count * SLOT_LEN;
    if slots_end > PAGE_SIZE {
        return Err(r.bad("count", count as u64));
    }
    let keys = read_keys(&mut r, count)?;
    let mut places = Vec::with_capacity(count);
    let mut heap = PAGE_SIZE;
    for _ in 0..count {
        let len = r.varint()?;
        heap = usize::try_from(len)
            .ok()
            .and_then(|len| heap.checked_sub(len))
            .filter(|heap| *heap >= slots_end)
            .ok_or_else(|| r.bad("length of a value", len))?;
        places.push((heap, len as usize));
    }

    image.fill(0);
    image[0] = level;
    image[2..4].copy_from_slice(&(count as u16).to_le_bytes());
    image[4..6].copy_from_slice(&(heap as u16).to_le_bytes());
    image[8..SEQUENCE_OFFSET].copy_from_slice(&id.0.to_le_bytes());
    image[SEQUENCE_OFFSET..SEQUENCE_OFFSET + 8].copy_from_slice(&sequence.to_le_bytes());
    let (head, _) = image.split_at_mut(slots_end);
    let (slots, _) = head[HEADER_LEN..].as_chunks_mut::<SLOT_LEN>();
    for ((slot, key), (place, len)) in slots.iter_mut().zip(&keys).zip(&places) {
        slot[..Key::LEN].copy_from_slice(&key.to_bytes());
        slot[Key::LEN..Key::LEN + 2].copy_from_slice(&(*place as u16).to_le_bytes());
        slot[Key::LEN + 2..].copy_from_slice(&(*len as u16).to_le_bytes());
    }
    for at in 0..HEAD_LEN {
        for (place, _) in places.iter().filter(|(_, len)| *len > at) {
            image[place + at] = r.u8()?;
        }
    }
    for (place, len) in places.iter().filter(|(_, len)| *len > HEAD_LEN) {
        image[place + HEAD_LEN..place + len].copy_from_slice(r.bytes(len - HEAD_LEN)?);
    }
    r.end()
}

fn read_keys(r: &mut Reader<'_>, count: usize) -> Result<Vec<Key>> {
    let mut keys = Vec::with_capacity(count);
    let mut before = Ino(0);
    for _ in 0..count {
        before = Ino(before.0.wrapping_add(r.varint()?));
        keys.push(Key::new(before, KeyKind(0), 0));
    }
    for key in &mut keys {
        key.kind = KeyKind(r.u8()?);
    }
    let mut before = None;
    for key in &mut keys {
        key.item = r.varint()?.wrapping_add(base(before, key.ino, key.kind));
        before = Some(*key);
    }
    for key in &mut keys {
        key.version = VersionId(r.varint_u32("version")?);
    }
    Ok(keys)
}

/// What the item of a key of this inode and kind is told from, behind this key.
fn base(before: Option<Key>, ino: Ino, kind: KeyKind) -> u64 {
    match before {
        Some(before) if (before.ino, before.kind) == (ino, kind) => before.item,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page as it lies in `FORMAT.md`, with these items.
    fn image(items: &[(Key, &[u8])]) -> [u8; PAGE_SIZE] {
        let mut image = [0; PAGE_SIZE];
        let mut heap = PAGE_SIZE;
        image[0] = 0;
        image[2] = items.len() as u8;
        image[8] = 0x88;
        image[16] = 0x99;
        for (index, (key, value)) in items.iter().enumerate() {
            heap -= value.len();
            image[heap..heap + value.len()].copy_from_slice(value);
            let slot = HEADER_LEN + index * SLOT_LEN;
            image[slot..slot + Key::LEN].copy_from_slice(&key.to_bytes());
            image[slot + 21..slot + 23].copy_from_slice(&(heap as u16).to_le_bytes());
            image[slot + 23] = value.len() as u8;
        }
        image[4..6].copy_from_slice(&(heap as u16).to_le_bytes());
        image
    }

    #[test]
    fn golden() {
        let items: [(Key, &[u8]); 4] = [
            (Key::inode(Ino(300)), b"inode"),
            (Key::extent(Ino(300), 1000), b"first extent"),
            (Key::extent(Ino(300), 1001), b"another one"),
            (Key::extent(Ino(302), 7), b""),
        ];
        let image = image(&items);
        let columns = from_image(&image).unwrap();
        let mut expected = vec![
            0, 0x88, 0, 0, 0, 0, 0, 0, 0, 0x99, 0, 0, 0, 0, 0, 0, 0, 4, 0,
        ];
        expected.extend([0xac, 2, 0, 0, 2]); // inos
        expected.extend([1, 5, 5, 5]); // kinds
        expected.extend([0, 0xe8, 7, 1, 7]); // items
        expected.extend([0; 4]); // versions
        expected.extend([5, 12, 11, 0]); // lengths
        expected.extend(b"ifaninorodsteth eerx to"); // heads
        expected.extend(b"entne"); // tails
        assert_eq!(columns, expected);
        let mut again = [7; PAGE_SIZE];
        to_image(&columns, &mut again).unwrap();
        assert!(again == image);
    }

    /// No page has longer columns than a reader has room for.
    #[test]
    fn the_longest_columns_have_room() {
        let keys: Vec<Key> = (0..(PAGE_SIZE - HEADER_LEN) as u64 / SLOT_LEN as u64)
            .map(|n| Key {
                ino: Ino(u64::MAX / 700 * n),
                kind: KeyKind(n as u8),
                item: u64::MAX - n,
                version: VersionId(u32::MAX),
            })
            .collect();
        let items: Vec<(Key, &[u8])> = keys.iter().map(|key| (*key, &b""[..])).collect();
        let mut image = image(&items);
        image[2..4].copy_from_slice(&(items.len() as u16).to_le_bytes());
        let columns = from_image(&image).unwrap();
        assert!((PAGE_SIZE - 64..=LEN_MAX).contains(&columns.len()));
        assert!(super::super::pack(&image).len() <= PAGE_SIZE + super::super::PREFIX_LEN);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut image = [0; PAGE_SIZE];
        let head = [0; 17];
        let mut refused = |rest: &[u8]| {
            let columns = [&head[..], rest].concat();
            assert!(to_image(&columns, &mut image).is_err(), "{rest:?}");
        };
        refused(&[]);
        refused(&[0xff, 0xff]);
        refused(&[1, 0, 5, 5, 0, 0]); // no length
        refused(&[1, 0, 5, 5, 0, 0, 3, b'a', b'b']); // two bytes of three
        refused(&[1, 0, 5, 5, 0, 0, 1, b'a', b'b']); // one too many
        refused(&[1, 0, 5, 5, 0, 0, 0x80, 0x80, 1]); // longer than a page
        refused(&[
            1, 0, 5, 5, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
        ]);
    }
}
