//! Parts of generated graphs of several types: nodes by class, and edge types that are drawn in
//! batches and sorted within the memory budget of a scratch.

use graphmill_core::{NodeId, Result, keyed::Stream};

use super::{GenerateOptions, attributes::random_classes, draw};
use crate::{
    external::Scratch,
    typed::{EdgeColumns, EdgeSorter, SortedEdges, TypedBuilder},
};

/// Edges of a batch of reverses.
const EDGES: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// Nodes of a type by class.
pub(super) struct Members {
    pub(super) class: Vec<i32>,
    by_class: Vec<Vec<NodeId>>,
}

impl Members {
    /// Draws a class for each of `count` nodes.
    pub(super) fn random(count: usize, options: &GenerateOptions) -> Self {
        let class = random_classes(count, options.classes, options.seed);
        let mut by_class = vec![Vec::new(); options.classes];
        class.iter().enumerate().for_each(|(v, &c)| by_class[c as usize].push(v as NodeId));
        Self { class, by_class }
    }

    /// Number of nodes.
    pub(super) fn len(&self) -> usize {
        self.class.len()
    }

    /// A node of this class (modulo the number of classes) with probability `p_in`, otherwise any
    /// node. Each is as likely as the others.
    pub(super) fn draw(&self, stream: &mut Stream, class: usize, p_in: f64) -> NodeId {
        match self.members(stream, class, p_in) {
            Some(members) => members[stream.below(members.len() as u64) as usize],
            None => stream.below(self.len() as u64) as NodeId,
        }
    }

    /// As [`Members::draw`], but small ids are more likely: the expected degree of the node of rank
    /// `i` is proportional to `1 / sqrt(i)`.
    pub(super) fn draw_popular(&self, stream: &mut Stream, class: usize, p_in: f64) -> NodeId {
        let members = self.members(stream, class, p_in);
        let count = members.map_or(self.len(), <[NodeId]>::len);
        let rank = ((stream.uniform().powi(2) * count as f64) as usize).min(count - 1);
        members.map_or(rank as NodeId, |members| members[rank])
    }

    /// Nodes of the class, with probability `p_in` and if there are any.
    fn members(&self, stream: &mut Stream, class: usize, p_in: f64) -> Option<&[NodeId]> {
        let members = &self.by_class[class % self.by_class.len()];
        (!members.is_empty() && stream.uniform() < p_in).then_some(members)
    }
}

/// An edge type to add.
pub(super) struct Relation<'a> {
    /// Source type, name and destination type.
    pub(super) ends: [&'a str; 3],
    /// Numbers of sources and of destinations.
    pub(super) nodes: [usize; 2],
    /// Name of the edge type of the reverses, if they are stored; that of the edge type itself
    /// stores each edge in both directions.
    pub(super) reverse: Option<&'a str>,
}

impl Relation<'_> {
    /// Adds the edges from `edge(e).0` to `edge(e).1` of `draws` draws, and their reverses.
    ///
    /// # Errors
    /// Writing to the scratch directory fails.
    pub(super) fn add(
        &self,
        builder: &mut TypedBuilder,
        scratch: &Scratch,
        draws: usize,
        edge: impl Fn(u64) -> (NodeId, NodeId) + Sync,
    ) -> Result<()> {
        let [source, name, destination] = self.ends;
        let mut sorter = self.sorter(scratch, name, self.nodes)?;
        draw::edges(scratch, draws, &edge, |from, to| sorter.extend(from, to, &[], &[], &[]))?;
        if self.reverse == Some(name) {
            draw::edges(scratch, draws, &edge, |from, to| sorter.extend(to, from, &[], &[], &[]))?;
        }
        let sorted = sorter.finish()?;
        let reversed = match self.reverse {
            Some(back) if back != name => Some((back, self.reversed(scratch, back, &sorted)?)),
            _ => None,
        };
        let edges = builder.edge_type(source, name, destination).sorted(sorted);
        if let Some(back) = self.reverse {
            edges.reverse_of(back);
        }
        if let Some((back, reversed)) = reversed {
            builder.edge_type(destination, back, source).sorted(reversed).reverse_of(name);
        }
        Ok(())
    }

    fn sorter(&self, scratch: &Scratch, name: &str, nodes: [usize; 2]) -> Result<EdgeSorter> {
        let [source, _, destination] = self.ends;
        let file = format!("{source}-{name}-{destination}");
        EdgeSorter::new(scratch, &file, nodes, EdgeColumns::default())
    }

    /// Sorts the reverses of sorted edges, which are read in their order.
    fn reversed(&self, scratch: &Scratch, name: &str, edges: &SortedEdges) -> Result<SortedEdges> {
        let [sources, destinations] = self.nodes;
        let mut sorter = self.sorter(scratch, name, [destinations, sources])?;
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for v in 0..destinations {
            let row = edges.indptr[v] as usize..edges.indptr[v + 1] as usize;
            from.resize(from.len() + row.len(), v as NodeId);
            to.extend_from_slice(&edges.indices[row]);
            if from.len() >= EDGES || v + 1 == destinations {
                sorter.extend(&from, &to, &[], &[], &[])?;
                from.clear();
                to.clear();
            }
        }
        sorter.finish()
    }
}
