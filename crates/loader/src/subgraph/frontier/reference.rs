//! References of the tests and the bench: frontier sampling as published, with O(m) per pop
//! (algorithm 2) and with the Dashboard (algorithms 3 and 4).

use graphmill_core::{Graph, NodeId, keyed::Stream};

/// Method of choosing a node of the frontier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// "Partitioning the total probability of 1 into m intervals" (section 4.1): probabilities `deg
    /// / sum` and their ends in f64.
    Intervals,
    /// The same with integers: weights stored beside the frontier, their running sums and a binary
    /// search. The fastest O(m) method without explicit vector instructions.
    RunningSums,
}

/// All nodes that were ever in the frontier, in the order in which they joined.
pub(crate) fn walk(
    graph: &Graph,
    roots: &[NodeId],
    (frontier, budget, cap): (usize, usize, u32),
    choice: Choice,
    mut stream: Stream,
) -> Vec<NodeId> {
    let weight = |v: NodeId| (graph.in_degree(v) as u64).min(u64::from(cap));
    let mut front: Vec<NodeId> =
        (0..frontier).map(|_| roots[stream.below(roots.len() as u64) as usize]).collect();
    let mut nodes = front.clone();
    let mut weights: Vec<u64> = front.iter().map(|&v| weight(v)).collect();
    let (mut sums, mut ends) = (vec![0; frontier], vec![0.0; frontier]);
    for _ in frontier..budget {
        let popped = match choice {
            Choice::Intervals => {
                let sum: u64 = weights.iter().sum();
                let mut end = 0.0;
                for (interval, &weight) in ends.iter_mut().zip(&weights) {
                    end += weight as f64 / sum as f64;
                    *interval = end;
                }
                let dart = stream.uniform();
                // rounding may leave the last end below 1
                let last = weights.iter().rposition(|&w| w > 0);
                last.map(|last| ends.partition_point(|&end| end <= dart).min(last))
            }
            Choice::RunningSums => {
                let mut sum = 0;
                for (end, weight) in sums.iter_mut().zip(&weights) {
                    sum += weight;
                    *end = sum;
                }
                (sum > 0).then(|| {
                    let dart = stream.below(sum);
                    sums.partition_point(|&end| end <= dart)
                })
            }
        };
        let Some(popped) = popped else { break };
        let row = graph.in_neighbors(front[popped]);
        let new = row[stream.below(row.len() as u64) as usize];
        front[popped] = new;
        weights[popped] = weight(new);
        nodes.push(new);
    }
    nodes
}

/// Pin of a popped node.
const NULL: u16 = u16::MAX;

/// Node of the frontier, or one that was popped.
#[derive(Clone, Copy, Default)]
struct Tile {
    node: NodeId,
    /// Its pins.
    start: usize,
    end: usize,
    /// Its column of the index array.
    column: usize,
}

/// Dashboard of algorithms 3 and 4 on one processor: a pop sets the pins to NULL and the flag of
/// the index array to false, and a clean-up moves the pins of the flagged columns.
///
/// Differences, which favour it: a pin is the 16-bit number of a tile in the place of an address,
/// and the board has `eta` times the live pins, so that it holds the hubs of skewed graphs.
pub(crate) struct Dashboard {
    eta: f64,
    board: Vec<u16>,
    spare: Vec<u16>,
    /// First pin, tile and flag of each column.
    columns: Vec<(usize, u16, bool)>,
    tiles: Vec<Tile>,
    used: usize,
    live: usize,
}

impl Dashboard {
    /// Walks as [`walk`] does, with a board of `eta` times the live pins.
    pub(crate) fn walk(
        graph: &Graph,
        roots: &[NodeId],
        (frontier, budget, cap): (usize, usize, u32),
        eta: f64,
        mut stream: Stream,
    ) -> Vec<NodeId> {
        let weight = |v: NodeId| graph.in_degree(v).min(cap as usize);
        let mut nodes: Vec<NodeId> =
            (0..frontier).map(|_| roots[stream.below(roots.len() as u64) as usize]).collect();
        let live: usize = nodes.iter().map(|&v| weight(v)).sum();
        let mut all = Self {
            eta,
            board: vec![NULL; (live as f64 * eta) as usize],
            spare: Vec::new(),
            columns: Vec::new(),
            tiles: vec![Tile::default(); frontier],
            used: 0,
            live: 0,
        };
        for (tile, &v) in nodes.iter().enumerate() {
            all.add(tile as u16, v, weight(v));
        }
        while nodes.len() < budget && all.live > 0 {
            let tile = all.pop(&mut stream);
            let row = graph.in_neighbors(all.tiles[usize::from(tile)].node);
            let new = row[stream.below(row.len() as u64) as usize];
            if all.used + weight(new) > all.board.len() {
                all.clean_up(weight(new));
            }
            all.add(tile, new, weight(new));
            nodes.push(new);
        }
        nodes
    }

    fn pop(&mut self, stream: &mut Stream) -> u16 {
        let pin = loop {
            let pin = self.board[stream.below(self.board.len() as u64) as usize];
            if pin != NULL {
                break pin;
            }
        };
        let Tile { start, end, column, .. } = self.tiles[usize::from(pin)];
        self.board[start..end].fill(NULL);
        self.columns[column].2 = false;
        self.live -= end - start;
        pin
    }

    fn clean_up(&mut self, new: usize) {
        let size = ((self.live as f64 * self.eta) as usize).max(self.live + new);
        self.spare.clear();
        self.spare.resize(size, NULL);
        self.columns.retain(|&(.., is_live)| is_live);
        self.used = 0;
        for (column, (first, tile, _)) in self.columns.iter_mut().enumerate() {
            let tile = &mut self.tiles[usize::from(*tile)];
            let pins = &self.board[tile.start..tile.end];
            *first = self.used;
            self.spare[self.used..self.used + pins.len()].copy_from_slice(pins);
            *tile = Tile { start: self.used, end: self.used + pins.len(), column, ..*tile };
            self.used = tile.end;
        }
        std::mem::swap(&mut self.board, &mut self.spare);
    }

    fn add(&mut self, tile: u16, node: NodeId, weight: usize) {
        let (start, end) = (self.used, self.used + weight);
        self.tiles[usize::from(tile)] = Tile { node, start, end, column: self.columns.len() };
        self.columns.push((start, tile, true));
        self.board[start..end].fill(tile);
        self.used = end;
        self.live += weight;
    }
}
