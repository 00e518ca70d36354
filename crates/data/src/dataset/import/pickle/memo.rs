//! Memo of a pickle: values by their slots.

use std::collections::HashMap;

use super::value::Value;

/// Values by slot. Python numbers slots from 0, and only those that it does not are hashed.
#[derive(Default)]
pub(super) struct Memo {
    first: Vec<Value>,
    rest: HashMap<u32, Value>,
}

impl Memo {
    /// Number of slots with a value.
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Replaces the value of a slot.
    pub(super) fn set(&mut self, slot: u32, value: Value) {
        let next = self.first.len();
        match self.first.get_mut(slot as usize) {
            Some(known) => *known = value,
            None if slot as usize == next => {
                self.first.push(value);
                self.rest.remove(&slot);
            }
            None => drop(self.rest.insert(slot, value)),
        }
    }

    /// Value of a slot.
    pub(super) fn get(&self, slot: u32) -> Option<Value> {
        self.first.get(slot as usize).or_else(|| self.rest.get(&slot)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_any_order_hold_their_last_value() {
        let mut memo = Memo::default();
        for (slot, x) in [(1, 10), (0, 11), (2, 12), (1, 13), (9, 14), (0, 15)] {
            memo.set(slot, Value::Int(x));
        }
        let value = |slot| match memo.get(slot) {
            Some(Value::Int(x)) => Some(x),
            _ => None,
        };
        assert_eq!([0, 1, 2, 9, 3].map(value), [Some(15), Some(13), Some(12), Some(14), None]);
        assert_eq!(memo.len(), 4);
    }
}
