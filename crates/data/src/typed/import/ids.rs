//! Arbitrary ids of a source, numbered from 0: integers ascending, texts by first occurrence.

use graphmill_core::{Result, memory};

use super::lines::Interner;
use crate::typed::Keys;

/// Ids under construction.
#[derive(Debug, Default)]
pub(super) struct Ids {
    names: Interner,
}

impl Ids {
    /// Preliminary number of an id.
    ///
    /// # Errors
    /// A message: the id is empty, or there are too many.
    pub(super) fn id(&mut self, text: &str) -> Result<u32, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("an id is empty".into());
        }
        self.names.id(text)
    }

    /// Preliminary number of a known id.
    pub(super) fn get(&self, text: &str) -> Option<u32> {
        self.names.get(text.trim())
    }

    /// Number of ids.
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Keys of the nodes, and the final number of each preliminary one. Ids that are all integers
    /// ascend.
    ///
    /// # Errors
    /// Memory runs out.
    pub(super) fn finish(self) -> Result<(Keys, Vec<u32>)> {
        let integer = |text: &str| text.parse::<i64>().ok().filter(|x| x.to_string() == text);
        let integers: Option<Vec<i64>> = self.names.texts().iter().map(|text| integer(text)).collect();
        let Some(integers) = integers else {
            return Ok((Keys::texts(self.names.texts()), (0..self.names.len() as u32).collect()));
        };
        let mut order: Vec<u32> = (0..integers.len() as u32).collect();
        order.sort_unstable_by_key(|&i| integers[i as usize]);
        let mut number: Vec<u32> = memory::zeroed(order.len())?;
        for (new, &old) in order.iter().enumerate() {
            number[old as usize] = new as u32;
        }
        let sorted: Vec<i64> = order.iter().map(|&i| integers[i as usize]).collect();
        Ok((Keys::Integers(sorted.into()), number))
    }
}

/// Replaces preliminary numbers by final ones.
pub(super) fn renumber(ids: &mut [u32], number: &[u32]) {
    ids.iter_mut().for_each(|id| *id = number[*id as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_ascend_and_texts_keep_their_order() {
        let mut ids = Ids::default();
        let mut column: Vec<u32> = ["10", " 9", "10", "-3"].iter().map(|id| ids.id(id).unwrap()).collect();
        let (keys, number) = ids.finish().unwrap();
        renumber(&mut column, &number);
        assert_eq!(column, [2, 1, 2, 0]);
        let Keys::Integers(keys) = keys else { panic!() };
        assert_eq!(keys[..], [-3, 9, 10]);
        let mut ids = Ids::default();
        assert!(ids.id(" ").is_err());
        assert_eq!((ids.id("b"), ids.id("01"), ids.len()), (Ok(0), Ok(1), 2));
        assert_eq!(ids.finish().unwrap().0.get(1).to_string(), "01");
    }
}
