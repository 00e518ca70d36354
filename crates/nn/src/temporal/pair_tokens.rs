//! The histories of pairs of nodes as sequences of tokens, in patches.

use graphmill_core::{
    Block, NodeId,
    memory::{demand_extend, demand_len, demand_push},
};

use crate::View;

/// Absent row of a [`Token`].
const NONE: u32 = u32::MAX;

/// Rows of events from which a model of pairs reads the histories of both ends.
#[derive(Clone, Copy, Debug)]
pub struct PairInput<'a> {
    /// Events of each row: a local block.
    pub block: &'a Block,
    /// Node of each source of the block, `S`.
    pub nodes: &'a [NodeId],
    /// Features of these nodes, `S x F`; constants.
    pub x: View<'a>,
    /// Features of the events, `E x K`.
    pub edges: View<'a>,
    /// Time since each event, `E`.
    pub differences: &'a [f64],
    /// Row of the source of each pair, `P`.
    pub source: &'a [NodeId],
    /// Row of the destination of each pair, `P`.
    pub destination: &'a [NodeId],
}

/// A node of a history, with the event that links it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    node: u32,
    edge: u32,
    /// Time since the event.
    pub(super) since: f64,
    /// Occurrences of the node in the history of the source, and in that of the destination.
    pub(super) counts: [u32; 2],
}

impl Token {
    /// Token that fills a patch.
    const PADDING: Self = Self { node: NONE, edge: NONE, since: 0.0, counts: [0; 2] };

    /// Row of the node; `None` for padding.
    pub(super) fn node(&self) -> Option<usize> {
        (self.node != NONE).then_some(self.node as usize)
    }

    /// Row of the event; `None` for padding and for the own node of a history.
    pub(super) fn edge(&self) -> Option<usize> {
        (self.edge != NONE).then_some(self.edge as usize)
    }
}

/// Tokens of the pairs of a batch. Sequence `2 p` is the history of the source of pair `p`, and
/// `2 p + 1` that of its destination. Each begins with the node itself and has a whole number of
/// patches.
#[derive(Clone, Debug, Default)]
pub(super) struct PairTokens {
    /// All tokens; those of a patch are adjacent.
    pub(super) tokens: Vec<Token>,
    /// First patch of each sequence, then the number of patches.
    pub(super) first: Vec<usize>,
    /// Sequence of each patch.
    pub(super) sequence: Vec<u32>,
    /// Edges to each patch from all patches of its pair, itself included.
    pub(super) block: Block,
    /// Nodes of both histories of a pair, ascending.
    sorted: [Vec<NodeId>; 2],
}

impl PairTokens {
    /// Takes the histories of all pairs, in patches of `patch` tokens, with the transposed edges if
    /// `is_training`.
    ///
    /// # Panics
    /// A pair has more than 2^32 / 2 edges between patches in all batches: a bug in the caller.
    pub(super) fn fill(&mut self, input: &PairInput, patch: usize, is_training: bool) {
        let Self { tokens, first, sequence, sorted, .. } = self;
        tokens.clear();
        sequence.clear();
        first.clear();
        demand_push(first, 0);
        for (&source, &destination) in input.source.iter().zip(input.destination) {
            let rows = [source as usize, destination as usize];
            for (sorted, row) in sorted.iter_mut().zip(rows) {
                sorted.clear();
                demand_extend(sorted, history(input, row).map(|(node, _)| input.nodes[node]));
                sorted.sort_unstable();
            }
            for row in rows {
                for (node, edge) in history(input, row) {
                    let token = Token {
                        node: node as u32,
                        edge: edge.map_or(NONE, |e| e as u32),
                        since: edge.map_or(0.0, |e| input.differences[e]),
                        counts: [0, 1].map(|end: usize| count(&sorted[end], input.nodes[node])),
                    };
                    demand_push(tokens, token);
                }
                let len = tokens.len().next_multiple_of(patch);
                demand_len(tokens, len, Token::PADDING);
                let number = first.len() as u32 - 1;
                demand_push(first, tokens.len() / patch);
                demand_len(sequence, tokens.len() / patch, number);
            }
        }
        self.link(is_training);
    }

    /// Links all patches of each pair.
    fn link(&mut self, is_training: bool) {
        let Self { first, block, .. } = self;
        block.clear();
        block.num_dst = first.last().copied().unwrap_or(0);
        block.num_src = block.num_dst;
        demand_push(&mut block.indptr, 0);
        for pair in 0..(first.len() - 1) / 2 {
            let (start, end) = (first[2 * pair], first[2 * pair + 2]);
            for _ in start..end {
                demand_extend(&mut block.indices, start as NodeId..end as NodeId);
                let edges = u32::try_from(block.indices.len()).expect("patches of a batch");
                demand_push(&mut block.indptr, edges);
            }
        }
        if is_training {
            block.transpose();
        }
    }

    /// Largest number of occurrences of a token.
    pub(super) fn max_count(&self) -> u32 {
        self.tokens.iter().flat_map(|token| token.counts).max().unwrap_or(0)
    }

    /// Patches of sequence `s`.
    pub(super) fn patches(&self, s: usize) -> std::ops::Range<usize> {
        self.first[s]..self.first[s + 1]
    }
}

/// Rows of the nodes of a history, each with its event: the row's own node, then its neighbours.
fn history<'a>(input: &PairInput<'a>, row: usize) -> impl Iterator<Item = (usize, Option<usize>)> + use<'a> {
    let block = input.block;
    std::iter::once((row, None)).chain(block.edges(row).map(|e| (block.indices[e] as usize, Some(e))))
}

/// Occurrences of `node` in an ascending list.
fn count(sorted: &[NodeId], node: NodeId) -> u32 {
    let from = sorted.partition_point(|&v| v < node);
    sorted[from..].partition_point(|&v| v == node) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    #[test]
    fn histories_begin_with_their_node_and_count_common_neighbours() {
        // rows 0 and 1 are nodes 7 and 9; their events lead to 9, 5, 5 and to 5
        let block = Block {
            num_dst: 2,
            num_src: 6,
            indptr: vec![0, 3, 4],
            indices: vec![2, 3, 4, 5],
            ..Block::default()
        };
        let (x, edges) = (Matrix::zeros(6, 0), Matrix::zeros(4, 0));
        let input = PairInput {
            block: &block,
            nodes: &[7, 9, 9, 5, 5, 5],
            x: x.view(),
            edges: edges.view(),
            differences: &[4.0, 3.0, 2.0, 1.0],
            source: &[0],
            destination: &[1],
        };
        let mut of = PairTokens::default();
        of.fill(&input, 3, true);
        assert_eq!((&of.first[..], &of.sequence[..]), (&[0, 2, 3][..], &[0, 0, 1][..]));
        let rows: Vec<_> = of.tokens.iter().map(|token| (token.node(), token.edge())).collect();
        let padding = (None, None);
        assert_eq!(rows[..4], [(Some(0), None), (Some(2), Some(0)), (Some(3), Some(1)), (Some(4), Some(2))]);
        assert_eq!(rows[4..], [padding, padding, (Some(1), None), (Some(5), Some(3)), padding]);
        let counts: Vec<[u32; 2]> = of.tokens.iter().map(|token| token.counts).collect();
        assert_eq!(counts[..4], [[1, 0], [1, 1], [2, 1], [2, 1]]);
        assert_eq!(counts[4..], [[0, 0], [0, 0], [1, 1], [2, 1], [0, 0]]);
        assert_eq!((of.max_count(), of.tokens[3].since, of.patches(0)), (2, 2.0, 0..2));
        assert_eq!((of.block.num_edges(), of.block.edges(2)), (9, 6..9));
        assert!(of.block.is_transposed());
    }
}
