//! Who hears from whom, as the user stored it: edges keep the numbers that they have in the user's
//! list.

use std::fmt::Display;

use graphmill_core::{Buffer, Graph, prefetch::prefetch};

/// A graph, and which edge of the user's list each of its edges is.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    graph: Graph,
    /// The user's number of the edge at each place of [`Graph::indices`]; `None`: the same.
    numbers: Option<Buffer<u32>>,
}

impl From<Graph> for Topology {
    fn from(graph: Graph) -> Self {
        Self { graph, numbers: None }
    }
}

impl Topology {
    /// Of edges `src[e]` to `dst[e]` between `num_nodes` nodes, in any order, repeated ones kept.
    /// Within a row edges stay in the order of the list. O(V + E), one thread.
    ///
    /// # Errors
    /// The lists differ in length or hold 2^32 edges or more; an id is negative or not below
    /// `num_nodes`.
    pub fn from_edges<I: Id>(num_nodes: usize, src: &[I], dst: &[I]) -> Result<Self, String> {
        if src.len() != dst.len() {
            return Err(format!("{} edge sources for {} destinations", src.len(), dst.len()));
        }
        if src.len() > u32::MAX as usize {
            return Err(format!(
                "{} edges: an edge list has fewer than 2^32; open a dataset directory instead",
                src.len()
            ));
        }
        check(num_nodes, "edge_index[0]", src)?;
        check(num_nodes, "edge_index[1]", dst)?;
        let mut indptr = vec![0u64; num_nodes + 1];
        dst.iter().for_each(|v| indptr[v.number() as usize + 1] += 1);
        for v in 0..num_nodes {
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
        let graph = Graph::new(indptr.into(), indices.into()).map_err(|e| e.to_string())?;
        let is_sorted = numbers.iter().enumerate().all(|(place, &e)| place == e as usize);
        Ok(Self { graph, numbers: (!is_sorted).then(|| numbers.into()) })
    }

    /// Of compressed columns: `indices[indptr[v]..indptr[v + 1]]` send to `v`. An edge's number is
    /// its place in `indices`.
    ///
    /// # Errors
    /// `indptr` does not run from 0 to the number of edges, or decreases; an id is out of range.
    pub fn from_columns<P: Id, I: Id>(indptr: &[P], indices: &[I]) -> Result<Self, String> {
        let num_nodes = indptr
            .len()
            .checked_sub(1)
            .ok_or("indptr is empty: it has one entry more than there are nodes")?;
        if let Some((v, bad)) = indptr.iter().enumerate().find(|(_, p)| p.number() < 0) {
            return Err(format!("indptr[{v}] is {bad}: row starts are not negative"));
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

    /// Replaces places among the graph's edges by the user's numbers.
    pub fn number(&self, places: &mut [u64]) {
        const AHEAD: usize = 16;
        let Some(numbers) = &self.numbers else { return };
        for i in 0..places.len() {
            if let Some(&ahead) = places.get(i + AHEAD) {
                prefetch(numbers, ahead as usize);
            }
            places[i] = u64::from(numbers[places[i] as usize]);
        }
    }

    /// Values of the user's edges, in the order of the graph's.
    pub fn arrange<T: Copy>(&self, of_edges: &[T]) -> Vec<T> {
        match &self.numbers {
            None => of_edges.to_vec(),
            Some(numbers) => numbers.iter().map(|&e| of_edges[e as usize]).collect(),
        }
    }
}

/// A signed or unsigned whole number as arrays hold them.
pub trait Id: Copy + Display + Send + Sync {
    /// Its value. A `u64` beyond the largest `i64` is negative, and so never an id.
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

/// That all of `ids` are nodes.
///
/// # Errors
/// The first that is not, by its place in the array called `what`.
pub fn check<I: Id>(num_nodes: usize, what: &str, ids: &[I]) -> Result<(), String> {
    let outside = |id: &I| id.number() < 0 || id.number() as u64 >= num_nodes as u64;
    match ids.iter().position(outside) {
        None => Ok(()),
        Some(at) => {
            Err(format!("{what}[{at}] is {}, but there are {num_nodes} nodes: ids run from 0 on", ids[at]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_keep_their_numbers() {
        let (src, dst) = ([3i64, 1, 0, 1, 1], [2i64, 0, 2, 2, 0]);
        let topology = Topology::from_edges(4, &src, &dst).unwrap();
        let graph = topology.graph();
        assert_eq!(graph.indptr(), [0, 2, 2, 5, 5]);
        let mut places: Vec<u64> = (0..5).collect();
        topology.number(&mut places);
        assert_eq!(places, [1, 4, 0, 2, 3]);
        assert!(places.iter().zip(graph.indices()).all(|(&e, &u)| src[e as usize] == i64::from(u)));
        assert_eq!(topology.arrange(&[10, 11, 12, 13, 14]), [11, 14, 10, 12, 13]);
        // a list in the graph's own order is not numbered
        assert!(Topology::from_edges(4, &[1, 2], &[0, 3]).unwrap().numbers.is_none());
        let same = Topology::from_columns(&[0, 2, 2, 5, 5], &[1u32, 1, 3, 0, 1]).unwrap();
        assert_eq!((same.graph().indptr(), same.graph().indices()), (graph.indptr(), graph.indices()));
    }

    #[test]
    fn what_is_no_node_is_named() {
        let said = |src: &[i64], dst: &[i64]| Topology::from_edges(3, src, dst).unwrap_err();
        assert!(said(&[0, -1], &[0, 1]).contains("edge_index[0][1] is -1"));
        assert!(said(&[0], &[3]).contains("edge_index[1][0] is 3, but there are 3 nodes"));
        assert!(said(&[0, 1], &[0]).contains("2 edge sources for 1 destinations"));
        assert!(Topology::from_columns::<i64, i64>(&[], &[]).unwrap_err().contains("empty"));
        assert!(Topology::from_columns(&[0i64, -1], &[0i32]).unwrap_err().contains("indptr[1] is -1"));
        assert!(Topology::from_columns(&[0u64, u64::MAX], &[0i32]).unwrap_err().contains("indptr[1]"));
        assert!(Topology::from_columns(&[0i32, 2, 1], &[0i32]).is_err());
        assert!(Topology::from_columns(&[0i32, 1], &[1u64 << 40]).unwrap_err().contains("1 nodes"));
        assert_eq!(Topology::from_edges::<i32>(0, &[], &[]).unwrap().graph().num_nodes(), 0);
    }
}
