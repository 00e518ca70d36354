//! Edge table of a Parquet import.

use graphmill_core::{NodeId, Result, csc::is_no_weight, location::Location};

use super::{
    super::{
        ImportOptions, ImportReport, WeightColumn,
        blocks::Blocks,
        edges::weights::{NAMES, no_weight},
    },
    OTHER_COLUMNS, OTHER_IDS,
    column::Kind,
    nodes::key,
    table::Table,
};
use crate::{
    external::{Edges, Needs, Scratch},
    npy::{Element, Number},
};

/// Column names of the two ends.
const ENDS: [(&str, &str); 5] =
    [("src", "dst"), ("source", "target"), ("from", "to"), ("src_id", "dst_id"), ("u", "v")];

/// Mapping from ids to node numbers.
pub(super) enum Ids {
    /// Identity, with the number of nodes if known.
    Plain(Option<usize>),
    /// Ids and their node numbers, by ascending id.
    Known(Vec<(u64, NodeId)>),
}

impl Ids {
    /// Maps the ids of rows to their row numbers.
    ///
    /// # Errors
    /// An id occurs twice.
    pub(super) fn of_rows(ids: Vec<u64>, at: &Location) -> Result<Self> {
        if ids.iter().enumerate().all(|(row, &id)| row as u64 == id) {
            return Ok(Self::Plain(Some(ids.len())));
        }
        let mut pairs: Vec<(u64, NodeId)> = ids.into_iter().zip(0..).collect();
        rayon::slice::ParallelSliceMut::par_sort_unstable(&mut pairs[..]);
        match pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            None => Ok(Self::Known(pairs)),
            Some(pair) => Err(at.error(format!(
                "the id {} occurs in the rows {} and {}",
                pair[0].0 as i64, pair[0].1, pair[1].1
            ))),
        }
    }

    fn number(&self, id: u64) -> Option<NodeId> {
        match self {
            Self::Plain(None) => NodeId::try_from(id).ok(),
            Self::Plain(Some(nodes)) => NodeId::try_from(id).ok().filter(|&v| (v as usize) < *nodes),
            Self::Known(pairs) => pairs.binary_search_by_key(&id, |pair| pair.0).ok().map(|i| pairs[i].1),
        }
    }
}

/// Finds the weight column.
fn weights(table: &Table, options: &ImportOptions) -> Result<Option<usize>> {
    let column = match &options.weights {
        WeightColumn::None => return Ok(None),
        WeightColumn::Auto => match table.find(&NAMES) {
            Some(column) => column,
            None => return Ok(None),
        },
        WeightColumn::Named(name) => table.find(&[name]).ok_or_else(|| {
            table.at_schema().error(format!("no column '{name}', which the option weights names"))
        })?,
    };
    if table.columns()[column].1 != Kind::Number {
        let message = format!(
            "the column '{}' does not hold numbers, so it cannot hold edge weights",
            table.name(column)
        );
        return Err(table.at_schema().error(message));
    }
    Ok(Some(column))
}

/// Finds the columns of both ends, neither of which is the weight column.
fn ends(table: &Table, weights: Option<usize>) -> Result<[usize; 2]> {
    let found = ENDS.iter().find_map(|(from, to)| Some([table.find(&[from])?, table.find(&[to])?]));
    let numbers: Vec<usize> = (0..table.columns().len())
        .filter(|&c| table.columns()[c].1 == Kind::Number && weights != Some(c))
        .collect();
    let ends = match (found, &numbers[..]) {
        (Some(ends), _) => ends,
        (None, &[from, to]) => [from, to],
        _ => {
            let names: Vec<&str> = table.columns().iter().map(|(name, _)| name.as_str()).collect();
            return Err(table.at_schema().error(format!(
                "the columns of the edge ends are ambiguous; name them src and dst, or source and target; \
                 the columns are {}; or pass their names to 'graphmill import tables' (--src, --dst)",
                names.join(", ")
            )));
        }
    };
    if let Some(c) = ends.into_iter().find(|c| !numbers.contains(c)) {
        return Err(table
            .at_schema()
            .error(format!("the column '{}' is not a column of whole numbers; {OTHER_IDS}", table.name(c))));
    }
    Ok(ends)
}

/// All distinct ids of the edges, ascending. O(V) memory.
pub(super) fn distinct(
    table: &Table,
    options: &ImportOptions,
    scratch: &Scratch,
) -> Result<Vec<(u64, NodeId)>> {
    let ends = ends(table, weights(table, options)?)?;
    let mut ids: Vec<u64> = Vec::new();
    let mut limit = 1 << 20;
    let close = |ids: &mut Vec<u64>| {
        rayon::slice::ParallelSliceMut::par_sort_unstable(&mut ids[..]);
        ids.dedup();
    };
    table.read(&ends, scratch, |cells, rows, at| {
        for row in 0..rows {
            for (cells, &c) in cells.iter().zip(&ends) {
                ids.push(
                    end(cells.numbers[row])
                        .map_err(|e| at.error(row, format!("column '{}': {e}", table.name(c))))?,
                );
            }
        }
        if ids.len() > limit {
            close(&mut ids);
            limit = 2 * ids.len() + (1 << 20);
        }
        Ok(())
    })?;
    close(&mut ids);
    if ids.len() > NodeId::MAX as usize {
        return Err(Location::new(&table.files[0], "ids").error("more ids than 32 bits can number"));
    }
    Ok(ids.into_iter().zip(0..).collect())
}

fn end(number: Option<Number>) -> Result<u64, String> {
    key(number).ok_or_else(|| match number {
        Some(number) => format!("{number} is not a node id; {OTHER_IDS}"),
        None => format!("nothing is not a node id; {OTHER_COLUMNS}"),
    })
}

fn weight(number: Option<Number>) -> Result<f32, String> {
    let weight = number.and_then(f32::from_number).filter(|weight| !is_no_weight(weight));
    weight.ok_or_else(|| no_weight(number.map_or("nothing".into(), |x| x.to_string())))
}

/// Reads the edges and the number of nodes; `features` is the size of the features in bytes.
pub(super) fn read(
    table: &Table,
    ids: &Ids,
    features: u64,
    options: &ImportOptions,
    scratch: &Scratch,
    report: &mut ImportReport,
) -> Result<(Edges, usize)> {
    let weights = weights(table, options)?;
    let ends = ends(table, weights)?;
    let unread = (0..table.columns().len()).filter(|c| !ends.contains(c) && weights != Some(*c));
    report.ignore_columns("edges", unread.map(|c| table.name(c)));
    let edges = scratch.maybe_weighted_edges(options.edge_options(false), weights.is_some());
    scratch.expect(&Needs {
        edges: table.rows.saturating_mul(edges.directions()),
        features,
        weighted: weights.is_some(),
        ..Needs::default()
    })?;
    let mut edges = Blocks::new(edges);
    let first = if matches!(ids, Ids::Plain(_)) { options.first_id } else { 0 };
    let wanted: Vec<usize> = ends.into_iter().chain(weights).collect();
    table.read(&wanted, scratch, |cells, rows, at| {
        for row in 0..rows {
            let number = |which: usize| {
                let fail = |e: String| at.error(row, format!("column '{}': {e}", table.name(ends[which])));
                let id = end(cells[which].numbers[row]).map_err(fail)?;
                let number = id.checked_sub(first).and_then(|id| ids.number(id));
                number.ok_or_else(|| {
                    fail(match ids {
                        Ids::Plain(Some(nodes)) => format!(
                            "node {} does not exist: ids start at {first}, \
                            and there are {nodes} nodes",
                            id as i64
                        ),
                        Ids::Plain(None) => format!(
                            "{} is not a node id: ids are whole numbers from {first} \
                            that fit 32 bits; pass compact-ids for others",
                            id as i64
                        ),
                        Ids::Known(_) => format!("no node has the id {}", id as i64),
                    })
                })
            };
            let weight = match cells.get(2) {
                Some(cells) => Some(weight(cells.numbers[row]).map_err(|e| at.error(row, e))?),
                None => None,
            };
            edges.push_weighted(number(0)?, number(1)?, weight)?;
        }
        Ok(())
    })?;
    let edges = edges.finish()?;
    let at = Location::new(&table.files[0], "ids");
    let nodes = match ids {
        Ids::Plain(Some(nodes)) => *nodes,
        Ids::Known(pairs) => pairs.len(),
        Ids::Plain(None) => {
            let nodes = edges.largest().map_or(0, |largest| u64::from(largest) + 1);
            // Sparse ids would create a graph of isolated nodes, and a single one could allocate
            // all memory.
            if nodes > 1_000_000 + 64 * edges.len() {
                return Err(at.error(format!(
                    "the largest id is {}, but there are only {} edges; pass compact-ids if ids are sparse, \
                     or num-nodes",
                    nodes - 1 + first,
                    edges.len()
                )));
            }
            nodes as usize
        }
    };
    Ok((edges, nodes))
}
