//! Lists that negatives are drawn from: those of a file, and those that a checkpoint holds.

use std::{ops::Range, path::Path};

use graphmill_core::{End, NodeId, location::Location};
use graphmill_data::npy;
use graphmill_loader::link::NegativeLists;

use crate::{Error, Result, checkpoint::tensors::Tensor};

/// Prefix of the names of tensors that hold lists.
pub(crate) const PREFIX: &str = "negatives.";
/// Ends with the names of their tensors.
const ENDS: [(End, &str); 2] =
    [(End::Source, "negatives.source"), (End::Destination, "negatives.destination")];

/// Lists of a file, with a fact for the user.
pub(crate) struct FileLists {
    pub(crate) lists: NegativeLists,
    pub(crate) note: String,
}

/// Reads the pairs of `--negatives-file`: integers of two columns (source, destination) or three
/// (source, relation, destination). Nodes are numbered from the first candidate of their end;
/// `candidates` are those of each relation, and `is_edge` knows the training edges.
///
/// # Errors
/// The file cannot be read, has another shape, or holds a number that is out of range.
pub(crate) fn read(
    path: &Path,
    candidates: &[[Range<NodeId>; 2]],
    is_edge: &dyn Fn([u32; 3]) -> bool,
) -> Result<FileLists> {
    let at = Location::new(path, "header");
    let file = npy::open(path)?;
    let columns = match file.shape[..] {
        [_, columns @ (2 | 3)] => columns,
        _ => {
            let message = format!(
                "shape {:?} found; negatives are rows of two columns (source, destination) or three \
                 (source, relation, destination)",
                file.shape
            );
            return Err(at.error(message).into());
        }
    };
    if columns == 2 && candidates.len() > 1 {
        let message = format!(
            "two columns found, but the run learns {} relations; store three columns: source, relation, \
             destination",
            candidates.len()
        );
        return Err(at.error(message).into());
    }
    let values = file.read_as_i64()?;
    let mut triples = Vec::with_capacity(values.len() / columns);
    let mut edges = 0;
    for (row, of_row) in values.chunks_exact(columns).enumerate() {
        let fail = |what: &str, value: i64, count: usize| -> Error {
            let message = format!("{what} {value} is not below {count}; use the ids of the dataset");
            Location::new(path, format!("row {row}")).error(message).into()
        };
        let number = |what: &str, value: i64, count: usize| {
            usize::try_from(value).ok().filter(|&x| x < count).ok_or_else(|| fail(what, value, count))
        };
        let relation = if columns == 3 { number("relation", of_row[1], candidates.len())? } else { 0 };
        let [sources, destinations] = &candidates[relation];
        let source = number("source", of_row[0], sources.len())? as NodeId + sources.start;
        let destination = of_row[columns - 1];
        let destination = number("destination", destination, destinations.len())? as NodeId;
        let triple = [source, relation as u32, destination + destinations.start];
        if is_edge(triple) { edges += 1 } else { triples.push(triple) }
    }
    let note = format!(
        "negatives of {}: {} pairs, {edges} of which are training edges and are left out",
        path.display(),
        triples.len() + edges
    );
    Ok(FileLists { lists: NegativeLists::of_triples(&triples), note })
}

/// Lists as tensors of a checkpoint.
pub(crate) fn tensors(lists: &NegativeLists) -> Vec<Tensor> {
    ENDS.map(|(end, name)| Tensor::of_words(name, &lists.words(end))).into()
}

/// Restores lists from the tensors of a checkpoint; those of other names are left.
///
/// # Errors
/// A message: a tensor holds no lists.
pub(crate) fn restore(lists: &NegativeLists, tensors: &[Tensor]) -> Result<(), String> {
    for (end, name) in ENDS {
        let Some(tensor) = tensors.iter().find(|tensor| tensor.name == name) else { continue };
        lists.set_words(end, &tensor.words()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::tensors::divide;

    #[test]
    fn tensors_hold_all_lists() {
        let lists = NegativeLists::default();
        lists.replace(End::Destination, [(0, 70_000, vec![u32::MAX - 1, 3]), (2, 1, vec![0x7f80_0001])]);
        let other = Tensor { name: "layer.0".into(), shape: [1, 1], data: vec![1.0].into() };
        let saved = tensors(&lists).into_iter().chain([other]).collect();
        let [own, others] = divide(saved, PREFIX);
        assert_eq!((own.len(), others[0].name.as_str()), (2, "layer.0"));
        let copy = NegativeLists::default();
        restore(&copy, &own).unwrap();
        for (end, _) in ENDS {
            assert_eq!(copy.words(end), lists.words(end));
        }
    }
}
