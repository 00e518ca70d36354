//! Proximity-aware ordering: nearby training nodes in consecutive batches.
//!
//! Training nodes are ordered as a breadth-first search meets them, so consecutive batches read
//! much the same rows, and even a FIFO cache hits. Two kinds of randomness keep a batch close to a
//! random one: several searches from random roots, and circular shifts, new ones every epoch, of
//! the `S` sequences from which a batch takes its seeds in turn.
//!
//! # Algorithm
//!
//! **Searches.** [`ROOTS`] searches run side by side over the whole graph and follow in-neighbours,
//! as a sampler does. They record the training nodes alone. Roots are training nodes; nodes that a
//! search does not reach are searched from the next unmet training node after the root, in circular
//! order, so every sequence has every training node once. A plain breadth-first search leaves a
//! community by every edge that does, and from then on visits all communities at once. Therefore
//! the queued node with the largest share of its neighbourhood met goes first (in sixteenths; ties
//! are first come, first served, which is plain breadth-first search if all shares are equal): a
//! community is finished before the next begins.
//!
//! **An epoch** takes one of the searches, shifts it by a random number, cuts it into `S` runs of
//! equal length, and goes around the runs, one node of each. So a batch of `b` seeds has `b / S`
//! neighbouring nodes from each of `S` regions, and the next batch continues in the same regions.
//!
//! **The number of sequences** is the smallest of 1, 2, 4, ... whose shuffling error
//! ([`shuffling_error`], the mean of [`EPOCHS`] epochs) is within a bound. The paper's error is a
//! distance from the uniform order, and its bound is `sqrt(b M) / T` for `M` workers. Estimated by
//! the labels of batches, even a uniform order has an error of about `sqrt(C / b)`, so the excess
//! over a random order's error is compared. But few batches resolve only about `sqrt(C / T)`, far
//! above that bound; taken literally, only `S = b` would satisfy it. So the bound is at least the
//! error of random batches of `b /` [`TOLERANCE`] seeds, a batch size that also trains well. If no
//! number up to `b` is within the bound, `S` is the largest number tried.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*,
//! NSDI 2023, section 3.2.2; the bound is that of Meng et al., *Convergence analysis of distributed
//! stochastic gradient descent with shuffling*, Neurocomputing 2019, for the distribution over all
//! permutations.
//!
//! # Cost
//!
//! O([`ROOTS`] (V + E)) once (a node is queued at most once for each sixteenth), with as many
//! searches at a time as there are threads; O(T) per epoch.
//!
//! # Memory
//!
//! `4 T` bytes per root, and while searching `2 V` bytes and the queues per thread.
//!
//! # Deviations
//!
//! An epoch follows the paper's figure (and its released code, in which sequence `i` is shifted by
//! `i T / S`) with all sequences of an epoch from one root, because an epoch has each node once;
//! `S` interleaved searches from `S` roots would have each node `S` times. Skipping the nodes that
//! another sequence has already taken leaves gaps that grow until neighbours are rare at the end of
//! the epoch: FIFO with a tenth of the rows hit 27 % with skipping, 33 % with runs of plain
//! breadth-first searches, and 52 % with runs of the searches above (300,000 nodes in 300
//! communities, 99 % of edges inside, 10 % training, fanout 10,5, b = 256, S = 16; 18 % in random
//! order).

use std::collections::VecDeque;

use clap::Args;
use graphmill_core::{
    Graph, NodeId, Result,
    keyed::{Stream, key},
    memory,
    options::{Fault, OptionSet, range},
    progress::{Progress, Unit},
};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{OrderSource, SeedOrder, random::Random, shuffling_error};

/// Number of breadth-first searches from which epochs choose.
pub const ROOTS: usize = 8;
/// Ratio of the batch size to the number of random seeds whose label mix is still accepted.
pub const TOLERANCE: usize = 4;
/// Number of epochs over which the shuffling error is averaged.
pub const EPOCHS: u64 = 4;

/// Number of steps in which a search measures the share of a neighbourhood that it has met.
const LEVELS: usize = 16;

/// Keys of the draws.
const ROOT: u64 = 0x726f_6f74;
const SHIFT: u64 = 0x73_6869_6674;

/// Options of [`Proximity`].
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProximityOptions {
    /// Number of sequences that a batch mixes; 0 chooses one.
    ///
    /// A sequence is a run of nodes that lie close together. By default, the smallest number that
    /// mixes labels well is chosen. Fewer sequences raise the hit rate of caches, and more bring
    /// batches closer to random ones.
    #[arg(long, value_name = "N")]
    pub order_sequences: usize,
}

impl OptionSet for ProximityOptions {
    fn check(&self) -> Result<(), Fault> {
        range("order_sequences", self.order_sequences, ..=u32::MAX as usize)
    }
}

/// Proximity-aware order of the training nodes.
#[derive(Clone, Debug)]
pub struct Proximity {
    seed: u64,
    /// All training nodes in the order of each search.
    searches: Vec<Vec<NodeId>>,
    sequences: usize,
    choice: Option<String>,
}

impl Proximity {
    /// Runs the searches for batches of `batch_size` seeds, and chooses the number of sequences
    /// unless `options` sets it. O([`ROOTS`] (V + E)), parallel.
    ///
    /// # Errors
    /// The progress of the source stops the searches.
    pub fn new(
        options: &ProximityOptions,
        seed: u64,
        batch_size: usize,
        source: &OrderSource,
    ) -> Result<Self> {
        let mut order = Self {
            seed,
            searches: match source.searches {
                Some(searches) => searches.to_vec(),
                None => searches(source.graph, source.train, seed, source.progress)?,
            },
            sequences: options.order_sequences,
            choice: None,
        };
        if order.sequences == 0 {
            order.choose(batch_size.max(1), source);
        }
        Ok(order)
    }

    /// Number of sequences `S`.
    pub fn sequences(&self) -> usize {
        self.sequences
    }

    /// Sets `S` to the smallest number within the bound.
    fn choose(&mut self, batch: usize, source: &OrderSource) {
        let nodes = source.train.len();
        self.sequences = 1;
        if nodes <= batch {
            return;
        }
        let error = |order: &dyn SeedOrder, batch: usize| {
            let mut out = Vec::new();
            let error_of = |epoch| {
                order.order(epoch, &mut out);
                shuffling_error(&out, batch, source.labels)
            };
            (0..EPOCHS).map(error_of).sum::<f64>() / EPOCHS as f64
        };
        let random = Random::new(source.train, self.seed);
        let [uniform, accepted] = [batch, batch.div_ceil(TOLERANCE)].map(|batch| error(&random, batch));
        let bound = accepted.max(uniform + (batch as f64).sqrt() / nodes as f64);
        let found = loop {
            let found = error(self, batch);
            if found <= bound || self.sequences * 2 > batch {
                break found;
            }
            self.sequences *= 2;
        };
        self.choice = Some(format!(
            "--order proximity interleaves {} sequences: shuffling error {found:.4}, with random order \
             {uniform:.4}, bound {bound:.4}",
            self.sequences
        ));
    }
}

impl SeedOrder for Proximity {
    fn order(&self, epoch: u64, out: &mut Vec<NodeId>) {
        out.clear();
        let mut stream = Stream::new(key(&[self.seed, epoch, SHIFT]));
        let search = &self.searches[stream.below(self.searches.len() as u64) as usize];
        let nodes = search.len();
        if nodes == 0 {
            return;
        }
        let shift = stream.below(nodes as u64) as usize;
        let runs = self.sequences.min(nodes);
        let begin = |run: usize| (run as u128 * nodes as u128 / runs as u128) as usize;
        memory::demand(out, nodes);
        // the lengths of runs differ by at most one: the longer ones have a node for the last round
        for round in 0..nodes.div_ceil(runs) {
            for run in 0..runs {
                let at = begin(run) + round;
                if at < begin(run + 1) {
                    let shifted = at + shift;
                    out.push(search[if shifted < nodes { shifted } else { shifted - nodes }]);
                }
            }
        }
    }

    fn choice(&self) -> Option<String> {
        self.choice.clone()
    }
}

/// Training nodes in the order in which breadth-first searches from [`ROOTS`] random roots meet
/// them. O([`ROOTS`] (V + E)), parallel.
///
/// # Errors
/// `progress` stops the searches.
pub fn searches(
    graph: &Graph,
    train: &[NodeId],
    seed: u64,
    progress: &dyn Progress,
) -> Result<Vec<Vec<NodeId>>> {
    progress.stage("searching the order of proximity", None, Unit::Rows);
    let mut is_training = Bits::new(graph.num_nodes());
    train.iter().for_each(|&v| _ = is_training.insert(v));
    (0..ROOTS as u64)
        .into_par_iter()
        .map(|number| {
            let root = Stream::new(key(&[seed, number, ROOT])).below(train.len() as u64) as usize;
            search(graph, train, (&is_training, root), progress)
        })
        .collect()
}

/// Number of steps of a search between two checks of its progress.
const CHECKED_STEPS: u32 = 1 << 12;

/// Training nodes in the order of a search from the `root`-th of them.
///
/// # Errors
/// `progress` stops the search.
fn search(
    graph: &Graph,
    train: &[NodeId],
    (is_training, root): (&Bits, usize),
    progress: &dyn Progress,
) -> Result<Vec<NodeId>> {
    let mut steps = 0u32;
    let mut met = Bits::new(graph.num_nodes());
    // number of met out-neighbours of each node
    let mut met_degree = vec![0u16; graph.num_nodes()];
    let mut queues: Vec<VecDeque<NodeId>> = vec![VecDeque::new(); LEVELS + 1];
    let mut order = Vec::with_capacity(train.len());
    for &root in train[root..].iter().chain(&train[..root]) {
        if met.contains(root) {
            continue;
        }
        queues[0].push_back(root);
        let mut level = 0;
        loop {
            let Some(v) = queues[level].pop_front() else {
                if level == 0 {
                    break;
                }
                level -= 1;
                continue;
            };
            steps = steps.wrapping_add(1);
            if steps.is_multiple_of(CHECKED_STEPS) {
                progress.check()?;
            }
            if !met.insert(v) {
                continue;
            }
            if is_training.contains(v) {
                order.push(v);
                if order.len() == train.len() {
                    return Ok(order);
                }
            }
            for &u in graph.in_neighbors(v) {
                if met.contains(u) {
                    continue;
                }
                let degree = graph.in_degree(u).clamp(1, usize::from(u16::MAX) / LEVELS);
                let before = usize::from(met_degree[u as usize]);
                let level_of = |count: usize| (LEVELS * count / degree).min(LEVELS);
                met_degree[u as usize] = (before + 1).min(degree) as u16;
                if before == 0 || level_of(before + 1) > level_of(before) {
                    queues[level_of(before + 1)].push_back(u);
                    level = level.max(level_of(before + 1));
                }
            }
        }
    }
    Ok(order)
}

/// Set of nodes, one bit each.
struct Bits(Vec<u64>);

impl Bits {
    fn new(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(64)])
    }

    #[inline(always)]
    fn contains(&self, v: NodeId) -> bool {
        self.0[v as usize / 64] >> (v % 64) & 1 == 1
    }

    /// Adds a node and returns true if it is new.
    #[inline(always)]
    fn insert(&mut self, v: NodeId) -> bool {
        let (word, bit) = (&mut self.0[v as usize / 64], 1 << (v % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use graphmill_core::{EdgeOptions, Labels, build, progress::Quiet};
    use graphmill_data::{
        Dataset,
        generate::{GenerateOptions, generate},
    };
    use proptest::prelude::*;

    use super::*;

    fn undirected(nodes: usize, pairs: &[(u32, u32)]) -> Graph {
        let (src, dst): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        build(nodes, &src, &dst, EdgeOptions::UNDIRECTED).unwrap()
    }

    fn source<'a>(graph: &'a Graph, labels: &'a Labels, train: &'a [NodeId]) -> OrderSource<'a> {
        OrderSource { graph, labels, train, searches: None, progress: &Quiet }
    }

    fn made(graph: &Graph, train: &[NodeId], seed: u64, sequences: usize) -> Proximity {
        let labels = Labels::default();
        let options = ProximityOptions { order_sequences: sequences };
        Proximity::new(&options, seed, 4, &source(graph, &labels, train)).unwrap()
    }

    fn epoch(order: &dyn SeedOrder, epoch: u64) -> Vec<NodeId> {
        let mut out = vec![9];
        order.order(epoch, &mut out);
        out
    }

    fn communities() -> (Dataset, Vec<NodeId>) {
        let options = GenerateOptions {
            nodes: 8000,
            classes: 40,
            degree: Some(10.0),
            p_in: 0.99,
            dim: 0,
            ..GenerateOptions::default()
        };
        (generate("sbm", &options).unwrap(), (0..8000).step_by(2).collect())
    }

    proptest! {
        /// Covers connected and unconnected graphs, isolated nodes, few or no training nodes, and
        /// more sequences than nodes.
        #[test]
        fn every_epoch_has_each_training_node_once(
            pairs in prop::collection::vec((0u32..30, 0u32..30), 0..40),
            train in prop::collection::btree_set(0u32..30, 0..30),
            sequences in 0usize..40,
            seed in 0u64..4,
        ) {
            let graph = undirected(30, &pairs);
            let train: Vec<NodeId> = train.into_iter().collect();
            let order = made(&graph, &train, seed, sequences);
            for number in 0..4 {
                let mut found = epoch(&order, number);
                prop_assert_eq!(&found, &epoch(&order, number));
                found.sort_unstable();
                prop_assert_eq!(&found, &train);
            }
        }
    }

    /// On a path the search goes outward from its root to both sides; other components follow in
    /// the circular order of ids.
    #[test]
    fn a_search_matches_a_hand_computed_order() {
        let graph = undirected(9, &[(0, 1), (1, 2), (2, 3), (3, 4), (6, 7)]);
        let train = [0, 1, 2, 3, 5, 6, 7];
        let mut is_training = Bits::new(9);
        train.iter().for_each(|&v| assert!(is_training.insert(v)));
        // node 1's visit meets the only out-neighbour of 0, but only one of 3's neighbours is met
        let search = |root| search(&graph, &train, (&is_training, root), &Quiet).unwrap();
        assert_eq!(search(2), [2, 1, 0, 3, 5, 6, 7]);
        assert_eq!(search(6), [7, 6, 0, 1, 2, 3, 5]);
    }

    #[test]
    fn runs_are_interleaved_and_shifted_every_epoch() {
        let graph = undirected(11, &[]);
        let train: Vec<NodeId> = (0..11).collect();
        let order = made(&graph, &train, 5, 3);
        let mut firsts = HashSet::new();
        for number in 0..40 {
            let found = epoch(&order, number);
            firsts.insert(found[0]);
            // without edges a search is the circular order of ids; the runs begin at 0, 3 and 7
            let unshifted: Vec<NodeId> = found.iter().map(|v| (v + 11 - found[0]) % 11).collect();
            assert_eq!(unshifted, [0, 3, 7, 1, 4, 8, 2, 5, 9, 6, 10]);
        }
        assert!(firsts.len() > 7, "{firsts:?}");
        assert_ne!(epoch(&order, 0), epoch(&made(&graph, &train, 6, 3), 0));
    }

    #[test]
    fn orders_of_one_or_no_training_node_are_valid() {
        let graph = undirected(3, &[(0, 1)]);
        for sequences in [0, 1, 5] {
            assert_eq!(epoch(&made(&graph, &[1], 0, sequences), 3), [1]);
            assert!(epoch(&made(&graph, &[], 0, sequences), 3).is_empty());
        }
    }

    #[test]
    fn searches_do_not_depend_on_the_number_of_threads() {
        let (data, train) = communities();
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| made(&data.graph, &train, 1, 4)).searches
        };
        assert_eq!(with(1), with(3));
    }

    /// Share of a batch's inputs, seeds and their neighbours, that the previous batch had too.
    fn overlap(graph: &Graph, order: &[NodeId], batch: usize) -> f64 {
        let inputs = |seeds: &[NodeId]| -> HashSet<NodeId> {
            seeds.iter().flat_map(|&v| graph.in_neighbors(v).iter().copied().chain([v])).collect()
        };
        let batches: Vec<_> = order.chunks(batch).map(inputs).collect();
        let shared: usize = batches.windows(2).map(|two| two[1].intersection(&two[0]).count()).sum();
        shared as f64 / batches[1..].iter().map(HashSet::len).sum::<usize>() as f64
    }

    #[test]
    fn a_stop_ends_the_searches() {
        struct Stopped;
        impl Progress for Stopped {
            fn is_stopped(&self) -> bool {
                true
            }
        }
        let (data, train) = communities();
        let (labels, options) = (Labels::default(), ProximityOptions::default());
        let source = OrderSource { progress: &Stopped, ..source(&data.graph, &labels, &train) };
        let outcome = Proximity::new(&options, 1, 64, &source);
        assert!(matches!(outcome, Err(graphmill_core::Error::Stopped)));
    }

    #[test]
    fn batches_share_inputs_all_epoch_and_more_sequences_mix_labels_better() {
        let (data, train) = communities();
        let random = epoch(&Random::new(&train, 1), 0);
        let mut last = 1.0;
        for sequences in [1, 4, 16, 50] {
            let found = epoch(&made(&data.graph, &train, 1, sequences), 0);
            let error = shuffling_error(&found, 50, &data.labels);
            assert!(error < last - 0.02, "{sequences}: {error} {last}");
            last = error;
            if sequences == 4 {
                for half in [&found[..2000], &found[2000..]] {
                    let (near, far) = (overlap(&data.graph, half, 50), overlap(&data.graph, &random, 50));
                    assert!(near > 2.0 * far, "{near} {far}");
                }
            }
        }
    }

    #[test]
    fn the_number_of_sequences_is_the_smallest_within_the_bound() {
        let (data, train) = communities();
        let source = source(&data.graph, &data.labels, &train);
        let mean = |order: &dyn SeedOrder, batch| {
            (0..EPOCHS).map(|e| shuffling_error(&epoch(order, e), batch, &data.labels)).sum::<f64>()
                / EPOCHS as f64
        };
        let with =
            |order_sequences| Proximity::new(&ProximityOptions { order_sequences }, 1, 64, &source).unwrap();
        let chosen = with(0);
        let (sequences, bound) = (chosen.sequences(), mean(&Random::new(&train, 1), 16));
        assert!(sequences.is_power_of_two() && (2..=32).contains(&sequences), "{sequences}");
        assert!(mean(&chosen, 64) <= bound && mean(&with(sequences / 2), 64) > bound);
        assert!(chosen.choice().unwrap().contains(&format!("interleaves {sequences} sequences")));
        assert!(with(4).choice().is_none());
        // any order mixes a single class
        let labels = Labels::Single { class: vec![0; 8000].into(), classes: 1 };
        let one =
            Proximity::new(&ProximityOptions::default(), 1, 64, &OrderSource { labels: &labels, ..source })
                .unwrap();
        assert_eq!(one.sequences(), 1);
    }
}
