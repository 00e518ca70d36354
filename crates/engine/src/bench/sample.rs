//! Sampled blocks: seeds and edges per second.
//!
//! Blocks are drawn in the two ways of training: a batch on each thread, as `sequential` does, or a
//! single batch over all threads; and in both layouts: relabelled (the general path) and fused (the
//! bottom block keeps global ids). With `--bottom exact` the bottom block reads stored aggregates,
//! and no draw is made for it. Transposes, which a backward pass may need, are excluded.
//!
//! Limit: random reads of single values from an array as large as the graph's neighbour lists, one
//! per edge. Drawing reads one such value per edge; relabelling adds a read of a table of 4 bytes
//! per node.

use graphmill_core::NodeId;
use graphmill_loader::{BatchKey, BlockLayout, MiniBatch, Workspace, sampler::BatchRequest};
use rayon::prelude::*;

use super::measure::{Bench, Limit};
use crate::{Result, accelerator::TOPOLOGY_SHARE, bottom, build, config::Bottom, stage::draw_error};

/// Approximate number of edges drawn between two readings of the clock.
const EDGES: usize = 4 << 20;

/// Measures all cases.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let (config, _) = bottom::chosen(&bench.options.train, bench.data, None, None)?;
    let config = &*config;
    let aggregation = match config.bottom {
        Bottom::Exact => {
            bottom::aggregation(config, bench.data, &build::model_of_shapes(config, bench.data)?, None)?
        }
        Bottom::Auto | Bottom::Sampled => None,
    };
    let own = bottom::sampler(aggregation, build::sampler(config, bench.data)?, bench.data)?;
    let graph = bench.data.graph.to_huge_pages()?;
    let computers = bench.computers.clone();
    let all = 0..computers.gpus().len();
    let on_device = computers.samplers(config, bench.data, &graph, false, all, TOPOLOGY_SHARE)?;
    let sampler = on_device.each.first().map_or(&*own, |sampler| &**sampler);
    let mut order: Vec<NodeId> = Vec::new();
    build::order(config, bench.data)?.order(0, &mut order);
    let threads = rayon::current_num_threads();
    let size = bench.seeds();
    let batches = order.len().div_ceil(size);
    let slot = || (Workspace::new(graph.num_nodes()), MiniBatch::default());
    let mut slots: Vec<_> = (0..threads).map(|_| slot()).collect();
    let limit = bench.machine.random_reads(graph.num_edges());
    let limit = Limit { value: limit, of: "random reads", row: None };

    let ways: &[(&str, usize)] = if threads > 1 {
        &[("one batch per thread", threads), ("one batch over all threads", 1)]
    } else {
        &[("one batch per thread", 1)]
    };
    let layouts: &[_] = match (sampler.properties().subgraphs, aggregation) {
        (Some(_), _) => &[("subgraphs", false)],
        (None, Some(_)) => &[("exact bottom hop", false)],
        (None, None) => &[("relabelled", false), ("fused", true)],
    };
    for &(name, fused) in layouts {
        for &(way, abreast) in ways {
            let layout = BlockLayout { fused, ..BlockLayout::default() };
            let draw = |number: usize, (workspace, batch): &mut (Workspace, MiniBatch)| {
                let start = number % batches * size;
                let nodes = order[start..(start + size).min(order.len())].iter().copied();
                let seeds = std::mem::take(batch).recycle().refill((number % batches) as u64, nodes);
                workspace.set_parallel(abreast == 1);
                let key = BatchKey { seed: config.seed, epoch: 0, batch: seeds.number };
                let request = BatchRequest::new(&graph, key).with_layout(layout);
                let drawn = sampler.sample(&request, workspace, seeds)?;
                let counts = (drawn.seeds.nodes.len(), drawn.num_edges());
                *batch = drawn.into();
                Ok(counts)
            };
            // groups of concurrent batches between two readings of the clock
            let (_, edges) = draw(0, &mut slots[0]).map_err(draw_error)?;
            let groups = (EDGES / (edges.max(1) * abreast)).clamp(1, 64);
            let (mut seeds, mut edges, mut failed) = (0, 0, Ok(()));
            let times = bench.time(|| {
                (seeds, edges) = (0, 0);
                for group in 0..groups {
                    let slots = &mut slots[..abreast];
                    let drawn = if let [slot] = slots {
                        draw(group, slot)
                    } else {
                        let drawn = slots.par_iter_mut().enumerate();
                        let drawn = drawn.map(|(i, slot)| draw(group * abreast + i, slot));
                        drawn.try_reduce(|| (0, 0), |a, b| Ok((a.0 + b.0, a.1 + b.1)))
                    };
                    match drawn {
                        Ok(drawn) => (seeds, edges) = (seeds + drawn.0, edges + drawn.1),
                        Err(error) => failed = Err(draw_error(error)),
                    }
                }
            });
            failed?;
            let case = format!("{name}, {way}");
            let of_seeds = Limit { value: limit.value * seeds as f64 / edges.max(1) as f64, ..limit };
            bench.rate(&case, "edges/s", edges as f64, &times, limit);
            bench.rate(&case, "seeds/s", seeds as f64, &times, of_seeds);
        }
    }
    Ok(())
}
