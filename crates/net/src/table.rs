//! A table whose keys are never mistaken: a place that is used again has the next generation.

use std::collections::VecDeque;

/// A place, and the generation of its value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Key {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

impl Key {
    /// Returns the key as 56 bits: 24 for the place, 32 for the generation.
    pub(crate) fn word(self) -> u64 {
        u64::from(self.generation) << 24 | u64::from(self.place)
    }

    pub(crate) fn of(word: u64) -> Self {
        let part = |shift: u32, mask: u64| {
            u32::try_from(word >> shift & mask).expect("masked to its width")
        };
        Self { place: part(0, 0xff_ffff), generation: part(24, 0xffff_ffff) }
    }

    /// Returns the place as an index.
    pub(crate) fn index(self) -> usize {
        self.place as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// The table. The place that has been free longest is used first, so that generations last long.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: VecDeque::new() }
    }
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(crate) fn insert(&mut self, value: T) -> Key {
        let place = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            u32::try_from(self.slots.len() - 1).expect("places are bounded by the options")
        });
        let slot = &mut self.slots[place as usize];
        slot.generation = slot.generation.wrapping_add(1);
        slot.value = Some(value);
        Key { place, generation: slot.generation }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index()).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot =
            self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation)?;
        slot.value.as_mut()
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot =
            self.slots.get_mut(key.index()).filter(|slot| slot.generation == key.generation)?;
        let value = slot.value.take()?;
        self.free.push_back(key.place);
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Iterates over the values, by place.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Key, &mut T)> {
        (0..).zip(self.slots.iter_mut()).filter_map(|(place, slot)| {
            let key = Key { place, generation: slot.generation };
            slot.value.as_mut().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_13_a_stale_number_names_nothing() {
        let mut table = Table::default();
        let first = table.insert('a');
        assert_eq!(table.remove(first), Some('a'));
        let second = table.insert('b');
        assert_eq!(second.place, first.place, "the place is used again");
        assert!(table.get(first).is_none() && table.get_mut(first).is_none());
        assert_eq!(table.remove(first), None);
        assert_eq!((table.get(second), table.len()), (Some(&'b'), 1));
    }

    #[test]
    fn a_key_survives_the_journey() {
        for key in [
            Key { place: 0, generation: u32::MAX },
            Key { place: 0xff_ffff, generation: 0 },
            Key { place: 5, generation: 7 },
        ] {
            assert_eq!(Key::of(key.word()), key);
        }
    }
}
