//! Predicted epochs of BGL's largest graph on several machines: `graphmill plan --paper bgl`.
//!
//! The graph is User-Item of Liu et al. ("BGL", NSDI 2023): 1.2 billion nodes, 13.7 billion edges,
//! 96 features, 200 million training nodes. The run is also theirs: three layers of 128, batches of
//! 1,000 seeds for each machine, fanout 15, 10, 5 from the seeds. The machines are like their CPU
//! servers: 96 cores, 480 GB, 100 Gbit/s.
//!
//! **Assumptions.** The graph is not public, so nothing of it is measured. Every node has the mean
//! degree, and no node occurs twice in a minibatch: both overestimate the blocks, so that traffic
//! is an upper bound and throughput a lower one. With random parts `(M - 1) / M` of the requests
//! are remote; with BGL's parts they are fewer by the 25 % and the 44 % that the paper reports.
//! Computation follows a roofline model: every gathered or aggregated row moves once through
//! memory, forward and backward, and dense products run at the machine's peak. Network and
//! computation overlap (`pipelined`).

use std::fmt;

use graphmill_core::matrix::TableType;
use graphmill_distributed::{rows::bytes_of_rows, sampler::bytes_of_a_hop};
use graphmill_loader::feature::{Access, LinkOptions};
use graphmill_plan::{
    Cores, gb,
    network::{Machines, REPLICATED_BYTES_PER_NODE, Wire},
};
use serde::Serialize;

const NODES: f64 = 1.2e9;
const EDGES: f64 = 13.7e9;
const FEATURES: usize = 96;
const TRAIN: f64 = 2e8;
const HIDDEN: f64 = 128.0;
const CLASSES: f64 = 2.0;
const FANOUT: [f64; 3] = [15.0, 10.0, 5.0];
/// Seeds of a machine's share.
const SHARE: f64 = 1000.0;
/// Machine: bytes of memory, memory bandwidth in bytes a second, operations a second, and link
/// bandwidth.
const MEMORY: f64 = 480e9;
const BANDWIDTH: f64 = 150e9;
const ARITHMETIC: f64 = 3e12;
const LINK: LinkOptions = LinkOptions { bandwidth: 12.5e9, latency: 20e-6, access: Access::Streamed };
/// Reduction of remote requests relative to random parts.
const LESS: [(&str, f64); 3] = [("random", 0.0), ("bgl, 25 % less", 0.25), ("bgl, 44 % less", 0.44)];
const MACHINES: [usize; 5] = [4, 8, 16, 32, 64];

/// Result for one number of machines and one kind of partition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Number of machines.
    pub machines: usize,
    /// Partition of the graph.
    pub parts: &'static str,
    /// Memory of a machine in bytes.
    pub memory_bytes: f64,
    /// True if it fits a machine.
    pub fits: bool,
    /// Bytes sent by a machine for its share of a minibatch.
    pub bytes_per_batch: f64,
    /// Milliseconds of a minibatch's work.
    pub work_ms: f64,
    /// Milliseconds of a minibatch on the network.
    pub network_ms: f64,
    /// Seeds a second of all machines.
    pub seeds_per_second: f64,
    /// Seconds of an epoch.
    pub epoch_seconds: f64,
}

/// Table of all predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Edges and input rows of a share of 1,000 seeds.
    pub share: [f64; 2],
    /// Rows by machines and parts.
    pub rows: Vec<Row>,
}

/// Sampled nodes and edges, hop by hop, and the number of input nodes.
fn blocks() -> (Vec<[f64; 2]>, f64) {
    let degree = EDGES / NODES;
    let mut nodes = SHARE;
    let mut hops = Vec::new();
    for fanout in FANOUT {
        let edges = nodes * fanout.min(degree);
        hops.push([nodes, edges]);
        nodes += edges;
    }
    (hops, nodes)
}

/// Seconds of the work of a share: sampling, gathering, training.
fn work(hops: &[[f64; 2]], inputs: f64) -> [f64; 3] {
    let row = |dim: f64| 4.0 * dim;
    // A draw reads the row start and one entry, in two different cache lines.
    let sample = hops.iter().map(|[nodes, edges]| 64.0 * (nodes + edges)).sum::<f64>() / BANDWIDTH;
    let gather = 2.0 * inputs * row(FEATURES as f64) / BANDWIDTH;
    let (mut moved, mut products) = (0.0, 0.0);
    for (layer, [nodes, edges]) in hops.iter().rev().enumerate() {
        let from = if layer == 0 { FEATURES as f64 } else { HIDDEN };
        let to = if layer + 1 == hops.len() { CLASSES } else { HIDDEN };
        // Forward, and backward except for the features.
        let passes = if layer == 0 { 1.0 } else { 2.0 };
        moved += passes * edges * row(from) + 4.0 * nodes * row(to);
        // Own and aggregated rows; forward, weights, and rows below.
        products += (1.0 + passes) * 2.0 * 2.0 * nodes * from * to;
    }
    [sample, gather, moved / BANDWIDTH + products / ARITHMETIC]
}

/// Predicts the table.
pub fn user_item() -> Table {
    let (hops, inputs) = blocks();
    let share = work(&hops, inputs);
    let parameters =
        2.0 * (FEATURES as f64 * HIDDEN + HIDDEN * HIDDEN + HIDDEN * CLASSES) + 2.0 * HIDDEN + CLASSES;
    let mut rows = Vec::new();
    for machines in MACHINES {
        let many = machines as f64;
        let memory_bytes =
            REPLICATED_BYTES_PER_NODE * NODES + (4.0 * EDGES + 4.0 * FEATURES as f64 * NODES) / many;
        for (parts, less) in LESS {
            let remote = (1.0 - less) * (many - 1.0) / many;
            let asked = |x: f64| (remote * x) as usize;
            let both = |bytes: [u64; 2]| many * (bytes[0] + bytes[1]) as f64;
            let wire = Wire {
                hops: hops.iter().map(|&[n, e]| both(bytes_of_a_hop(asked(n), asked(e), false))).collect(),
                rows: both(bytes_of_rows(asked(inputs), FEATURES, TableType::F32)),
                sums: 8.0 * (many - 1.0) * parameters,
                skew: 1.0,
                ..Wire::default()
            };
            let batches = (TRAIN / (SHARE * many)).ceil();
            let bytes_per_batch = wire.total() / many;
            let alone = share.map(|seconds| many * seconds);
            // Not modelled for machines of 96 cores.
            let talk = 0.0;
            let model = Machines {
                count: machines,
                stores: None,
                batches: batches as u64,
                alone,
                share,
                talk,
                wire,
                network: LINK,
                cores: Cores::default(),
                cached: 0.0,
                caches_on_devices: false,
                accelerators: None,
            };
            let epoch_seconds = model.pipelined().epoch_seconds;
            rows.push(Row {
                machines,
                parts,
                memory_bytes,
                fits: memory_bytes <= MEMORY,
                bytes_per_batch,
                work_ms: 1e3 * share.iter().sum::<f64>(),
                network_ms: 1e3 * model.network_seconds().iter().sum::<f64>(),
                seeds_per_second: TRAIN / epoch_seconds,
                epoch_seconds,
            });
        }
    }
    Table { share: [hops.iter().map(|[_, edges]| edges).sum(), inputs], rows }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "User-Item (BGL): 1.2 billion nodes, 13.7 billion edges, {FEATURES} features; three layers of \
             {HIDDEN}, fanout 15, 10, 5,\n\
             1,000 seeds a machine and batch: at most {:.0} thousand edges and {:.0} thousand input rows\n\
             machines of 96 cores, 480 GB, 100 Gbit/s\n",
            self.share[0] / 1e3,
            self.share[1] / 1e3
        )?;
        writeln!(
            f,
            "{:>8}  {:<15} {:>15} {:>13} {:>8} {:>11} {:>11} {:>9}",
            "machines",
            "parts",
            "memory of each",
            "out, a batch",
            "work, ms",
            "network, ms",
            "seeds a s",
            "epoch, s"
        )?;
        for row in &self.rows {
            let memory = format!("{}{}", gb(row.memory_bytes), if row.fits { "" } else { " (!)" });
            writeln!(
                f,
                "{:>8}  {:<15} {:>15} {:>13} {:>8.1} {:>11.1} {:>11.0} {:>9.0}",
                row.machines,
                row.parts,
                memory,
                format!("{:.0} MB", row.bytes_per_batch / 1e6),
                row.work_ms,
                row.network_ms,
                row.seeds_per_second,
                row.epoch_seconds
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_machines_need_less_memory_and_fewer_requests_are_faster() {
        let table = user_item();
        assert_eq!(table.rows.len(), MACHINES.len() * LESS.len());
        for pair in table.rows.chunks(LESS.len()) {
            assert!(pair[0].bytes_per_batch > pair[1].bytes_per_batch);
            assert!(pair[1].seeds_per_second <= pair[2].seeds_per_second);
        }
        let random: Vec<&Row> = table.rows.iter().step_by(LESS.len()).collect();
        assert!(random.is_sorted_by(|a, b| a.memory_bytes > b.memory_bytes));
        assert!(random.is_sorted_by(|a, b| a.seeds_per_second < b.seeds_per_second));
        // The features alone take 461 GB.
        assert!(random[0].memory_bytes > 115e9 && random[0].fits);
    }
}
