//! A graph that has every edge both ways, with each edge kept once.

use rayon::prelude::*;

use crate::{Buffer, Graph, NodeId, Result, among};

/// The edges of a symmetric graph, each in the row of the end that has fewer neighbours; of two with as many, of the smaller id. A self-loop
/// is in its node's row.
///
/// It is what algorithms that count triangles read (Chiba and Nishizeki, *Arboricity and subgraph listing algorithms*, SIAM Journal on
/// Computing 1985; Latapy, *Main-memory triangle computations for very large (sparse (power-law)) graphs*, 2008, section 3): no row has more than
/// `sqrt(2 E)` neighbours, for each of them has as many itself. To find the edges among some nodes it is as good, as every
/// edge stands in the row of one of its ends: a hub's long row is never read for the few of its neighbours that are among them.
///
/// Memory: 8 bytes a node, 2 an edge of the graph.
#[derive(Clone, Debug)]
pub struct Oriented {
    indptr: Vec<u64>,
    indices: Buffer<NodeId>,
}

impl Oriented {
    /// Of a graph that [is symmetric](crate::symmetry::is_symmetric), whose rows are sorted: as the new ones then are. O(V + E), parallel.
    ///
    /// # Errors
    /// The memory cannot be had.
    pub fn new(graph: &Graph) -> Result<Self> {
        let nodes = graph.num_nodes();
        let degrees: Vec<u32> = (0..nodes as NodeId)
            .into_par_iter()
            .map(|v| u32::try_from(graph.in_degree(v)).unwrap_or(u32::MAX))
            .collect();
        let degrees = &degrees[..];
        let kept = |v: usize| {
            let own = (degrees[v], v as NodeId);
            let row = graph.in_neighbors(v as NodeId).iter().copied();
            row.filter(move |&u| (degrees[u as usize], u) >= own)
        };
        let mut indptr = vec![0u64; nodes + 1];
        indptr[1..]
            .par_iter_mut()
            .enumerate()
            .with_min_len(1 << 10)
            .for_each(|(v, n)| *n = kept(v).count() as u64);
        for v in 0..nodes {
            indptr[v + 1] += indptr[v];
        }
        let indices = Buffer::filled_huge_pages(indptr[nodes] as usize, |indices| {
            among::fill(&indptr, indices, 0, &|v, row: &mut [NodeId]| {
                row.iter_mut().zip(kept(v)).for_each(|(slot, u)| *slot = u);
            });
            Ok(())
        })?;
        Ok(Self { indptr, indices })
    }

    /// `V`.
    pub fn num_nodes(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Edges, each counted once.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// Where each row begins, `V + 1`.
    #[inline]
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// The rows, one behind the other.
    #[inline]
    pub fn indices(&self) -> &[NodeId] {
        &self.indices
    }

    /// What part of the neighbours in the rows of `graph` is in these rows, where nodes come by their degree, as they do in what samplers
    /// draw: about a half where degrees are alike, little where they are not. O(V), parallel.
    pub fn share(&self, graph: &Graph) -> f64 {
        let row = |v: usize| {
            let degree = graph.in_degree(v as NodeId) as f64;
            [degree * (self.indptr[v + 1] - self.indptr[v]) as f64, degree * degree]
        };
        let add = |a: [f64; 2], b: [f64; 2]| [a[0] + b[0], a[1] + b[1]];
        let [here, there] = (0..self.num_nodes()).into_par_iter().map(row).reduce(|| [0.0; 2], add);
        if there > 0.0 { here / there } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{EdgeOptions, build};

    proptest! {
        #[test]
        fn every_edge_is_kept_once_at_its_lighter_end(edges in prop::collection::vec((0u32..30, 0u32..30), 0..200)) {
            let (src, dst): (Vec<u32>, Vec<u32>) = edges.into_iter().unzip();
            let options = EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED };
            let graph = build(30, &src, &dst, options).unwrap();
            let oriented = Oriented::new(&graph).unwrap();
            let mut both = vec![Vec::new(); 30];
            for v in 0..30u32 {
                let row = &oriented.indices()[oriented.indptr()[v as usize] as usize..oriented.indptr()[v as usize + 1] as usize];
                prop_assert!(row.is_sorted());
                for &u in row {
                    prop_assert!((graph.in_degree(v), v) <= (graph.in_degree(u), u));
                    both[v as usize].push(u);
                    if u != v {
                        both[u as usize].push(v);
                    }
                }
            }
            for (v, row) in (0..).zip(&mut both) {
                row.sort_unstable();
                prop_assert_eq!(&row[..], graph.in_neighbors(v));
            }
            prop_assert!((0.0..=1.0).contains(&oriented.share(&graph)));
        }
    }

    #[test]
    fn a_hub_has_no_row() {
        let graph = build(9, &[0; 8], &[1, 2, 3, 4, 5, 6, 7, 8], EdgeOptions { undirected: true, ..EdgeOptions::DIRECTED }).unwrap();
        let oriented = Oriented::new(&graph).unwrap();
        assert_eq!(oriented.indptr(), [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert!((oriented.share(&graph) - 8.0 / 72.0).abs() < 1e-12);
        let empty = Oriented::new(&Graph::default()).unwrap();
        assert_eq!((empty.num_nodes(), empty.num_edges()), (0, 0));
    }
}
