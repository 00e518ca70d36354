//! BGL's allocation of cores and bandwidth to its eight pipelined stages.
//!
//! # Algorithm
//!
//! ```text
//!   min max { T1/c1, T2/c2, Tnet, T3/c3, DI/bI, f(c4), DII/bII, Tgpu }      f(c4) = a/c4 + d
//!   s.t.    c1 + c2 <= Cgs,   c3 + c4 <= Cwm,   bI + bII <= Bpcie
//! ```
//!
//! | stage | location | task |
//! | --- | --- | --- |
//! | 1, 2 | graph store | answer sampling requests, build subgraphs |
//! | 3 | between | network transfer |
//! | 4 | worker | process subgraphs |
//! | 5 | link | copy the structure |
//! | 6 | worker | cache workflow |
//! | 7 | link | copy features |
//! | 8 | device | compute |
//!
//! Cores are whole, at least one each; bandwidth is divisible.
//!
//! The solution is exact. No constraint joins two of the pairs (c1, c2), (c3, c4), (bI, bII), so
//! the maximum is minimal if each pair's own maximum is, and more of a resource never slows a stage
//! down, so each constraint holds with equality. A pair of cores is then a function of one number:
//! its first term falls and its second rises, and the optimum is next to their crossing, which
//! bisection finds. For bandwidth both terms are equal at the optimum (otherwise moving some to the
//! slower one would lower the maximum), so `bI : bII = DI : DII` and both take `(DI + DII) /
//! Bpcie`.
//!
//! No strategy uses the allocation: the engine has three stages, which
//! [`allocate::solve`](graphmill_engine::allocate::solve) places. The command is `cargo run -p
//! graphmill-papers -- bgl-stages benchmarks/papers/stages.json`.
//!
//! # Source
//!
//! Liu et al., *BGL: GPU-efficient GNN training by optimizing graph data I/O and preprocessing*,
//! NSDI 2023, Profiling-based Resource Allocation.
//!
//! # Cost
//!
//! `O(log C)` for `C` cores.

use graphmill_engine::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::fit::Fit;

/// Profiled costs of one batch at each stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// Seconds of sampling requests on one core of the graph store (`T1`).
    pub requests: f64,
    /// Seconds of building subgraphs on one core of the graph store (`T2`).
    pub subgraphs: f64,
    /// Seconds on the network (`Tnet`).
    pub network: f64,
    /// Seconds of processing subgraphs on one core of the worker (`T3`).
    pub process: f64,
    /// Bytes of structure over the link (`DI`).
    pub structure_bytes: f64,
    /// Seconds of the cache workflow by cores of the worker (`f`).
    pub cache: Fit,
    /// Bytes of features over the link (`DII`).
    pub feature_bytes: f64,
    /// Seconds of the device (`Tgpu`).
    pub compute: f64,
}

/// Resources to divide.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// Cores of the graph store (`Cgs`), at least 2.
    pub graph_store_cores: u32,
    /// Cores of the worker (`Cwm`), at least 2.
    pub worker_cores: u32,
    /// Bytes a second of the link (`Bpcie`).
    pub bandwidth: f64,
}

/// Names of the stages, in the order of the formula.
pub const NAMES: [&str; 8] =
    ["requests", "subgraphs", "network", "process", "structure", "cache", "features", "compute"];

/// Allocation of resources, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Allocation {
    /// `c1` to `c4`.
    pub cores: [u32; 4],
    /// `bI` and `bII`, bytes a second.
    pub bandwidth: [f64; 2],
    /// Seconds of each stage, in the order of [`NAMES`].
    pub seconds: [f64; 8],
    /// Index of the longest stage, the first on a tie.
    pub bottleneck: usize,
}

impl Allocation {
    /// Seconds between two batches: those of the longest stage.
    pub fn period(&self) -> f64 {
        self.seconds[self.bottleneck]
    }
}

/// Finds the best allocation.
///
/// # Errors
/// Fewer than two cores on a side, no bandwidth, or a number that is negative or not finite; the
/// error names it.
pub fn allocate(stages: &Stages, capacity: &Capacity) -> Result<Allocation> {
    check(stages, capacity)?;
    let Stages { requests, subgraphs, network, process, structure_bytes, cache, feature_bytes, compute } =
        *stages;
    let linear = |seconds: f64| move |cores: u32| seconds / f64::from(cores);
    let (store, worker) = (capacity.graph_store_cores, capacity.worker_cores);
    let c1 = split(store, linear(requests), linear(subgraphs));
    let c3 = split(worker, linear(process), |cores| cache.seconds(cores));
    let cores = [c1, store - c1, c3, worker - c3];
    let bytes = structure_bytes + feature_bytes;
    let first = if bytes > 0.0 { structure_bytes / bytes } else { 0.5 };
    let link = |bytes_of_stage: f64| if bytes_of_stage > 0.0 { bytes / capacity.bandwidth } else { 0.0 };
    let seconds = [
        linear(requests)(cores[0]),
        linear(subgraphs)(cores[1]),
        network,
        linear(process)(cores[2]),
        link(structure_bytes),
        cache.seconds(cores[3]),
        link(feature_bytes),
        compute,
    ];
    let bottleneck =
        (1..8).fold(0, |longest, stage| if seconds[stage] > seconds[longest] { stage } else { longest });
    let bandwidth = [first * capacity.bandwidth, (1.0 - first) * capacity.bandwidth];
    Ok(Allocation { cores, bandwidth, seconds, bottleneck })
}

/// Finds the number of cores `c` from 1 to `total - 1` with the smallest `max(first(c),
/// second(total - c))`, where both functions do not increase.
fn split(total: u32, first: impl Fn(u32) -> f64, second: impl Fn(u32) -> f64) -> u32 {
    let (mut low, mut high) = (1, total - 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if first(middle) <= second(total - middle) { high = middle } else { low = middle + 1 }
    }
    // From `low` on the second term is larger and increases; before it the first is larger and
    // decreases.
    let worst = |c: u32| first(c).max(second(total - c));
    if low > 1 && worst(low - 1) <= worst(low) { low - 1 } else { low }
}

fn check(stages: &Stages, capacity: &Capacity) -> Result<()> {
    for (name, cores) in [("graph store", capacity.graph_store_cores), ("worker", capacity.worker_cores)] {
        if cores < 2 {
            return Err(Error::usage(format!(
                "{cores} cores of the {name} for two stages: each needs one, give it at least 2"
            )));
        }
    }
    let numbers = [
        ("requests", stages.requests),
        ("subgraphs", stages.subgraphs),
        ("network", stages.network),
        ("process", stages.process),
        ("structure_bytes", stages.structure_bytes),
        ("cache.a", stages.cache.a),
        ("cache.d", stages.cache.d),
        ("feature_bytes", stages.feature_bytes),
        ("compute", stages.compute),
    ];
    if let Some((name, value)) = numbers.iter().find(|(_, value)| !value.is_finite() || *value < 0.0) {
        return Err(Error::usage(format!("{name} {value}: a number from 0")));
    }
    if !(capacity.bandwidth > 0.0 && capacity.bandwidth.is_finite()) {
        return Err(Error::usage(format!(
            "bandwidth {}: bytes a second, a number above 0",
            capacity.bandwidth
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tries every pair of cores, and many divisions of the bandwidth.
    fn by_trial(stages: &Stages, capacity: &Capacity) -> f64 {
        let mut best = f64::INFINITY;
        for c1 in 1..capacity.graph_store_cores {
            for c2 in 1..=capacity.graph_store_cores - c1 {
                for c3 in 1..capacity.worker_cores {
                    for c4 in 1..=capacity.worker_cores - c3 {
                        let terms = [
                            stages.requests / f64::from(c1),
                            stages.subgraphs / f64::from(c2),
                            stages.network,
                            stages.process / f64::from(c3),
                            stages.cache.a / f64::from(c4) + stages.cache.d,
                            stages.compute,
                        ];
                        best = best.min(terms.into_iter().fold(0.0, f64::max));
                    }
                }
            }
        }
        let link = (1..1000).map(|part| f64::from(part) / 1000.0 * capacity.bandwidth).map(|first| {
            (stages.structure_bytes / first).max(stages.feature_bytes / (capacity.bandwidth - first))
        });
        best.max(link.fold(f64::INFINITY, f64::min))
    }

    prop_compose! {
        fn any_stages()(t in prop::array::uniform8(0.0..10.0f64), d in 0.0..3.0f64) -> Stages {
            Stages {
                requests: t[0], subgraphs: t[1], network: t[2] / 4.0, process: t[3], structure_bytes: t[4],
                cache: Fit { a: t[5], d }, feature_bytes: t[6], compute: t[7] / 4.0,
            }
        }
    }

    proptest! {
        #[test]
        fn allocations_are_optimal(
            stages in any_stages(), store in 2u32..9, worker in 2u32..9, bandwidth in 1.0..50.0f64,
        ) {
            let capacity = Capacity { graph_store_cores: store, worker_cores: worker, bandwidth };
            let found = allocate(&stages, &capacity).unwrap();
            let best = by_trial(&stages, &capacity);
            prop_assert!(found.period() <= best + 1e-12, "{found:?}, {best}");
            // The trial divides the bandwidth in steps of a thousandth.
            let bytes = stages.structure_bytes + stages.feature_bytes;
            prop_assert!(best <= found.period() * 1.01 + 0.02 * bytes / bandwidth);
            prop_assert_eq!(found.cores[0] + found.cores[1], store);
            prop_assert_eq!(found.cores[2] + found.cores[3], worker);
            prop_assert!(found.cores.iter().all(|&c| c >= 1));
            prop_assert!(found.bandwidth.iter().sum::<f64>() <= bandwidth * (1.0 + 1e-12));
        }

        #[test]
        fn core_splits_are_optimal(
            total in 2u32..200, t in prop::array::uniform2(0.0..10.0f64), d in 0.0..1.0f64,
        ) {
            let first = |c: u32| t[0] / f64::from(c);
            let second = |c: u32| t[1] / f64::from(c) + d;
            let worst = |c: u32| first(c).max(second(total - c));
            let best = (1..total).map(worst).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(worst(split(total, first, second)), best);
        }
    }

    #[test]
    fn the_bottleneck_is_reported() {
        let stages = Stages {
            requests: 8.0,
            subgraphs: 4.0,
            network: 0.5,
            process: 6.0,
            structure_bytes: 1e9,
            cache: Fit { a: 6.0, d: 1.5 },
            feature_bytes: 3e9,
            compute: 1.0,
        };
        let capacity = Capacity { graph_store_cores: 12, worker_cores: 9, bandwidth: 4e9 };
        let found = allocate(&stages, &capacity).unwrap();
        assert_eq!((found.cores, found.bandwidth), ([8, 4, 3, 6], [1e9, 3e9]));
        assert_eq!(found.seconds, [1.0, 1.0, 0.5, 2.0, 1.0, 2.5, 1.0, 1.0]);
        assert_eq!((NAMES[found.bottleneck], found.period()), ("cache", 2.5));
    }

    #[test]
    fn impossible_divisions_are_rejected() {
        let stages = Stages {
            requests: 1.0,
            subgraphs: 1.0,
            network: 1.0,
            process: 1.0,
            structure_bytes: 1.0,
            cache: Fit { a: 1.0, d: 0.0 },
            feature_bytes: 1.0,
            compute: 1.0,
        };
        let capacity = Capacity { graph_store_cores: 2, worker_cores: 2, bandwidth: 1.0 };
        assert!(allocate(&stages, &capacity).is_ok());
        let fault =
            |stages: &Stages, capacity: &Capacity| allocate(stages, capacity).unwrap_err().to_string();
        assert!(
            fault(&stages, &Capacity { worker_cores: 1, ..capacity }).starts_with("1 cores of the worker")
        );
        assert!(fault(&stages, &Capacity { bandwidth: 0.0, ..capacity }).starts_with("bandwidth 0"));
        let wrong = Stages { cache: Fit { a: f64::NAN, d: 0.0 }, ..stages };
        assert!(fault(&wrong, &capacity).starts_with("cache.a NaN"));
    }
}
