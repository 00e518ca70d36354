//! Topology of the user's graph: in-neighbours of each node, and the number of each edge in the
//! user's list.

#![forbid(unsafe_code)]

use std::fmt::Display;

use graphmill_core::{Buffer, Graph, prefetch::prefetch};

/// A graph, and the number of each of its edges in the user's list.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    graph: Graph,
    /// Number in the user's list of the edge at each position of [`Graph::indices`]; `None` if
    /// equal.
    numbers: Option<Buffer<u32>>,
}

impl From<Graph> for Topology {
    fn from(graph: Graph) -> Self {
        Self { graph, numbers: None }
    }
}

impl Topology {
    /// Builds the topology of edges `src[e]` to `dst[e]` between `num_nodes` nodes, in any order.
    /// Repeated edges stay, and the edges of a row keep the order of the list. O(V + E), one
    /// thread.
    ///
    /// # Errors
    /// The lists differ in length or have 2^32 edges or more, or an id is out of range.
    pub fn from_edges<I: Id>(num_nodes: usize, src: &[I], dst: &[I]) -> Result<Self, String> {
        Self::bipartite(num_nodes, num_nodes, src, dst)
    }

    /// [`Topology::from_edges`] for sources and destinations of two node types, each numbered from
    /// 0. The graph has a row for each destination.
    ///
    /// # Errors
    /// As for [`Topology::from_edges`].
    pub fn bipartite<I: Id>(num_src: usize, num_dst: usize, src: &[I], dst: &[I]) -> Result<Self, String> {
        if src.len() != dst.len() {
            return Err(format!("{} edge sources for {} destinations", src.len(), dst.len()));
        }
        if src.len() > u32::MAX as usize {
            return Err(format!(
                "{} edges: an edge list must have fewer than 2^32; open a dataset directory instead",
                src.len()
            ));
        }
        check(num_src, "edge_index[0]", src)?;
        check(num_dst, "edge_index[1]", dst)?;
        let mut indptr = vec![0u64; num_dst + 1];
        dst.iter().for_each(|v| indptr[v.number() as usize + 1] += 1);
        for v in 0..num_dst {
            indptr[v + 1] += indptr[v];
        }
        let mut next = indptr.clone();
        let (mut indices, mut numbers) = (vec![0u32; src.len()], vec![0u32; src.len()]);
        for e in 0..src.len() {
            let place = &mut next[dst[e].number() as usize];
            indices[*place as usize] = src[e].number() as u32;
            numbers[*place as usize] = e as u32;
            *place += 1;
        }
        let graph = Graph::of_sound_edges(indptr.into(), indices.into(), None).map_err(|e| e.to_string())?;
        let is_sorted = numbers.iter().enumerate().all(|(place, &e)| place == e as usize);
        Ok(Self { graph, numbers: (!is_sorted).then(|| numbers.into()) })
    }

    /// Builds the topology of compressed columns: `indices[indptr[v]..indptr[v + 1]]` are the
    /// in-neighbours of `v`. An edge's number is its position in `indices`.
    ///
    /// # Errors
    /// `indptr` does not ascend from 0 to the number of edges, or an id is out of range.
    pub fn from_columns<P: Id, I: Id>(indptr: &[P], indices: &[I]) -> Result<Self, String> {
        let num_nodes =
            indptr.len().checked_sub(1).ok_or("indptr is empty: it must have one entry more than nodes")?;
        if let Some((v, bad)) = indptr.iter().enumerate().find(|(_, p)| p.number() < 0) {
            return Err(format!("indptr[{v}] is {bad}: row starts must not be negative"));
        }
        check(num_nodes, "indices", indices)?;
        let indptr: Vec<u64> = indptr.iter().map(|p| p.number() as u64).collect();
        let indices: Vec<u32> = indices.iter().map(|u| u.number() as u32).collect();
        Ok(Graph::new(indptr.into(), indices.into()).map_err(|e| e.to_string())?.into())
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Replaces positions among the graph's edges by numbers in the user's list.
    pub fn number(&self, places: &mut [u64]) {
        const PREFETCH_DISTANCE: usize = 16;
        let Some(numbers) = &self.numbers else { return };
        for i in 0..places.len() {
            if let Some(&ahead) = places.get(i + PREFETCH_DISTANCE) {
                prefetch(numbers, ahead as usize);
            }
            places[i] = u64::from(numbers[places[i] as usize]);
        }
    }

    /// Reorders values of the user's edges to the order of the graph's edges.
    pub fn arrange<T: Copy>(&self, of_edges: &[T]) -> Vec<T> {
        match &self.numbers {
            None => of_edges.to_vec(),
            Some(numbers) => numbers.iter().map(|&e| of_edges[e as usize]).collect(),
        }
    }
}

/// Integer type of ids in arrays.
pub trait Id: Copy + Display + Send + Sync {
    /// Value as `i64`. A `u64` above `i64::MAX` becomes negative, and so is never a valid id.
    fn number(self) -> i64;
}

impl Id for i64 {
    fn number(self) -> i64 {
        self
    }
}

impl Id for i32 {
    fn number(self) -> i64 {
        self.into()
    }
}

impl Id for u32 {
    fn number(self) -> i64 {
        self.into()
    }
}

impl Id for u64 {
    fn number(self) -> i64 {
        self as i64
    }
}

/// Checks that all `ids` are below `num_nodes`.
///
/// # Errors
/// The first id out of range, with its position in the array called `what`.
pub fn check<I: Id>(num_nodes: usize, what: &str, ids: &[I]) -> Result<(), String> {
    let outside = |id: &I| id.number() < 0 || id.number() as u64 >= num_nodes as u64;
    match ids.iter().position(outside) {
        None => Ok(()),
        Some(at) => {
            Err(format!("{what}[{at}] is {}, but there are {num_nodes} nodes; ids start at 0", ids[at]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_keep_the_numbers_of_the_users_list() {
        let (src, dst) = ([3i64, 1, 0, 1, 1], [2i64, 0, 2, 2, 0]);
        let topology = Topology::from_edges(4, &src, &dst).unwrap();
        let graph = topology.graph();
        assert_eq!(graph.indptr(), [0, 2, 2, 5, 5]);
        let mut places: Vec<u64> = (0..5).collect();
        topology.number(&mut places);
        assert_eq!(places, [1, 4, 0, 2, 3]);
        assert!(places.iter().zip(graph.indices()).all(|(&e, &u)| src[e as usize] == i64::from(u)));
        assert_eq!(topology.arrange(&[10, 11, 12, 13, 14]), [11, 14, 10, 12, 13]);
        // a list in the graph's own order needs no numbers
        assert!(Topology::from_edges(4, &[1, 2], &[0, 3]).unwrap().numbers.is_none());
        let same = Topology::from_columns(&[0, 2, 2, 5, 5], &[1u32, 1, 3, 0, 1]).unwrap();
        assert_eq!((same.graph().indptr(), same.graph().indices()), (graph.indptr(), graph.indices()));
    }

    #[test]
    fn ids_out_of_range_are_named() {
        let error = |src: &[i64], dst: &[i64]| Topology::from_edges(3, src, dst).unwrap_err();
        assert!(error(&[0, -1], &[0, 1]).contains("edge_index[0][1] is -1"));
        assert!(error(&[0], &[3]).contains("edge_index[1][0] is 3, but there are 3 nodes"));
        assert!(error(&[0, 1], &[0]).contains("2 edge sources for 1 destinations"));
        assert!(Topology::from_columns::<i64, i64>(&[], &[]).unwrap_err().contains("empty"));
        assert!(Topology::from_columns(&[0i64, -1], &[0i32]).unwrap_err().contains("indptr[1] is -1"));
        assert!(Topology::from_columns(&[0u64, u64::MAX], &[0i32]).unwrap_err().contains("indptr[1]"));
        assert!(Topology::from_columns(&[0i32, 2, 1], &[0i32]).is_err());
        assert!(Topology::from_columns(&[0i32, 1], &[1u64 << 40]).unwrap_err().contains("1 nodes"));
        assert_eq!(Topology::from_edges::<i32>(0, &[], &[]).unwrap().graph().num_nodes(), 0);
    }
}
