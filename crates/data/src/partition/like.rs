//! Partition of a dataset that has grown: known nodes keep their parts.
//!
//! # Algorithm
//!
//! New nodes in id order go to the part with most of their neighbours, known or assigned before.
//! Ties go to the part with fewer nodes; a part that holds `1 + slack` times the mean accepts no
//! more. Few rows move between machines that way, and the balance is that of the earlier partition
//! as long as few nodes are new.
//!
//! # Source
//!
//! Stanton and Kliot, *Streaming graph partitioning for large distributed graphs*, KDD 2012: the
//! greedy rule, with the balance as a bound instead of a weight.
//!
//! # Cost
//!
//! O(E + V K), sequential.

use std::path::Path;

use graphmill_core::{Error, Graph, NodeId, Result, progress::Progress};

use super::{
    Options, PartitionBook, PartitionDir, Partitioner, TypedPartitionDir,
    stream::{NONE, assign_rest},
};

/// Partitioner that keeps the parts of an earlier partition.
#[derive(Clone, Debug)]
pub struct KnownParts {
    options: Options,
    /// Part of each node, [`NONE`] for a new one.
    of: Vec<u16>,
}

impl KnownParts {
    /// Name in records and reports, in the place of a method.
    pub const NAME: &'static str = "like";

    /// Opens the partition in `dir` for a dataset of these types with their numbers of nodes, whose
    /// own checksum and those of the datasets that it extends are `checksums`. A part accepts new
    /// nodes up to `1 + slack` times the mean. O(V).
    ///
    /// # Errors
    /// The directory is not a partition, or one of a dataset that this one does not extend.
    pub fn open(dir: &Path, types: &[(String, usize)], checksums: &[String], slack: f64) -> Result<Self> {
        let (parts, of_types, source) = if TypedPartitionDir::is_in(dir) {
            let dir = TypedPartitionDir::open(dir)?;
            let book = |t| -> Result<Vec<u16>> { Ok(dir.book_of(t)?.of().to_vec()) };
            let books =
                dir.schema().types().iter().enumerate().map(|(t, of)| Ok((of.name.clone(), book(t)?)));
            let books: Result<Vec<_>> = books.collect();
            (dir.parts(), books?, dir.source_checksum().map(String::from))
        } else {
            let dir = PartitionDir::open(dir)?;
            // The only type of both may have any name.
            let name = types.first().map(|(name, _)| name.clone()).unwrap_or_default();
            (dir.parts(), vec![(name, dir.book.of().to_vec())], dir.source_checksum().map(String::from))
        };
        let is_extended = source.as_ref().is_some_and(|source| checksums.contains(source));
        let is_longer = |((before, of), (now, count)): (&(String, Vec<u16>), &(String, usize))| {
            before == now && of.len() <= *count
        };
        if !is_extended || of_types.len() != types.len() || !of_types.iter().zip(types).all(is_longer) {
            return Err(Error::format(
                dir,
                "partition",
                "it is a partition of a dataset that this one does not extend, so its parts are those of \
                 other nodes; name a partition of the dataset that 'graphmill append' extended",
            ));
        }
        let mut of = Vec::new();
        for ((_, known), (_, count)) in of_types.iter().zip(types) {
            let start = of.len();
            of.extend_from_slice(known);
            of.resize(start + count, NONE);
        }
        Ok(Self { options: Options { parts, slack, ..Options::default() }, of })
    }

    /// Number of parts.
    pub fn parts(&self) -> u16 {
        self.options.parts
    }
}

impl Partitioner for KnownParts {
    fn partition(&self, graph: &Graph, train: &[NodeId], progress: &dyn Progress) -> Result<PartitionBook> {
        self.options.check(graph, train)?;
        let mean = graph.num_nodes() as f64 / f64::from(self.options.parts);
        let capacity = ((1.0 + self.options.slack) * mean).ceil() as usize;
        let of = self.of.clone();
        assign_rest(graph, train, &self.options, progress, of, capacity, |inside, _| inside as f64)
    }
}

#[cfg(test)]
mod tests {
    use graphmill_core::{EdgeOptions, build, progress::Quiet};

    use super::*;

    #[test]
    fn known_nodes_keep_their_parts_and_new_ones_join_their_neighbours() {
        // 0 and 1 are a part, 2 and 3 another; 4 and 6 belong to 2 and 3, 5 to no node
        let (src, dst) = ([0, 2, 4, 4, 6, 6], [1, 3, 2, 3, 4, 0]);
        let graph = build(7, &src, &dst, EdgeOptions::DIRECTED).unwrap();
        let parts = |slack| {
            let options = Options { parts: 2, slack, ..Options::default() };
            let known = KnownParts { options, of: vec![1, 1, 0, 0, NONE, NONE, NONE] };
            known.partition(&graph, &[], &Quiet).unwrap().of().to_vec()
        };
        // 6 has a neighbour in either part, and both have three nodes
        assert_eq!(parts(1.0), [1, 1, 0, 0, 0, 1, 0]);
        assert_eq!(parts(0.0), [1, 1, 0, 0, 0, 1, 0], "at most four nodes fit a part");
    }
}
