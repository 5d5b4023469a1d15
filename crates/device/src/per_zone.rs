//! Something for every zone, in memory that grows with the zones that were used rather than with those there are.
//!
//! A drive of a petabyte has millions of zones, and most of a new one's are all alike: never written, nothing
//! valid, nobody's. Both collections keep [`CHUNK`] zones together and make a record for each of them only when one
//! differs from the others. A look-up is a shift and one branch more than that of an array.

use std::sync::OnceLock;

/// Zones of a chunk: few enough that a zone in use among empty ones costs little, many enough that a chunk of
/// empty ones is next to nothing.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
enum Chunk<T> {
    /// All its zones have this.
    Same(T),
    Each(Box<[T]>),
}

/// A value for each zone, for one thread at a time.
#[derive(Clone, Debug, Default)]
pub struct PerZone<T> {
    zones: usize,
    chunks: Box<[Chunk<T>]>,
}

impl<T: Copy + PartialEq> PerZone<T> {
    /// For so many zones, all with this value.
    #[must_use]
    pub fn filled(zones: usize, value: T) -> PerZone<T> {
        PerZone {
            zones,
            chunks: vec![Chunk::Same(value); zones.div_ceil(CHUNK)].into(),
        }
    }

    /// How many zones there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.zones
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zones == 0
    }

    /// The value of a zone; none past the last.
    #[must_use]
    pub fn get(&self, zone: usize) -> Option<&T> {
        match self.chunks.get(zone / CHUNK)? {
            Chunk::Each(each) => each.get(zone % CHUNK),
            Chunk::Same(value) => (zone < self.zones).then_some(value),
        }
    }

    /// The same, to be changed: from here on each zone of the chunk has a value of its own.
    pub fn get_mut(&mut self, zone: usize) -> Option<&mut T> {
        let zones = self.zones;
        let chunk = self.chunks.get_mut(zone / CHUNK).filter(|_| zone < zones)?;
        if let Chunk::Same(value) = chunk {
            let first = zone - zone % CHUNK;
            let each = vec![*value; CHUNK.min(zones - first)];
            *chunk = Chunk::Each(each.into());
        }
        match chunk {
            Chunk::Each(each) => each.get_mut(zone % CHUNK),
            Chunk::Same(_) => None,
        }
    }

    /// Sets the value of a zone, and takes no memory where it is the same. False where there is no such zone.
    pub fn set(&mut self, zone: usize, value: T) -> bool {
        if self.get(zone) == Some(&value) {
            return true;
        }
        let slot = self.get_mut(zone);
        slot.map(|slot| *slot = value).is_some()
    }

    /// The values in the order of zones.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.zones).filter_map(|zone| self.get(zone))
    }

    /// Zones whose values here and there are not the same, in their order. Chunks of zones that are alike in both
    /// are not looked into.
    pub fn changed<'a>(&'a self, other: &'a PerZone<T>) -> impl Iterator<Item = usize> + 'a {
        let chunks = self.chunks.iter().zip(&other.chunks).enumerate();
        let may_differ = chunks.filter(|(_, chunks)| match chunks {
            (Chunk::Same(here), Chunk::Same(there)) => here != there,
            _ => true,
        });
        let zones = may_differ.flat_map(|(chunk, _)| chunk * CHUNK..(chunk + 1) * CHUNK);
        zones.filter(|zone| self.get(*zone) != other.get(*zone))
    }
}

impl<T: Copy + PartialEq> FromIterator<T> for PerZone<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> PerZone<T> {
        let mut values = values.into_iter();
        let mut each: Vec<T> = Vec::with_capacity(CHUNK);
        let (mut zones, mut chunks) = (0, Vec::new());
        loop {
            each.extend(values.by_ref().take(CHUNK));
            let Some(first) = each.first().copied() else {
                break;
            };
            zones += each.len();
            chunks.push(if each.iter().all(|value| *value == first) {
                Chunk::Same(first)
            } else {
                Chunk::Each(each.as_slice().into())
            });
            each.clear();
        }
        PerZone {
            zones,
            chunks: chunks.into(),
        }
    }
}

/// A cell for each zone that threads change at the same time, such as an atomic number. Cells begin with their
/// default, and are made when the first of a chunk is to be something else.
#[derive(Debug)]
pub struct ZoneCells<C> {
    zones: usize,
    chunks: Box<[OnceLock<Box<[C]>>]>,
}

impl<C: Default> ZoneCells<C> {
    /// For so many zones.
    #[must_use]
    pub fn new(zones: usize) -> ZoneCells<C> {
        ZoneCells {
            zones,
            chunks: (0..zones.div_ceil(CHUNK))
                .map(|_| OnceLock::new())
                .collect(),
        }
    }

    /// How many zones there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.zones
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.zones == 0
    }

    /// The cell of a zone; none where it was never made, so it would have its default.
    #[must_use]
    pub fn get(&self, zone: usize) -> Option<&C> {
        self.chunks.get(zone / CHUNK)?.get()?.get(zone % CHUNK)
    }

    /// The cell of a zone, to be changed; none past the last zone.
    pub fn make(&self, zone: usize) -> Option<&C> {
        let chunk = self.chunks.get(zone / CHUNK)?;
        let first = zone - zone % CHUNK;
        let make = || (first..self.zones.min(first + CHUNK)).map(|_| C::default());
        chunk.get_or_init(|| make().collect()).get(zone % CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use proptest::prelude::*;

    use super::*;

    fn is_same<T>(map: &PerZone<T>, chunk: usize) -> bool {
        matches!(map.chunks.get(chunk), Some(Chunk::Same(_)))
    }

    proptest! {
            /// After any changes it holds what an array of all zones would.
            #[test]
            fn values_are_those_of_an_array(
                zones in 0..200usize,
                changes in prop::collection::vec((0..220usize, 0..3u8, any::<bool>()), 0..60),
            ) {
                let mut array = vec![0u8; zones];
                let mut map = PerZone::filled(zones, 0u8);
                let before = map.clone();
                for (zone, value, in_place) in changes {
                    let is_there = if in_place {
    map.get_mut(zone).map(|slot| *slot = value).is_some()
    } else {
    map.set(zone, value)
    };
                    prop_assert_eq!(is_there, zone < zones);
                    if let Some(slot) = array.get_mut(zone) {
                        *slot = value;
                    }
                }
                for zone in 0..220 {
                    prop_assert_eq!(map.get(zone), array.get(zone));
                }
                prop_assert_eq!(map.iter().copied().collect::<Vec<_>>(), array.clone());
                let changed: Vec<usize> = (0..zones).filter(|zone| array[*zone] != 0).collect();
                prop_assert_eq!(before.changed(&map).collect::<Vec<_>>(), changed.clone());
                let collected: PerZone<u8> = array.iter().copied().collect();
                prop_assert_eq!(collected.len(), zones);
                prop_assert_eq!(collected.changed(&map).count(), 0);
                prop_assert_eq!(before.changed(&collected).collect::<Vec<_>>(), changed);
            }
        }

    #[test]
    fn zones_that_are_alike_take_one_record() {
        let mut map: PerZone<u64> = (0..1000).map(|zone| u64::from(zone == 70)).collect();
        assert!(is_same(&map, 0) && !is_same(&map, 1) && is_same(&map, 15));
        map.set(999, 0);
        assert!(is_same(&map, 15), "nothing has changed");
        map.set(999, 1);
        assert!(!is_same(&map, 15));
        assert_eq!(map.get(998), Some(&0));
        assert_eq!(map.get(1000), None);
    }

    #[test]
    fn cells_are_made_for_those_who_change_them() {
        let cells: ZoneCells<AtomicU64> = ZoneCells::new(100);
        assert!(cells.get(99).is_none());
        for zone in [99, 99, 100, 128] {
            if let Some(cell) = cells.make(zone) {
                cell.fetch_add(1, Ordering::Relaxed);
            }
        }
        let of = |zone| cells.get(zone).map(|cell| cell.load(Ordering::Relaxed));
        assert_eq!([98, 99, 100, 3].map(of), [Some(0), Some(2), None, None]);
    }
}
