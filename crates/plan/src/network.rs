//! The model of several machines: what a minibatch waits for over a network.
//!
//! A batch ends when its slowest share does, batch by batch: which one that is changes. Every machine asks and answers at once, so that a
//! hop takes two latencies and the bytes that go out of one machine, or come to it, where those are most. In `sequential` all of it follows
//! one after the other. `pipelined` takes what its slowest part does: the work of all stages, which share the cores; the link with all that
//! goes over it; or one stage with what it waits for and its own work, which the others slow down as far as they are at it at the same time.
//! To answer the others, and to send and receive, is work too. Sums overtake what waits to be sent, and find only the frames before them
//! that are on their way, and own rows are read while others' travel. What is left out: the first epoch's loading, evaluation, and that
//! sums travel beside the backward pass.

use graphmill_distributed::{messenger::IN_FLIGHT_BYTES, rows::bytes_of_rows, sampler::bytes_of_a_hop};
use graphmill_engine::partition::CrossRequests;
use graphmill_loader::feature::LinkOptions;
use serde::Serialize;

/// What of a link's bytes are a message's: the rest are the headers of Ethernet, IP and TCP in packets of 1500 bytes.
const PAYLOAD: f64 = 0.95;
/// Seconds from a message to whoever waits for it that are the program's own: the threads on both sides look for messages from time to time.
const WAKE: f64 = 150e-6;

/// Bytes that every machine has of each node of the whole graph: row starts, labels, the book with places of own nodes, degrees.
pub const EVERYWHERE: f64 = 8.0 + 4.0 + 2.2 + 4.0;

/// What a minibatch puts on the wire, over all machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wire {
    /// Bytes of asking for neighbours and answering, hop by hop.
    pub hops: Vec<f64>,
    /// Bytes of asking for rows and answering.
    pub rows: f64,
    /// Bytes of summing gradients.
    pub sums: f64,
    /// What goes over the busiest way, in or out, of a machine in a minibatch, of a machine's mean; of hops and rows.
    pub skew: f64,
}

impl Wire {
    /// Of requests that were counted over `parts` machines, for rows of `dim` values and so many parameters.
    pub fn new(counted: &CrossRequests, parts: usize, dim: usize, parameters: usize) -> Self {
        let batches = counted.batches.max(1) as f64;
        // who asks whom, in each batch
        let pairs = (parts * (parts - 1)) as f64;
        let (empty, no_rows) = (bytes_of_a_hop(0, 0, false), bytes_of_rows(1, 0));
        let headers = |bytes: [u64; 2]| pairs * (bytes[0] + bytes[1]) as f64;
        let hop = |requests: u64, edges: u64| {
            headers(empty) + (8.0 * requests as f64 + 4.0 * edges as f64) / batches
        };
        let rows = counted.remote_rows as f64 / batches;
        Self {
            hops: counted.hops.iter().map(|of| hop(of.requests, of.edges)).collect(),
            rows: headers(no_rows) + rows * 4.0 * (1 + dim) as f64,
            sums: 2.0 * (parts - 1) as f64 * 4.0 * parameters as f64,
            skew: counted.skew,
        }
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.hops.iter().sum::<f64>() + self.rows + self.sums
    }
}

/// What is predicted from.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// How many.
    pub count: usize,
    /// Minibatches of an epoch.
    pub batches: u64,
    /// Seconds of a whole minibatch on one machine that has all: sampling, gathering, training.
    pub alone: [f64; 3],
    /// Seconds of the slowest share.
    pub share: [f64; 3],
    /// Seconds of a machine's cores to answer the others, and to send and receive.
    pub talk: f64,
    /// What goes over the wire.
    pub wire: Wire,
    /// Every machine's link: bytes a second each way, and latency.
    pub network: LinkOptions,
}

/// A strategy's epoch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// The strategy; its row of the table sets it.
    pub name: &'static str,
    /// Seconds.
    pub epoch_seconds: f64,
    /// What one machine takes for it, in what so many machines take together.
    pub efficiency: f64,
    /// What takes longest: `network`, a stage with what it waits for, or the `work` of all stages on the same cores.
    pub bottleneck: &'static str,
    /// Machines that sample, and that train: all of them.
    pub samplers: usize,
    /// As `samplers`.
    pub trainers: usize,
    /// Rows of others that a machine keeps, of all.
    pub cache_ratio: f64,
}

impl Machines {
    /// Seconds that so many bytes take to go out of a machine.
    fn on_link(&self, bytes: f64) -> f64 {
        let bandwidth = self.network.bandwidth;
        if bandwidth > 0.0 { bytes / (PAYLOAD * bandwidth) } else { 0.0 }
    }

    /// Seconds of a question and its answer without their bytes.
    fn trip(&self) -> f64 {
        2.0 * (self.network.latency + WAKE)
    }

    /// Seconds of the network in a minibatch where nothing else is on it: hops, rows, sums.
    pub fn network_seconds(&self) -> [f64; 3] {
        let (trip, skew) = (self.trip(), self.wire.skew);
        let each = |bytes: f64| trip + self.on_link(bytes / self.count as f64);
        let hops = self.wire.hops.iter().map(|&of| each(skew * of)).sum();
        [hops, each(skew * self.wire.rows), each(self.wire.sums)]
    }

    /// Epoch of `sequential`: work and network take turns.
    pub fn sequential(&self) -> Epoch {
        let [sample, extract, train] = self.share;
        let network = self.waits();
        let parts = [("sample", sample), ("extract", extract), ("train", train), ("network", sum(&network))];
        self.epoch(self.batches as f64 * self.in_turns(&network), &parts)
    }

    /// Epoch of `pipelined`: stages and network side by side.
    pub fn pipelined(&self) -> Epoch {
        let several = self.count > 1;
        let (network, [sample, extract, train]) = (self.waits(), self.share);
        // a sum goes out twice, each time behind what is on its way
        let before = if several { 2.0 * self.on_link(IN_FLIGHT_BYTES.min(self.wire.rows)) } else { 0.0 };
        let trips = self.trip() * (self.wire.hops.len() + 2) as f64;
        let link = if several { sum(&network) - trips } else { 0.0 };
        let talk = if several { self.talk } else { 0.0 };
        let work = sum(&self.share) + talk;
        let stage = |own: f64, waits: f64| beside(own, waits, work - own);
        let parts = [
            ("work", work),
            ("network", link),
            ("sample", stage(sample, network[0])),
            // own rows are read while others' travel
            ("extract", network[1].max(extract)),
            ("train", stage(train, network[2] + before)),
        ];
        // the first batch goes through all stages before there is anything beside it
        let slowest = longest(&parts).1;
        let seconds = self.batches as f64 * slowest + (self.in_turns(&network) - slowest).max(0.0);
        self.epoch(seconds, &parts)
    }

    /// Seconds of the network in a minibatch; a machine alone waits for none.
    fn waits(&self) -> [f64; 3] {
        if self.count > 1 { self.network_seconds() } else { [0.0; 3] }
    }

    /// Seconds of a minibatch in which work and network take turns; own rows are read while others' travel.
    fn in_turns(&self, network: &[f64; 3]) -> f64 {
        sum(&self.share) + sum(network) - self.share[1].min(network[1])
    }

    /// An epoch of so many seconds, with the part that takes longest as its bottleneck.
    fn epoch(&self, seconds: f64, parts: &[(&'static str, f64)]) -> Epoch {
        Epoch {
            name: "",
            epoch_seconds: seconds,
            efficiency: sum(&self.alone) * self.batches as f64 / (self.count as f64 * seconds),
            bottleneck: longest(parts).0,
            samplers: self.count,
            trainers: self.count,
            cache_ratio: 0.0,
        }
    }
}

/// Seconds of all stages.
fn sum(seconds: &[f64; 3]) -> f64 {
    seconds.iter().sum()
}

/// Seconds of a stage that waits for so long and then works, beside `others`' work on the same cores, which goes on all the time: what
/// they take of the cores meanwhile makes its work longer, `t = waits + own t / (t - others)`.
fn beside(own: f64, waits: f64, others: f64) -> f64 {
    let sum = own + waits + others;
    f64::midpoint(sum, (sum * sum - 4.0 * waits * others).max(0.0).sqrt())
}

/// The part that takes longest.
fn longest(parts: &[(&'static str, f64)]) -> (&'static str, f64) {
    parts.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Machines {
        fn predict(&self) -> [Epoch; 2] {
            [self.sequential(), self.pipelined()]
        }
    }

    fn machines(bandwidth: f64, latency: f64) -> Machines {
        let wire = Wire { hops: vec![4e5, 4e6], rows: 3.6e7, sums: 4e6, skew: 1.0 };
        let network = LinkOptions { bandwidth, latency };
        Machines {
            count: 4,
            batches: 100,
            alone: [0.04, 0.04, 0.16],
            share: [0.01, 0.01, 0.05],
            talk: 0.0,
            wire,
            network,
        }
    }

    #[test]
    fn a_link_that_takes_no_time_leaves_the_shares_and_the_looks_for_messages() {
        let epochs = machines(0.0, 0.0).predict();
        // two hops, rows, and a sum
        let looks = 4.0 * 2.0 * WAKE;
        // that for rows is beside the reading of own ones
        let batch = 0.07 + looks - 2.0 * WAKE;
        assert!((epochs[0].epoch_seconds - 100.0 * batch).abs() < 1e-9);
        assert!((epochs[0].efficiency - 0.24 / (4.0 * batch)).abs() < 1e-9);
        // all stages share the cores, and training waits for a sum besides
        let train = beside(0.05, 2.0 * WAKE, 0.02);
        assert!(train > 0.07 && train < 0.07 + 2.0 * WAKE);
        assert!((epochs[1].epoch_seconds - (99.0 * train + batch)).abs() < 1e-9, "{epochs:?}");
        assert_eq!((epochs[0].bottleneck, epochs[1].bottleneck), ("train", "train"));
    }

    #[test]
    fn a_slow_link_is_the_bottleneck_and_hides_the_work() {
        let slow = machines(1e8, 1e-4);
        let rows = slow.network_seconds()[1];
        // a quarter of the bytes goes out of each machine, at 95 MB/s
        assert!((rows - 2.0 * (1e-4 + WAKE) - 9e6 / 9.5e7).abs() < 1e-9);
        let epochs = slow.predict();
        assert_eq!((epochs[0].bottleneck, epochs[1].bottleneck), ("network", "network"));
        let link = slow.wire.total() / 4.0 / 9.5e7;
        // but for the first batch, all on the link and nothing else
        let first = epochs[1].epoch_seconds - 100.0 * link;
        assert!(first > 0.06 && first < 0.07, "{first}");
        assert!(epochs[0].epoch_seconds > 100.0 * (link + 0.06));
        // a link that is busier than the others holds all up
        let skewed = Machines { wire: Wire { skew: 1.5, ..slow.wire.clone() }, ..slow.clone() };
        let more = 0.5 * (slow.wire.total() - slow.wire.sums) / 4.0 / 9.5e7;
        for (skewed, even) in skewed.predict().iter().zip(&epochs) {
            assert!((skewed.epoch_seconds - even.epoch_seconds - 100.0 * more).abs() < 1e-6);
        }
        // of a fast one training is, beside which the other stages work
        let fast = machines(1e11, 1e-6).predict();
        assert_eq!((fast[0].bottleneck, fast[1].bottleneck), ("train", "train"));
        assert!(fast[1].epoch_seconds < 100.0 * 0.0725);
    }

    #[test]
    fn what_others_take_of_the_cores_makes_a_stage_longer_where_both_want_them() {
        // alone on the cores, or without anything to wait for, there is nothing to reckon
        assert_eq!(beside(0.02, 0.01, 0.0), 0.03);
        assert!((beside(0.02, 0.0, 0.01) - 0.03).abs() < 1e-15);
        let both = beside(0.02, 0.015, 0.012);
        assert!((both - (0.015 + 0.02 * both / (both - 0.012))).abs() < 1e-12, "{both}");
        assert!(both > 0.035 && both < 0.047);
        // messages are work beside all stages, and cost nothing where the link is slow
        let [quick, slow] = [1e11, 1e8].map(|bandwidth| {
            let silent = machines(bandwidth, 1e-6);
            let talking = Machines { talk: 0.02, ..silent.clone() };
            talking.predict()[1].epoch_seconds - silent.predict()[1].epoch_seconds
        });
        assert!((quick - 100.0 * 0.02).abs() < 0.1, "{quick}");
        assert!(slow.abs() < 0.03, "{slow}");
    }

    #[test]
    fn training_that_waits_for_sums_is_a_bottleneck_of_its_own() {
        // nearly nothing but sums on the link: what is in flight before them is little too
        let wire = Wire { hops: vec![0.0], rows: 4e4, sums: 4e7, skew: 1.0 };
        let sums = Machines { wire, ..machines(1e8, 1e-4) };
        let epochs = sums.predict();
        let [_, _, summing] = sums.network_seconds();
        let before = 2.0 * 4e4 / 9.5e7;
        let batch = beside(0.05, summing + before, 0.02);
        assert_eq!(epochs[1].bottleneck, "train");
        let expected = 100.0 * batch..100.0 * batch + 0.05;
        assert!(expected.contains(&epochs[1].epoch_seconds), "{expected:?} {}", epochs[1].epoch_seconds);
    }
}
