//! Dictionaries from tuples of numbers to lists of numbers, such as candidates of timed links.

use super::value::{Object, Pickle, Value};
use crate::npy::{Dtype, convert};

impl Pickle<'_> {
    /// Passes the entries of the root, a dictionary from tuples of `N` whole numbers to lists or
    /// arrays of whole numbers, to `each` in their order. Numbers may be stored as floats. In
    /// Python, a later entry replaces an earlier one with the same key.
    ///
    /// # Errors
    /// A message: the root is of another kind, a number is not whole, there are more numbers than
    /// the file has bytes, or that of `each`.
    pub(crate) fn keyed_lists<const N: usize>(
        &self,
        mut each: impl FnMut([i64; N], &[i64]) -> Result<(), String>,
    ) -> Result<(), String> {
        let Some(Object::Dict(entries)) = self.object(self.root) else {
            return Err(format!("a dictionary from tuples of {N} numbers to lists expected"));
        };
        let (mut list, mut budget) = (Vec::new(), self.data.len());
        for (i, (key, value)) in entries.iter().enumerate() {
            let named = |message: String| format!("entry {i}: {message}");
            let numbers: Option<&[Value; N]> = self.items(*key).and_then(|items| items.try_into().ok());
            let numbers = numbers.ok_or_else(|| named(format!("its key is not a tuple of {N} numbers")))?;
            let mut of_key = [0; N];
            for (to, &number) in of_key.iter_mut().zip(numbers) {
                *to = self.whole(number).map_err(named)?;
            }
            list.clear();
            self.whole_list(*value, &mut budget, &mut list).map_err(named)?;
            each(of_key, &list).map_err(named)?;
        }
        Ok(())
    }

    /// A whole number, of Python or NumPy.
    fn whole(&self, value: Value) -> Result<i64, String> {
        match (value, self.object(value)) {
            (Value::Int(x), _) => Ok(x),
            (Value::Float(x), _) if x.fract() == 0.0 && x.abs() < 9e15 => Ok(x as i64),
            (Value::Float(x), _) => Err(format!("{x} is not a whole number")),
            (_, Some(&Object::Scalar { dtype, data })) => {
                let dtype: Dtype = self.dtype(dtype)?;
                let data = self.raw(data).filter(|data| data.len() == dtype.size);
                let mut out = Vec::with_capacity(1);
                convert(data.ok_or("a number without its bytes")?, dtype, 0, &mut out)?;
                out.first().copied().ok_or_else(|| "a number without its bytes".into())
            }
            _ => Err("a number expected".into()),
        }
    }

    /// Appends the numbers of a list, a tuple or an array of one axis.
    fn whole_list(&self, value: Value, budget: &mut usize, out: &mut Vec<i64>) -> Result<(), String> {
        // lists may be shared, so the sum of their lengths could far exceed the file
        let mut take = |count: usize| -> Result<(), String> {
            *budget = budget.checked_sub(count).ok_or("more numbers than the file has bytes")?;
            Ok(())
        };
        if let Some(items) = self.items(value) {
            take(items.len())?;
            items.iter().try_for_each(|&item| self.whole(item).map(|x| out.push(x)))
        } else if let Some(Object::Array(Some(state))) = self.object(value) {
            let (dtype, shape, data) = self.array_state(*state)?;
            let &[count] = &shape[..] else {
                return Err(format!("an array of shape {shape:?}; one axis expected"));
            };
            take(count)?;
            convert(data, dtype, 0, out)
        } else {
            Err("a list or an array of numbers expected".into())
        }
    }
}
