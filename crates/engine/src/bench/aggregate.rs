//! Means over the bottom blocks of sampled batches, and their transpose: GB/s of source rows read
//! (one per edge) and result rows written. Rows that several edges share count once per edge
//! although caches may hold them, so on graphs with hubs the rate may exceed that of the memory.
//!
//! Several batches with separate rows take turns, so that caches are as cold as in training.
//!
//! - `local`: sources in a gathered matrix, in the order of first use;
//! - `global`: sources read in place from the table of all nodes (the fast path), for samplers that
//!   start from seeds;
//! - `transposed`: gradients from destinations to local sources.
//!
//! Limits: copying a large array; and reading random rows of this width.

use graphmill_core::{Block, Features, Matrix, matrix::TableType};
use graphmill_loader::{
    BatchKey, BlockLayout, Seeds, Workspace,
    feature::Host,
    sampler::{BatchRequest, SubgraphTraining},
};
use graphmill_nn::backend::{
    AggregationWeights,
    ops::{Aggregate, AggregateTransposed},
};

use super::measure::{Bench, random};
use crate::{Result, build, stage::draw_error};

/// Widths without `--dim`.
const WIDTHS: &[usize] = &[100, 128, 256];

/// Maximum number of batches that take turns.
const MAX_BATCHES: usize = 8;
/// Approximate maximum of the bytes of source rows over all batches, of which there is at least
/// one.
const MAX_BYTES: usize = 512 << 20;

/// Measures all cases.
pub(super) fn run(bench: &mut Bench) -> Result<()> {
    let local = bottoms(bench, BlockLayout { transposed: !0, ..BlockLayout::default() })?;
    let global = bottoms(bench, BlockLayout { fused: true, ..BlockLayout::default() })?;
    // rows of subgraphs are always gathered
    let in_place = global.iter().all(|block| block.dst_ids.is_some());
    let tables = if in_place { &TableType::ALL[..] } else { &[] };
    let computers = bench.computers.clone();
    let backend = computers.training();
    let given = bench.options.dim.map(|dim| vec![dim]);
    for &width in given.as_deref().unwrap_or(WIDTHS) {
        let count = (MAX_BYTES / (4 * width * local[0].num_src.max(1))).clamp(1, local.len());
        let (local, global) = (&local[..count], &global[..count]);
        let limit = bench.moving(width)?;
        let mut dst: Vec<Matrix> = local.iter().map(|block| random(block.num_dst, width)).collect();
        let mut src: Vec<Matrix> = local.iter().map(|block| random(block.num_src, width)).collect();
        let rows = |of: fn(&Block) -> usize| local.iter().map(of).sum::<usize>() as f64 / count as f64;
        let moved = |of: fn(&Block) -> usize| 4e-9 * width as f64 * (rows(Block::num_edges) + rows(of));
        let mut turn = (0..count).cycle();
        let mut next = || turn.next().expect("at least one batch");

        let times = bench.time(|| {
            let i = next();
            Aggregate {
                block: &local[i],
                weights: AggregationWeights::MEAN,
                src: src[i].view(),
                beta: 0.0,
                dst: dst[i].view_mut(),
            }
            .run(backend);
        });
        bench.rate(format!("local f32 F={width}"), "GB/s", moved(|block| block.num_dst), &times, limit);

        let times = bench.time(|| {
            let i = next();
            AggregateTransposed {
                block: &local[i],
                weights: AggregationWeights::MEAN,
                dst_grad: dst[i].view(),
                beta: 0.0,
                src_grad: src[i].view_mut(),
            }
            .run(backend);
        });
        bench.rate(format!("transposed f32 F={width}"), "GB/s", moved(|block| block.num_src), &times, limit);
        drop(src);

        let table = Features::f32(width, random(bench.data.num_nodes(), width).view().host().to_vec());
        for &(name, kind) in tables {
            let table = Host::resident(&table, kind)?.table().expect("rows in host memory are a table");
            let table = Matrix::shared(table, width);
            let times = bench.time(|| {
                let i = next();
                Aggregate {
                    block: &global[i],
                    weights: AggregationWeights::MEAN,
                    src: table.view(),
                    beta: 0.0,
                    dst: dst[i].view_mut(),
                }
                .run(backend);
            });
            let read = 1e-9 * (kind.width() * width) as f64 * rows(Block::num_edges);
            let written = 4e-9 * width as f64 * rows(|block| block.num_dst);
            bench.rate(format!("global {name} F={width}"), "GB/s", read + written, &times, limit);
        }
    }
    Ok(())
}

/// Bottom blocks of the first batches.
fn bottoms(bench: &Bench, layout: BlockLayout) -> Result<Vec<Block>> {
    // the blocks do not depend on the nodes' weights in the loss
    let config =
        &bench.options.train.clone().with(|training: &mut SubgraphTraining| training.sample_coverage = 0.0);
    let mut order = Vec::new();
    build::order(config, bench.data)?.order(0, &mut order);
    let graph = &bench.data.graph;
    let sampler = build::sampler(config, bench.data)?;
    let mut workspace = Workspace::new(graph.num_nodes());
    let size = bench.seeds();
    let batches = match sampler.properties().subgraphs {
        Some(subgraphs) => usize::try_from(subgraphs).unwrap_or(MAX_BATCHES),
        None => order.len() / size,
    };
    let blocks = (0..batches.clamp(1, MAX_BATCHES)).map(|number| {
        let seeds = Seeds::new(number as u64, order.chunks(size).nth(number).unwrap_or_default());
        let key = BatchKey { seed: config.seed, epoch: 0, batch: seeds.number };
        let request = BatchRequest::new(graph, key).with_layout(layout);
        let mut batch = sampler.sample(&request, &mut workspace, seeds).map_err(draw_error)?;
        Ok(batch.blocks.swap_remove(0))
    });
    blocks.collect()
}
