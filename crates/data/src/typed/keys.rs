//! Original keys of a node type's rows: integers, or texts in one block of bytes.

use std::{borrow::Cow, fmt};

use graphmill_core::{Buffer, Error, NodeId, Result, memory, parallel, search::pair_position};
use rayon::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

/// Separator of the parts of a key of several columns.
pub const KEY_SEPARATOR: char = '\u{1f}';

/// Bytes of the hashes that the test for duplicates holds at a time.
const HASH_BYTES: usize = 1 << 30;

/// Original key of every node of a type, in the order of the ids.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Integers.
    Integers(Buffer<i64>),
    /// Texts.
    Texts(Texts),
}

/// Texts in one block of UTF-8 bytes: text `i` is `bytes[offsets[i]..offsets[i + 1]]`.
#[derive(Clone, Debug)]
pub struct Texts {
    /// Starts of the texts, and the number of bytes (`V + 1`).
    pub offsets: Buffer<u64>,
    /// Bytes of all texts.
    pub bytes: Buffer<u8>,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key<'a> {
    /// Integer.
    Integer(i64),
    /// Text.
    Text(Cow<'a, str>),
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(key) => key.fmt(f),
            Self::Text(key) => key.fmt(f),
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for Texts {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let (mut offsets, mut bytes) = (vec![0], Vec::new());
        for text in texts {
            bytes.extend_from_slice(text.as_ref().as_bytes());
            offsets.push(bytes.len() as u64);
        }
        Self { offsets: offsets.into(), bytes: bytes.into() }
    }
}

impl Texts {
    /// Number of texts.
    pub fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Returns true if there are no texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of text `i`.
    fn raw(&self, i: usize) -> &[u8] {
        &self.bytes[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }

    /// Text `i`; bytes of a damaged file that are not UTF-8 are replaced.
    ///
    /// # Panics
    /// `i` is not below the number of texts.
    pub fn get(&self, i: usize) -> Cow<'_, str> {
        String::from_utf8_lossy(self.raw(i))
    }

    /// Describes the first fault: offsets that do not ascend from 0 to the number of bytes, or a
    /// text that is not UTF-8.
    pub(super) fn fault(&self) -> Option<String> {
        let (first, last) = (self.offsets.first(), self.offsets.last());
        if first != Some(&0) || last != Some(&(self.bytes.len() as u64)) {
            return Some(format!(
                "offsets run from {first:?} to {last:?}, but must run from 0 to the number of bytes, {}",
                self.bytes.len()
            ));
        }
        if let Some(i) = pair_position(&self.offsets, |start, end| start > end) {
            return Some(format!("offsets decrease after text {i}"));
        }
        let is_bad = |i: usize| std::str::from_utf8(self.raw(i)).is_err();
        let i = parallel::first_index(self.len(), is_bad)?;
        Some(format!("text {i} is not valid UTF-8"))
    }
}

impl Keys {
    /// Keys of texts.
    pub fn texts<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> Self {
        Self::Texts(texts.into_iter().collect())
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        match self {
            Self::Integers(keys) => keys.len(),
            Self::Texts(texts) => texts.len(),
        }
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Kind of the keys: "integers" or "texts".
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Integers(_) => "integers",
            Self::Texts(_) => "texts",
        }
    }

    /// Key of node `i`.
    ///
    /// # Panics
    /// `i` is not below the number of keys.
    pub fn get(&self, i: usize) -> Key<'_> {
        match self {
            Self::Integers(keys) => Key::Integer(keys[i]),
            Self::Texts(texts) => Key::Text(texts.get(i)),
        }
    }

    /// Keys of the nodes `order`, in that order.
    ///
    /// # Errors
    /// The result exceeds the memory.
    pub fn gather(&self, order: &[NodeId]) -> Result<Self> {
        Ok(match self {
            Self::Integers(keys) => {
                let mut gathered = memory::reserve(order.len())?;
                gathered.par_extend(order.par_iter().with_min_len(1 << 12).map(|&v| keys[v as usize]));
                Self::Integers(gathered.into())
            }
            Self::Texts(texts) => {
                let bytes =
                    order.par_iter().with_min_len(1 << 12).map(|&v| texts.raw(v as usize).len()).sum();
                let (mut offsets, mut all) = (memory::reserve(order.len() + 1)?, memory::reserve(bytes)?);
                offsets.push(0);
                for &v in order {
                    all.extend_from_slice(texts.raw(v as usize));
                    offsets.push(all.len() as u64);
                }
                Self::Texts(Texts { offsets: offsets.into(), bytes: all.into() })
            }
        })
    }

    /// Checks that the keys of `count` nodes are complete, valid and unique. O(V log V), parallel;
    /// takes at most 1 GiB of memory.
    ///
    /// # Errors
    /// The first fault, with the nodes and the key.
    pub fn validate(&self, count: usize) -> Result<()> {
        self.fault(count, HASH_BYTES).map_or(Ok(()), |fault| Err(Error::invalid(fault)))
    }

    /// Describes the first fault of [`Keys::validate`]. Hashes take at most about `bytes` bytes at
    /// a time.
    fn fault(&self, count: usize, bytes: usize) -> Option<String> {
        if self.len() != count {
            return Some(format!("{} keys for {count} nodes", self.len()));
        }
        let fault = match self {
            Self::Integers(_) => None,
            Self::Texts(texts) => texts.fault(),
        };
        fault.or_else(|| {
            let (first, second) = self.duplicate(bytes)?;
            Some(format!(
                "nodes {first} and {second} have the same key '{}'; keys are unique",
                self.get(first)
            ))
        })
    }

    /// First node whose key an earlier node has, as (earlier, later).
    ///
    /// Compares hashes, a share of their range at a time, so that memory is bounded; equal hashes
    /// are settled by the keys.
    fn duplicate(&self, bytes: usize) -> Option<(usize, usize)> {
        let hash = |i: usize| match self {
            Self::Integers(keys) => xxh3_64(&keys[i].to_le_bytes()),
            Self::Texts(texts) => xxh3_64(texts.raw(i)),
        };
        // Keys that ascend, as those of a sorted table, need no hashes.
        if let Self::Integers(keys) = self
            && pair_position(keys, |key, next| key >= next).is_none()
        {
            return None;
        }
        let shares = (self.len() * 16 / bytes.max(1)).next_power_of_two();
        let shift = 64 - shares.trailing_zeros();
        let is_in = |hash: u64, share: u64| shift == 64 || hash >> shift == share;
        let mut first: Option<(usize, usize)> = None;
        for share in 0..shares as u64 {
            let hashes = (0..self.len()).into_par_iter().with_min_len(1 << 12);
            let mut hashes: Vec<(u64, u32)> =
                hashes.map(|i| (hash(i), i as u32)).filter(|&(hash, _)| is_in(hash, share)).collect();
            hashes.par_sort_unstable();
            let runs = hashes.par_chunk_by(|a, b| a.0 == b.0).filter(|run| run.len() > 1);
            let pairs = runs.filter_map(|run| {
                let mut keys: Vec<_> = run.iter().map(|&(_, i)| (self.get(i as usize), i as usize)).collect();
                keys.sort_unstable();
                let same = keys.windows(2).filter(|pair| pair[0].0 == pair[1].0);
                same.map(|pair| (pair[1].1, pair[0].1)).min()
            });
            let found = pairs.min().map(|(second, first)| (first, second));
            first = [first, found].into_iter().flatten().min_by_key(|&(_, second)| second);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn integers(keys: &[i64]) -> Keys {
        Keys::Integers(keys.to_vec().into())
    }

    proptest! {
        #[test]
        fn duplicates_are_found_for_any_memory(
            keys in prop::collection::vec(-30i64..30, 0..40), bytes in 1usize..2000,
        ) {
            let repeated = (0..keys.len()).find(|&i| keys[..i].contains(&keys[i]));
            let texts = Keys::texts(keys.iter().map(i64::to_string));
            for found in [integers(&keys).duplicate(bytes), texts.duplicate(bytes)] {
                prop_assert_eq!(found.map(|(_, second)| second), repeated);
                if let Some((first, second)) = found {
                    prop_assert!(first < second && keys[first] == keys[second]);
                }
            }
        }
    }

    #[test]
    fn faults_of_keys_are_described() {
        let fault = |keys: &Keys, count| keys.fault(count, 1 << 20).unwrap_or_default();
        assert!(fault(&integers(&[1, 2]), 3).contains("2 keys for 3 nodes"));
        assert!(fault(&Keys::texts(["a", "", "a"]), 3).contains("nodes 0 and 2 have the same key 'a'"));
        let texts = |offsets: &[u64], bytes: &[u8]| {
            Keys::Texts(Texts { offsets: offsets.to_vec().into(), bytes: bytes.to_vec().into() })
        };
        assert!(fault(&texts(&[0, 2], b"a"), 1).contains("must run from 0 to the number of bytes, 1"));
        assert!(fault(&texts(&[0, 3, 2, 4], b"abcd"), 3).contains("decrease after text 1"));
        assert!(fault(&texts(&[0, 1, 2], &[b'a', 0xff]), 2).contains("text 1 is not valid UTF-8"));
        assert_eq!(fault(&Keys::texts(["b", "a", "ab", ""]), 4), "");
    }
}
