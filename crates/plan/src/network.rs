//! Model of the network time of a minibatch on several machines.
//!
//! # Algorithm
//!
//! A batch ends when its slowest share ends, and the slowest share changes from batch to batch. All
//! machines send requests and replies simultaneously, so a hop takes two latencies and the bytes of
//! the busiest machine, outgoing or incoming, and so does a step of walks along metapaths. In
//! `sequential` everything is added up. `pipelined` takes the maximum of its parts: the work of all
//! stages, which share the cores; the link with all traffic; or one stage with its waiting time and
//! its own work, which concurrent stages slow down. Serving requests, sending and receiving also
//! cost processor time. Sums are sent before queued frames and wait only for those already in
//! flight, and own rows are read while remote rows are in transit.
//!
//! If machines train on NVIDIA devices ([`Accelerators`]), rows also cross the link of a device
//! after they are gathered, and training takes no time of the cores.
//!
//! If some machines are [graph stores](Stores), the others train on shares of a batch without own
//! rows. Their requests leave and their replies enter fewer links, so the busiest link is that of a
//! store or of a training machine, whichever are fewer. A hop also waits for the draws of the
//! stores, which draw a request on one thread, and rows for their reading. In `pipelined` the work
//! of a store for all training machines is one more part of the maximum.
//!
//! # Source
//!
//! Ours.
//!
//! # Cost
//!
//! Constant.
//!
//! # Deviations
//!
//! The model omits the loading before the first epoch, evaluation, and the overlap of sums with the
//! backward pass. All graph stores have equal work.

use graphmill_core::matrix::TableType;
use graphmill_distributed::{
    messenger::bytes_in_flight, rows::bytes_of_rows, sampler::bytes_of_a_hop, walks::bytes_of_a_step,
};
use graphmill_engine::partition::{CrossRequests, Hop};
use graphmill_loader::feature::LinkOptions;
use serde::Serialize;

use crate::{accelerators::Accelerators, cores::Cores};

/// Share of a link's bytes that carries messages; the rest is headers of Ethernet, IP and TCP in
/// packets of 1500 bytes.
const PAYLOAD: f64 = 0.95;
/// Software latency of a message in seconds: the threads on both sides poll for messages.
const POLL_LATENCY: f64 = 150e-6;

/// Name of the work of graph stores among the parts of an epoch.
pub(crate) const GRAPH_STORES: &str = "graph stores";

/// Bytes per node of the whole graph on every machine: row starts, labels, the ownership map,
/// degrees.
pub const REPLICATED_BYTES_PER_NODE: f64 = 8.0 + 4.0 + 2.2 + 4.0;

/// Traffic of a minibatch over all machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wire {
    /// Bytes of neighbour requests and replies, hop by hop.
    pub hops: Vec<f64>,
    /// Bytes of row requests and replies.
    pub rows: f64,
    /// Bytes of the requests among them: hop by hop, then for rows. Only [`Stores`] need them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<f64>,
    /// Bytes of gradient sums.
    pub sums: f64,
    /// Ratio of the busiest direction of a machine in a minibatch to the mean, for hops and rows;
    /// with graph stores, to the mean over the stores or the others, whichever are fewer.
    pub skew: f64,
}

impl Wire {
    /// Computes the traffic of requests counted over `parts` machines, for rows of `bytes_of_row`
    /// bytes and `parameters` parameters.
    pub fn new(counted: &CrossRequests, parts: usize, bytes_of_row: usize, parameters: usize) -> Self {
        let batches = counted.batches.max(1) as f64;
        // Pairs of requesting and serving machines in each batch.
        let pairs = (parts * (parts - 1)) as f64;
        let no_rows = bytes_of_rows(1, 0, TableType::F32);
        let headers = |bytes: [u64; 2]| pairs * (bytes[0] + bytes[1]) as f64;
        let hop = |of: &Hop| {
            let (requests, edges) = (of.requests as f64, of.edges as f64);
            match of.is_step {
                // a walk sends its node and a random word, and receives a neighbour
                true => headers(bytes_of_a_step(0)) + 16.0 * requests / batches,
                false => headers(bytes_of_a_hop(0, 0, false)) + (8.0 * requests + 4.0 * edges) / batches,
            }
        };
        let rows = counted.remote_rows as f64 / batches;
        Self {
            hops: counted.hops.iter().map(hop).collect(),
            rows: headers(no_rows) + rows * (4 + bytes_of_row) as f64,
            requests: Vec::new(),
            sums: 2.0 * (parts - 1) as f64 * 4.0 * parameters as f64,
            skew: counted.skew,
        }
    }

    /// The same over `trainers` machines that request all rows and neighbours of `stores` graph
    /// stores, and sum gradients among themselves. A hop is one request to each store, also if
    /// training machines draw from lists.
    pub fn of_stores(
        counted: &CrossRequests,
        [trainers, stores]: [usize; 2],
        bytes_of_row: usize,
        parameters: usize,
    ) -> Self {
        let batches = counted.batches.max(1) as f64;
        let pairs = (trainers * stores) as f64;
        let hop = |of: &Hop| {
            let [request, reply] = bytes_of_a_hop(0, 0, false).map(|bytes| pairs * bytes as f64);
            let (nodes, edges) = (4.0 * of.requests as f64, 4.0 * of.edges as f64);
            [request + nodes / batches, reply + (nodes + edges) / batches]
        };
        let [request, reply] = bytes_of_rows(1, 0, TableType::F32).map(|bytes| pairs * bytes as f64);
        let rows = counted.remote_rows as f64 / batches;
        let mut exchanges: Vec<[f64; 2]> = counted.hops.iter().map(hop).collect();
        exchanges.push([request + 4.0 * rows, reply + rows * bytes_of_row as f64]);
        let both = |exchange: &[f64; 2]| exchange[0] + exchange[1];
        let hops = counted.hops.len();
        Self {
            hops: exchanges[..hops].iter().map(both).collect(),
            rows: both(&exchanges[hops]),
            requests: exchanges.iter().map(|exchange| exchange[0]).collect(),
            sums: 2.0 * trainers.saturating_sub(1) as f64 * 4.0 * parameters as f64,
            skew: counted.skew,
        }
    }

    /// Adds `words` 4-byte words of rows to each minibatch, and the messages of `types` node types
    /// instead of one, over `parts` machines.
    pub(crate) fn add_rows(&mut self, words: f64, types: usize, parts: usize) {
        let pairs = (parts * (parts - 1)) as f64;
        let headers = pairs * bytes_of_rows(1, 0, TableType::F32).iter().sum::<u64>() as f64;
        self.rows += 4.0 * words + headers * types.saturating_sub(1) as f64;
    }

    /// Total bytes.
    pub fn total(&self) -> f64 {
        self.hops.iter().sum::<f64>() + self.rows + self.sums
    }
}

/// Machines that hold the graph for the others and do not train: the graph stores of BGL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stores {
    /// Number of graph stores.
    pub count: usize,
    /// Seconds of a minibatch in which training machines wait for the draws of the stores.
    pub draws: f64,
    /// Seconds of a minibatch in which training machines wait until the stores have read its rows.
    pub reads: f64,
    /// Seconds in which a store works for a minibatch, on all of its cores.
    pub work: f64,
}

/// Input of a prediction.
#[derive(Clone, Debug, PartialEq)]
pub struct Machines {
    /// Number of machines, graph stores included.
    pub count: usize,
    /// Graph stores among them, if some machines do not train.
    pub stores: Option<Stores>,
    /// Minibatches of an epoch.
    pub batches: u64,
    /// Seconds of a whole minibatch on a single machine: sampling, gathering, training.
    pub alone: [f64; 3],
    /// Seconds of the slowest share. With graph stores, sampling is without their draws.
    pub share: [f64; 3],
    /// Processor seconds of a machine that trains for serving the others, and for sending and
    /// receiving.
    pub talk: f64,
    /// Traffic of a minibatch.
    pub wire: Wire,
    /// Link of every machine: bytes a second each way, and latency.
    pub network: LinkOptions,
    /// Devices of every machine in strategies by device.
    pub cores: Cores,
    /// Share of the rows of all machines that a machine caches in front of the others.
    pub cached: f64,
    /// True if devices hold these rows, each a share.
    pub caches_on_devices: bool,
    /// NVIDIA devices of every machine that trains. Gathering is then that of the host alone, and
    /// training that of a device.
    pub accelerators: Option<Accelerators>,
}

/// Predicted epoch of a strategy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Epoch {
    /// Name of the strategy, set from its row of the table.
    pub name: &'static str,
    /// Seconds of the epoch.
    pub epoch_seconds: f64,
    /// Time of one machine relative to the summed time of all machines.
    pub efficiency: f64,
    /// Longest part: `network`, a stage with its waiting time, or the `work` of all stages on the
    /// same cores, or the `graph stores`.
    pub bottleneck: &'static str,
    /// Number of machines that sample: the graph stores, or all.
    pub samplers: usize,
    /// Number of machines that train: all that are not graph stores.
    pub trainers: usize,
    /// Share of the rows of all machines that a machine caches in front of the others.
    pub cache_ratio: f64,
}

impl Machines {
    /// Seconds to send `bytes` bytes from a machine.
    fn on_link(&self, bytes: f64) -> f64 {
        let bandwidth = self.network.bandwidth;
        if bandwidth > 0.0 { bytes / (PAYLOAD * bandwidth) } else { 0.0 }
    }

    /// Seconds of a round trip without its bytes.
    fn trip(&self) -> f64 {
        2.0 * (self.network.latency + POLL_LATENCY)
    }

    /// Number of machines that train.
    pub fn num_trainers(&self) -> usize {
        self.count - self.stores.map_or(0, |stores| stores.count).min(self.count)
    }

    /// Bytes in the busiest direction of a link in an exchange of `bytes` bytes, of which
    /// `requests` ask for the others: a machine of both kinds sends both.
    fn busiest(&self, bytes: f64, requests: f64) -> f64 {
        let fewest = match self.stores {
            None => return self.wire.skew * bytes / self.count as f64,
            Some(stores) => stores.count.min(self.num_trainers()).max(1),
        };
        self.wire.skew * requests.max(bytes - requests) / fewest as f64
    }

    /// Seconds of the network in a minibatch on an idle network: hops, rows, sums.
    pub fn network_seconds(&self) -> [f64; 3] {
        let Wire { hops, rows, requests, sums, .. } = &self.wire;
        let each = |bytes: f64| self.trip() + self.on_link(bytes);
        let asked = |i: usize| requests.get(i).copied().unwrap_or_default();
        let of_hops = hops.iter().enumerate().map(|(i, &bytes)| each(self.busiest(bytes, asked(i)))).sum();
        let of_rows = each(self.busiest(*rows, asked(hops.len())));
        [of_hops, of_rows, each(sums / self.num_trainers().max(1) as f64)]
    }

    /// Epoch of `sequential`: work and network alternate.
    pub fn sequential(&self) -> Epoch {
        let [sample, extract, train] = self.share;
        let network = self.waits();
        let served = self.stores.map_or(0.0, |stores| stores.draws + stores.reads);
        let parts = [
            ("sample", sample),
            ("extract", extract + self.copied()),
            ("train", train),
            ("network", sum(&network) - served),
            (GRAPH_STORES, served),
        ];
        self.epoch(self.batches as f64 * self.alternating(&network), &parts)
    }

    /// Epoch of `pipelined`: stages and network are concurrent.
    pub fn pipelined(&self) -> Epoch {
        let several = self.count > 1;
        let (network, [sample, extract, train]) = (self.waits(), self.share);
        // A sum is sent twice, each time after the frames in flight.
        let in_flight = bytes_in_flight(PAYLOAD * self.network.bandwidth).min(self.wire.rows);
        let before = if several { 2.0 * self.on_link(in_flight) } else { 0.0 };
        let link = self.link_seconds();
        let talk = if several { self.talk } else { 0.0 };
        // training on a device leaves the cores to the other stages
        let on_device = self.accelerators.is_some();
        let on_cores = if on_device { 0.0 } else { train };
        let work = sample + extract + on_cores + talk;
        let stage = |own: f64, waits: f64| beside(own, waits, work - own);
        let waits_of_train = network[2] + before;
        let parts = [
            ("work", work),
            ("network", link),
            ("sample", stage(sample, network[0])),
            ("extract", self.extraction(network[1], |waits| stage(extract, waits)) + self.copied()),
            ("train", if on_device { train + waits_of_train } else { stage(train, waits_of_train) }),
            (GRAPH_STORES, self.stores.map_or(0.0, |stores| stores.work)),
        ];
        // The first batch passes through all stages without overlap.
        let slowest = longest(&parts).1;
        let seconds = self.batches as f64 * slowest + (self.alternating(&network) - slowest).max(0.0);
        self.epoch(seconds, &parts)
    }

    /// Seconds in which the bytes of a minibatch pass the link of a machine; zero for a single one.
    pub(crate) fn link_seconds(&self) -> f64 {
        let trips = self.trip() * (self.wire.hops.len() + 2) as f64;
        if self.count > 1 { sum(&self.network_seconds()) - trips } else { 0.0 }
    }

    /// Seconds in which a machine waits for the network and for graph stores in a minibatch: for
    /// hops, rows and sums; zero for a single machine.
    pub(crate) fn waits(&self) -> [f64; 3] {
        let [hops, rows, sums] = if self.count > 1 { self.network_seconds() } else { [0.0; 3] };
        let Stores { draws, reads, .. } = self.stores.unwrap_or_default();
        [hops + draws, rows + reads, sums]
    }

    /// Seconds of the extraction of rows for which a machine waits for `waits` seconds. Own rows
    /// are read while remote rows are in transit. A machine without own rows copies rows `after`
    /// they have arrived.
    fn extraction(&self, waits: f64, after: impl FnOnce(f64) -> f64) -> f64 {
        if self.stores.is_some() { after(waits) } else { waits.max(self.share[1]) }
    }

    /// Seconds of a minibatch in which work and network alternate.
    fn alternating(&self, network: &[f64; 3]) -> f64 {
        let extract = self.share[1];
        let rows = self.extraction(network[1], |waits| waits + extract);
        sum(&self.share) - extract + sum(network) - network[1] + rows + self.copied()
    }

    /// Creates an epoch of `seconds`, with the longest part as its bottleneck.
    pub(crate) fn epoch(&self, seconds: f64, parts: &[(&'static str, f64)]) -> Epoch {
        Epoch {
            name: "",
            epoch_seconds: seconds,
            efficiency: sum(&self.alone) * self.batches as f64 / (self.count as f64 * seconds),
            bottleneck: longest(parts).0,
            samplers: self.stores.map_or(self.count, |stores| stores.count),
            trainers: self.num_trainers(),
            cache_ratio: self.cached,
        }
    }
}

/// Sum over all stages.
fn sum(seconds: &[f64; 3]) -> f64 {
    seconds.iter().sum()
}

/// Duration of a stage that waits for `waits` seconds and then works, while `others` seconds of
/// work run on the same cores throughout: their share of the cores lengthens its work, `t = waits +
/// own t / (t - others)`.
fn beside(own: f64, waits: f64, others: f64) -> f64 {
    let sum = own + waits + others;
    f64::midpoint(sum, (sum * sum - 4.0 * waits * others).max(0.0).sqrt())
}

/// Longest part.
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
        let wire = Wire { hops: vec![4e5, 4e6], rows: 3.6e7, sums: 4e6, skew: 1.0, ..Wire::default() };
        let network = LinkOptions { bandwidth, latency, ..LinkOptions::default() };
        Machines {
            count: 4,
            stores: None,
            batches: 100,
            alone: [0.04, 0.04, 0.16],
            share: [0.01, 0.01, 0.05],
            talk: 0.0,
            wire,
            network,
            cores: Cores::default(),
            cached: 0.0,
            caches_on_devices: false,
            accelerators: None,
        }
    }

    #[test]
    fn a_step_of_walks_takes_its_own_trip_and_bytes() {
        let of = |is_step, count: usize| {
            let hop = Hop { nodes: 20, requests: 10, edges: 10, is_step };
            let counted = CrossRequests { batches: 1, hops: vec![hop; count], ..CrossRequests::default() };
            Wire::new(&counted, 2, 4, 0)
        };
        let walks = bytes_of_a_step(5).iter().sum::<u64>() as f64;
        assert_eq!(of(true, 3).hops, [2.0 * walks; 3], "two machines with five walks each");
        assert_ne!(of(true, 1).hops, of(false, 1).hops);
        let seconds = |wire| Machines { wire, ..machines(0.0, 1e-3) }.network_seconds()[0];
        assert!((seconds(of(true, 6)) - 3.0 * seconds(of(true, 2))).abs() < 1e-12);
    }

    #[test]
    fn free_link_costs_only_compute_and_polling() {
        let epochs = machines(0.0, 0.0).predict();
        // Two hops, rows, and a sum.
        let polls = 4.0 * 2.0 * POLL_LATENCY;
        // The latency of rows overlaps with reading own ones.
        let batch = 0.07 + polls - 2.0 * POLL_LATENCY;
        assert!((epochs[0].epoch_seconds - 100.0 * batch).abs() < 1e-9);
        assert!((epochs[0].efficiency - 0.24 / (4.0 * batch)).abs() < 1e-9);
        // All stages share the cores, and training also waits for a sum.
        let train = beside(0.05, 2.0 * POLL_LATENCY, 0.02);
        assert!(train > 0.07 && train < 0.07 + 2.0 * POLL_LATENCY);
        assert!((epochs[1].epoch_seconds - (99.0 * train + batch)).abs() < 1e-9, "{epochs:?}");
        assert_eq!((epochs[0].bottleneck, epochs[1].bottleneck), ("train", "train"));
    }

    #[test]
    fn rows_of_16_bits_take_half_the_bytes() {
        use graphmill_data::generate::{GenerateOptions, generate};
        use graphmill_engine::{TrainConfig, build, config::FeaturePrecision};

        let options = GenerateOptions { nodes: 60, dim: 6, ..GenerateOptions::default() };
        let data = generate("sbm", &options).unwrap();
        let counted = CrossRequests { batches: 2, remote_rows: 100, ..CrossRequests::default() };
        let rows = |feature_precision| {
            let config = TrainConfig { feature_precision, ..TrainConfig::default() };
            Wire::new(&counted, 2, build::bytes_of_row(&config, &data), 0).rows
        };
        let wide = rows(FeaturePrecision::F32);
        for half in [FeaturePrecision::F16, FeaturePrecision::Bf16] {
            assert_eq!(wide - rows(half), 50.0 * 12.0, "50 rows in a batch, 12 bytes less for each");
        }
    }

    #[test]
    fn slow_links_are_the_bottleneck_and_hide_the_work() {
        let slow = machines(1e8, 1e-4);
        let rows = slow.network_seconds()[1];
        // A quarter of the bytes leaves each machine, at 95 MB/s.
        assert!((rows - 2.0 * (1e-4 + POLL_LATENCY) - 9e6 / 9.5e7).abs() < 1e-9);
        let epochs = slow.predict();
        assert_eq!((epochs[0].bottleneck, epochs[1].bottleneck), ("network", "network"));
        let link = slow.wire.total() / 4.0 / 9.5e7;
        // After the first batch, only the link limits.
        let first = epochs[1].epoch_seconds - 100.0 * link;
        assert!(first > 0.06 && first < 0.07, "{first}");
        assert!(epochs[0].epoch_seconds > 100.0 * (link + 0.06));
        // A link that is busier than the others delays all.
        let skewed = Machines { wire: Wire { skew: 1.5, ..slow.wire.clone() }, ..slow.clone() };
        let more = 0.5 * (slow.wire.total() - slow.wire.sums) / 4.0 / 9.5e7;
        for (skewed, even) in skewed.predict().iter().zip(&epochs) {
            assert!((skewed.epoch_seconds - even.epoch_seconds - 100.0 * more).abs() < 1e-6);
        }
        // With a fast link, training is the bottleneck, slowed down by the other stages.
        let fast = machines(1e11, 1e-6).predict();
        assert_eq!((fast[0].bottleneck, fast[1].bottleneck), ("train", "train"));
        assert!(fast[1].epoch_seconds < 100.0 * 0.0725);
    }

    #[test]
    fn concurrent_stages_share_the_cores() {
        // Alone on the cores, or without waiting, the formula is exact.
        assert_eq!(beside(0.02, 0.01, 0.0), 0.03);
        assert!((beside(0.02, 0.0, 0.01) - 0.03).abs() < 1e-15);
        let both = beside(0.02, 0.015, 0.012);
        assert!((both - (0.015 + 0.02 * both / (both - 0.012))).abs() < 1e-12, "{both}");
        assert!(both > 0.035 && both < 0.047);
        // Messages cost processor time in all stages, which does not matter with a slow link.
        let [quick, slow] = [1e11, 1e8].map(|bandwidth| {
            let silent = machines(bandwidth, 1e-6);
            let talking = Machines { talk: 0.02, ..silent.clone() };
            talking.predict()[1].epoch_seconds - silent.predict()[1].epoch_seconds
        });
        assert!((quick - 100.0 * 0.02).abs() < 0.1, "{quick}");
        assert!(slow.abs() < 0.03, "{slow}");
    }

    #[test]
    fn training_that_waits_for_sums_is_a_bottleneck() {
        // Almost only sums on the link: little else is in flight.
        let wire = Wire { hops: vec![0.0], rows: 4e4, sums: 4e7, skew: 1.0, ..Wire::default() };
        let sums = Machines { wire, ..machines(1e8, 1e-4) };
        let epochs = sums.predict();
        let [_, _, summing] = sums.network_seconds();
        let before = 2.0 * 4e4 / 9.5e7;
        let batch = beside(0.05, summing + before, 0.02);
        assert_eq!(epochs[1].bottleneck, "train");
        let expected = 100.0 * batch..100.0 * batch + 0.05;
        assert!(expected.contains(&epochs[1].epoch_seconds), "{expected:?} {}", epochs[1].epoch_seconds);
    }

    /// Three machines that train, and one graph store, with these seconds of a store.
    fn apart(stores: Stores) -> Machines {
        let requests = vec![1e5, 1e6, 1e6];
        let of_all = machines(1e8, 1e-4);
        Machines { stores: Some(stores), wire: Wire { requests, ..of_all.wire.clone() }, ..of_all }
    }

    #[test]
    fn replies_of_graph_stores_share_the_fewer_links() {
        let one = apart(Stores { count: 1, ..Stores::default() });
        let trip = 2.0 * (1e-4 + POLL_LATENCY);
        let [hops, rows, sums] = one.network_seconds();
        // all replies leave the only store, at 95 MB/s
        assert!((hops - 2.0 * trip - (3e5 + 3e6) / 9.5e7).abs() < 1e-9, "{hops}");
        assert!((rows - trip - 3.5e7 / 9.5e7).abs() < 1e-9, "{rows}");
        // three machines sum gradients
        assert!((sums - trip - 4e6 / 3.0 / 9.5e7).abs() < 1e-9, "{sums}");
        // two stores answer two machines over two links each
        let two = apart(Stores { count: 2, ..Stores::default() });
        assert!((two.network_seconds()[1] - trip - 1.75e7 / 9.5e7).abs() < 1e-9);
        // more requests than replies
        let wire = Wire { requests: vec![1e5, 1e6, 3e7], ..one.wire.clone() };
        let asking = Machines { wire, ..one.clone() };
        assert!((asking.network_seconds()[1] - trip - 3e7 / 9.5e7).abs() < 1e-9);
        let [sequential, pipelined] = one.predict();
        assert_eq!((sequential.samplers, sequential.trainers), (1, 3));
        assert_eq!((sequential.bottleneck, pipelined.bottleneck), ("network", "network"));
        // the store counts as a machine
        let seconds = sequential.epoch_seconds;
        assert!((sequential.efficiency - 0.24 * 100.0 / (4.0 * seconds)).abs() < 1e-12);
        let batch = 0.07 + hops + rows + sums;
        assert!((seconds - 100.0 * batch).abs() < 1e-6, "no own rows are read beside the network");
    }

    #[test]
    fn machines_wait_for_the_draws_and_reads_of_graph_stores() {
        let quick = Machines { network: machines(1e11, 1e-6).network, ..apart(Stores::default()) };
        let with = |draws, reads, work| {
            let stores = Some(Stores { count: 1, draws, reads, work });
            Machines { stores, ..quick.clone() }.predict()
        };
        let (idle, serving) = (with(0.0, 0.0, 0.0), with(0.02, 0.03, 0.0));
        let more = serving[0].epoch_seconds - idle[0].epoch_seconds;
        assert!((more - 100.0 * 0.05).abs() < 1e-6, "{more}");
        assert_eq!((idle[0].bottleneck, with(0.05, 0.03, 0.0)[0].bottleneck), ("train", "graph stores"));
        // the pipeline hides waiting, until a store is the slowest part
        let hidden = serving[1].epoch_seconds - idle[1].epoch_seconds;
        assert!(hidden < 0.5 * more, "{hidden}");
        let slow = &with(0.02, 0.03, 0.2)[1];
        assert_eq!(slow.bottleneck, "graph stores");
        assert!(slow.epoch_seconds >= 100.0 * 0.2 && slow.epoch_seconds < 100.0 * 0.2 + 0.2, "{slow:?}");
    }

    #[test]
    fn traffic_of_stores_is_that_of_their_messages() {
        let hop = Hop { nodes: 20, requests: 20, edges: 60, is_step: false };
        let counted = CrossRequests {
            batches: 2,
            hops: vec![hop],
            remote_rows: 80,
            skew: 1.0,
            ..CrossRequests::default()
        };
        let wire = Wire::of_stores(&counted, [3, 2], 12, 50);
        // three machines ask two stores for ten nodes in a batch
        let [request, reply] = bytes_of_a_hop(10, 30, false).map(|bytes| bytes as f64);
        let [no_request, no_reply] = bytes_of_a_hop(0, 0, false).map(|bytes| 5.0 * bytes as f64);
        assert_eq!(wire.hops, [request + reply + no_request + no_reply]);
        assert_eq!(wire.requests[0], request + no_request);
        let [asked, sent] = bytes_of_rows(40, 3, TableType::F32).map(|bytes| bytes as f64);
        let headers = bytes_of_rows(1, 0, TableType::F32).iter().sum::<u64>() as f64;
        assert!((wire.rows - (asked + sent + 5.0 * headers)).abs() <= 4.0, "{wire:?} {asked} {sent}");
        assert_eq!(wire.sums, 2.0 * 2.0 * 4.0 * 50.0);
    }
}
