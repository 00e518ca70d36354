//! Dictionary of keys in memory.

use hashbrown::{HashTable, hash_table::Entry};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of an entry beside its key.
const ENTRY_BYTES: usize = 16;

/// Keys with their numbers, in the order in which they were inserted.
#[derive(Default)]
pub(super) struct Dictionary {
    table: HashTable<u32>,
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

impl Dictionary {
    /// Key of a number.
    pub(super) fn key(&self, id: u32) -> &[u8] {
        key_of(&self.bytes, &self.ends, id)
    }

    /// Number of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<u32> {
        self.table.find(xxh3_64(key), |&id| self.key(id) == key).copied()
    }

    /// Inserts a key; false if it is known.
    pub(super) fn insert(&mut self, key: &[u8]) -> bool {
        let of = |&id: &u32| key_of(&self.bytes, &self.ends, id);
        let entry = self.table.entry(xxh3_64(key), |id| of(id) == key, |id| xxh3_64(of(id)));
        let Entry::Vacant(entry) = entry else { return false };
        entry.insert(self.ends.len() as u32);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u64);
        true
    }

    /// Dictionary of these keys, each with the end of its bytes; `None` if two are equal.
    pub(super) fn of(bytes: &[u8], ends: &[u64]) -> Option<Self> {
        let mut dictionary = Self::default();
        let mut start = 0;
        for &end in ends {
            let key = bytes.get(start..usize::try_from(end).ok()?)?;
            if !dictionary.insert(key) {
                return None;
            }
            start = end as usize;
        }
        Some(dictionary)
    }

    /// Bytes of all keys, and the end of each.
    pub(super) fn parts(&self) -> (&[u8], &[u64]) {
        (&self.bytes, &self.ends)
    }

    /// Bytes in memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + ENTRY_BYTES * self.ends.len()
    }
}

fn key_of<'a>(bytes: &'a [u8], ends: &[u64], id: u32) -> &'a [u8] {
    let start = (id as usize).checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start as usize..ends[id as usize] as usize]
}
