//! Node sets of subgraphs per second, for frontier sampling and the other samplers of a given size.
//!
//! Runs on one thread, and with a subgraph on each thread as in training. `n` is the batch size and
//! `m` the frontier size. A frontier of more than half of `n` would hardly walk, so the bench uses
//! `m = n / 8` in this case. The cluster sampler is not measured, because it only looks up parts.
//!
//! Limit: random reads of single values from an array as large as the graph's neighbour lists, on
//! the same threads, two for each of the `n` nodes: the offset of its row, and a neighbour. In a
//! walk, the second read depends on the first and the next node on both, so only a walk of many
//! nodes at once can approach the limit. The limit excludes choosing nodes and building their set.

use graphmill_core::{NodeId, options::OptionGroup, progress::Quiet, table::Entry};
use graphmill_loader::{
    sampler::{self, Make, SamplerKind},
    subgraph::{BatchKey, SubgraphScratch, frontier::FrontierOptions},
};
use rayon::prelude::*;

use super::{
    machine::Machine,
    measure::{Bench, Limit},
    time,
};
use crate::{Error, Result, TrainConfig, build, stage::draw_error};

/// Approximate number of nodes drawn between two readings of the clock.
const NODES: usize = 1 << 18;

/// Options of frontier sampling.
const FRONTIER: OptionGroup = OptionGroup::of::<FrontierOptions>();

/// Reads per node: the offset of its row, and a neighbour.
const READS: f64 = 2.0;

/// Options of a run that the bench reads.
pub(super) const OPTIONS: &[&str] = &[
    "batch_size",
    "walk_length",
    "frontier_size",
    "frontier_index",
    "dashboard_slack",
    "degree_cap",
    "burn_prob",
    "seed",
    "threads",
];

/// Measured samplers: all that draw subgraphs of a given size.
fn measured() -> impl Iterator<Item = &'static Entry<SamplerKind>> {
    sampler::TABLE.iter().filter(|entry| entry.make.draws_subgraphs() && entry.make.is_bounded)
}

/// A run with each measured sampler.
pub(super) fn runs(config: &TrainConfig) -> Vec<TrainConfig> {
    measured().map(|entry| TrainConfig { sampler: entry.name.into(), ..config.clone() }).collect()
}

/// Measures all cases.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let (config, repeat) = (&bench.options.train, bench.options.repeat);
    let mut options = build::sampler_options(config, bench.data);
    let n = options.budget;
    let frontier = options.own.get_mut::<FrontierOptions>();
    if frontier.frontier_size > n / 2 {
        frontier.frontier_size = (n / 8).max(1);
    }
    let m = frontier.frontier_size;
    let graph = bench.data.graph.to_huge_pages()?;
    let seed = config.seed;
    let threads = rayon::current_num_threads();
    let one =
        rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|e| Error::usage(e.to_string()))?;
    let mut ways = vec![("one thread", 1)];
    let mut reads = vec![one.install(|| Machine::new(repeat).random_reads(graph.num_edges()))];
    if threads > 1 {
        ways.push(("one subgraph per thread", threads));
        reads.push(bench.machine.random_reads(graph.num_edges()));
    }
    for &Entry { name, options: groups, make, .. } in measured() {
        let Make::Subgraphs(make) = make.make else { continue };
        let made = make(&graph, &bench.data.split.train, &options.subgraphs(&Quiet));
        let sampler = made.map_err(|message| Error::usage(format!("{name}: {message}")))?;
        for (&(way, abreast), reads) in ways.iter().zip(&reads) {
            let mut slots: Vec<(SubgraphScratch, Vec<NodeId>)> = vec![Default::default(); abreast];
            let each = (NODES / n / abreast).clamp(1, 256);
            let mut failed = Ok(());
            let mut work = || {
                let draw = |(i, (scratch, nodes)): (usize, &mut (SubgraphScratch, Vec<NodeId>))| {
                    (0..each as u64).try_for_each(|batch| {
                        sampler.sample(&graph, BatchKey { seed, epoch: i as u64, batch }, scratch, nodes)
                    })
                };
                let drawn = if abreast == 1 {
                    slots.iter_mut().enumerate().try_for_each(draw)
                } else {
                    slots.par_iter_mut().enumerate().try_for_each(draw)
                };
                if let Err(error) = drawn {
                    failed = Err(draw_error(error));
                }
            };
            let times = if abreast == 1 {
                one.install(|| time::time(repeat, &mut work, &|| {}))
            } else {
                time::time(repeat, &mut work, &|| {})
            };
            failed?;
            let of_frontier = if groups.contains(&FRONTIER) { format!(" m={m}") } else { String::new() };
            let case = format!("{name} n={n}{of_frontier}, {way}");
            let limit =
                Limit { value: reads / (READS * n as f64), of: "random reads, 2 per node", row: None };
            bench.rate(case, "subgraphs/s", (abreast * each) as f64, &times, limit);
        }
    }
    Ok(())
}
