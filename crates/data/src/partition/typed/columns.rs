//! The edges into nodes of some parts, with their columns, in the order of the whole dataset.
//!
//! Columns of a single part stay mapped, those of several parts are concatenated: their rows
//! alternate, because they ascend by destination.

use std::ops::Range;

use graphmill_core::{
    Buffer, Error, Features, Graph, NodeId, Result, features::FeatureData, memory, typed::TypedGraph,
};
use half::f16;

use super::{TypedPart, TypedPartitionDir, neighbors};
use crate::{
    dataset::files::Files,
    npy::{Dtype, Element},
    verification::Verify,
};

/// A row of edges: the number of its part among those given, and its positions there.
type Row = (usize, Range<usize>);

impl TypedPartitionDir {
    /// Builds the graph of all nodes with the edges into those of `parts`, in the dataset's order;
    /// other nodes have none. 8 bytes per node and relation beside the columns.
    ///
    /// # Errors
    /// A part belongs to another partition.
    pub fn graph_of(&self, parts: &[TypedPart]) -> Result<TypedGraph> {
        let of_relation = |r: usize| self.relation_of(parts, r);
        let relations = (0..self.schema.num_relations()).map(of_relation).collect::<Result<_>>()?;
        TypedGraph::new(self.schema.clone(), relations)
    }

    /// Graph of relation `r` with the edges into nodes of `parts`.
    fn relation_of(&self, parts: &[TypedPart], r: usize) -> Result<Graph> {
        let mut indptr = memory::reserve(self.range(self.schema.relations()[r].dst).len() + 1)?;
        let mut end = 0u64;
        indptr.push(end);
        self.for_each_row(parts, r, |row| {
            end += row.map_or(0, |(_, row)| row.len() as u64);
            indptr.push(end);
        })?;
        let indices: Vec<Buffer<NodeId>> =
            parts.iter().map(|part| part.neighbors[r].indices.clone()).collect();
        let indices = self.joined(parts, r, 1, &indices)?;
        let weights = self.manifest.edge_types[r].weighted.then(|| {
            let of_part = |part: &TypedPart| part.neighbors[r].weights.clone().unwrap_or_default();
            self.joined(parts, r, 1, &parts.iter().map(of_part).collect::<Vec<_>>())
        });
        let weights = weights.transpose()?;
        Graph::of_sound_edges(indptr.into(), indices, weights)
    }

    /// Times of the edges of type `r` of [`TypedPartitionDir::graph_of`], by their positions there;
    /// `None` if the edge type has none.
    ///
    /// # Errors
    /// A file is damaged, or an earlier version wrote the partition without the times.
    pub fn edge_times(&self, parts: &[TypedPart], r: usize) -> Result<Option<Buffer<i64>>> {
        let has = |part: &TypedPart| part.dataset.edges[r].time.is_some();
        if !self.is_stored(parts, r, self.manifest.edge_types[r].timed, "times", has)? {
            return Ok(None);
        }
        let of_part = |part: &TypedPart| {
            let edges = self.num_edges_into(part.number, r);
            self.files().read::<i64>(&neighbors(part.number, r, "time"), &[edges])
        };
        let of_parts = parts.iter().map(of_part).collect::<Result<Vec<_>>>()?;
        Ok(Some(self.joined(parts, r, 1, &of_parts)?))
    }

    /// Feature rows of the edges of type `r` of [`TypedPartitionDir::graph_of`], by their positions
    /// there; `None` if the edge type has none. Those of a single part are verified as `verify`
    /// says.
    ///
    /// # Errors
    /// A file is damaged, or an earlier version wrote the partition without the features.
    pub fn edge_features(&self, parts: &[TypedPart], r: usize, verify: Verify) -> Result<Option<Features>> {
        let dim = self.manifest.edge_types[r].features;
        let has = |part: &TypedPart| part.dataset.edges[r].features.is_some();
        if !self.is_stored(parts, r, dim > 0, "features", has)? {
            return Ok(None);
        }
        let verify = if parts.len() == 1 { verify } else { Verify::All };
        let is = |dtype: Dtype| {
            let of_part = |part: &TypedPart| self.files().dtype(&neighbors(part.number, r, "features"));
            parts.iter().all(|part| of_part(part) == Some(dtype))
        };
        let data = if is(f16::DTYPE) {
            FeatureData::F16(self.edge_rows(parts, r, verify)?)
        } else {
            FeatureData::F32(self.edge_rows(parts, r, verify)?)
        };
        Ok(Some(Features { dim, data }))
    }

    /// Feature rows of type `T` of the edges of type `r`.
    fn edge_rows<T: Element>(&self, parts: &[TypedPart], r: usize, verify: Verify) -> Result<Buffer<T>> {
        let dim = self.manifest.edge_types[r].features;
        let of_part = |part: &TypedPart| {
            let name = neighbors(part.number, r, "features");
            let shape = [self.num_edges_into(part.number, r), dim];
            let files = Files { verify, ..self.files() };
            let bytes = self.manifest.files.get(&name).map_or(0, |entry| entry.bytes);
            if verify.defers(bytes) {
                return files.map_deferred::<T>(&name, &shape);
            }
            let (rows, bad) = files.scan::<T>(&name, &shape, |x| !x.finite())?;
            match bad {
                None => Ok(rows),
                Some(i) => {
                    let message = format!("column {} of row {} is not a finite number", i % dim, i / dim);
                    Err(Error::format(self.path.join(name), "contents", message))
                }
            }
        };
        let of_parts = parts.iter().map(of_part).collect::<Result<Vec<_>>>()?;
        self.joined(parts, r, dim, &of_parts)
    }

    /// Returns `is_stored`, unless the datasets of the parts have a column that the partition
    /// lacks.
    fn is_stored(
        &self,
        parts: &[TypedPart],
        r: usize,
        is_stored: bool,
        what: &str,
        has: impl Fn(&TypedPart) -> bool,
    ) -> Result<bool> {
        if !is_stored && parts.iter().any(has) {
            return Err(Error::invalid(format!(
                "{}: an earlier version wrote the partition without the {what} of edges of type {}; \
                 partition the dataset again",
                self.path.display(),
                self.schema.relation_name(r)
            )));
        }
        Ok(is_stored)
    }

    /// Column of `width` values for each edge of type `r`, from those of the parts.
    fn joined<T: Element>(
        &self,
        parts: &[TypedPart],
        r: usize,
        width: usize,
        of_parts: &[Buffer<T>],
    ) -> Result<Buffer<T>> {
        if let [one] = of_parts {
            return Ok(one.clone());
        }
        let mut all = memory::reserve(of_parts.iter().map(|of| of.len()).sum())?;
        self.for_each_row(parts, r, |row| {
            if let Some((part, row)) = row {
                all.extend_from_slice(&of_parts[part][row.start * width..row.end * width]);
            }
        })?;
        Ok(all.into())
    }

    /// Calls `see` for each node of the destination type of relation `r` with its row of edges, or
    /// `None` if none of `parts` owns it.
    fn for_each_row(&self, parts: &[TypedPart], r: usize, mut see: impl FnMut(Option<Row>)) -> Result<()> {
        let mut place = vec![usize::MAX; usize::from(self.parts())];
        parts.iter().enumerate().for_each(|(i, part)| place[usize::from(part.number)] = i);
        let mut next = vec![0; parts.len()];
        for &part in &self.book.of()[self.range(self.schema.relations()[r].dst)] {
            let i = place[usize::from(part)];
            let Some(part) = parts.get(i) else {
                see(None);
                continue;
            };
            let Some(&[start, stop]) = part.neighbors[r].indptr.get(next[i]..next[i] + 2) else {
                let message = format!("part {} is of another partition", part.number);
                return Err(Error::invalid(message));
            };
            next[i] += 1;
            see(Some((i, start as usize..stop as usize)));
        }
        Ok(())
    }
}
