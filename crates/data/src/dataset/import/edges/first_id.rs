//! Ids that do not begin at 0.

use graphmill_core::{Result, location::Location};

use crate::npy::Element;

/// Subtracts `first` from `ids`.
///
/// # Errors
/// An id is below `first`.
pub(super) fn below<T>(ids: &mut [T], first: u64, at: &Location) -> Result<()>
where
    T: Element + Into<u64> + TryFrom<u64>,
{
    if first == 0 {
        return Ok(());
    }
    for (i, id) in ids.iter_mut().enumerate() {
        let old: u64 = (*id).into();
        let new = old.checked_sub(first).and_then(|new| T::try_from(new).ok());
        *id = new.ok_or_else(|| {
            at.error(format!("entry {i} is {old}, but ids begin at {first}, as first-id says"))
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn ids_are_renumbered_and_checked() {
        let at = Location::new(Path::new("a"), "ids");
        let mut ids = [1u32, 4, u32::MAX];
        below(&mut ids, 0, &at).unwrap();
        below(&mut ids, 1, &at).unwrap();
        assert_eq!(ids, [0, 3, u32::MAX - 1]);
        let error = below(&mut [3u64, 0], 1, &at).unwrap_err().to_string();
        assert_eq!(error, "a: ids: entry 1 is 0, but ids begin at 1, as first-id says");
    }
}
