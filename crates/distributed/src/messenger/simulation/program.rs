//! Job of a simulated cluster: sampling over ranks, remote rows, sums of gradients and checkpoints.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use graphmill_core::{Features, Graph, NodeId, Result, keyed};
use graphmill_data::partition::PartitionBook;
use graphmill_loader::{
    BatchKey, Feature, MinibatchSampler, Seeds, Workspace,
    feature::Host,
    sampler::{BatchRequest, HopStack, neighbor::Neighbor},
};

use super::{super::lock, Turns};
use crate::{
    Collective, Messenger, NodeOwnership,
    rows::{OwnedAndRemoteRows, ROWS, Remote, RowService, Table},
    sampler::Distributed,
};

const NODES: usize = 30;
const DIM: usize = 3;
const EPOCHS: u64 = 3;
const BATCHES: u64 = 3;

/// Neighbours of the nodes of a graph, of which those of nodes that `is_own` refuses are left out.
fn graph(is_own: impl Fn(NodeId) -> bool) -> Result<Graph> {
    let mut indptr = vec![0u64];
    let mut indices = Vec::new();
    for v in 0..NODES as u64 {
        let degree = if is_own(v as NodeId) { v * 5 % 7 } else { 0 };
        indices.extend((0..degree).map(|e| (keyed::key(&[v, e]) % NODES as u64) as NodeId));
        indptr.push(indices.len() as u64);
    }
    Graph::new(indptr.into(), indices.into())
}

/// A model after some epochs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Checkpoint {
    epoch: u64,
    weights: [u32; DIM],
}

/// Checkpoint of a job, which outlives its ranks.
#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Checkpoint>>);

/// Trains from the checkpoint to the end. Returns the bits of the weights.
pub(super) fn train(post: &Arc<Messenger>, turns: Option<&Turns>, disk: &Disk) -> Result<[u32; DIM]> {
    let parts: Vec<u16> = (0..NODES as u64).map(|v| (keyed::key(&[v]) % 5) as u16).collect();
    let book = Arc::new(NodeOwnership::new(PartitionBook::new(5, parts)?, post.rank(), post.size())?);
    let own = graph(|v| book.is_own(v))?;
    let neighbor = Arc::new(Neighbor::new([3, 2]).expect("fanouts above zero"));
    let sampler = Distributed::new(neighbor, post.clone(), book.clone()).expect("it reads own lists");
    sampler.serve(&own);
    let sampler = HopStack::new(sampler);
    let value = |v: NodeId, i: usize| ((v as usize * 7 + i * 3) as f32).sin();
    let rows: Vec<f32> = book.own().flat_map(|v| (0..DIM).map(move |i| value(v, i))).collect();
    let table = Table::Constant(Arc::new(Host::new(&Features::f32(DIM, rows))));
    post.serve(ROWS, Arc::new(RowService::new(book.clone(), table.clone())));
    let remote = Arc::new(Remote::new(post.clone(), book.clone(), ROWS, DIM));
    let rows = OwnedAndRemoteRows::new(book, table, remote);
    let all = Collective::new(post.clone());
    all.barrier(1)?;

    let Checkpoint { epoch, weights: [a, b, c] } = lock(&disk.0).clone();
    let started = all.broadcast(2, vec![epoch as u32, a, b, c])?;
    let mut weights: Vec<f32> = started[1..].iter().map(|&bits| f32::from_bits(bits)).collect();
    let mut workspace = Workspace::new(NODES);
    for epoch in u64::from(started[0])..EPOCHS {
        for batch in 0..BATCHES {
            if let Some(turns) = turns {
                turns.compute(Duration::from_millis(5 + 3 * post.rank() as u64));
            }
            let number = batch * post.size() as u64 + post.rank() as u64;
            let seeds: Vec<NodeId> =
                (0..4).map(|i| ((i * 7 + number * 3) % NODES as u64) as NodeId).collect();
            let request = BatchRequest::new(&own, BatchKey { seed: 9, epoch, batch: number });
            let sampled = sampler.sample(&request, &mut workspace, Seeds::new(number, seeds))?;
            let mut input = vec![0.0; sampled.input_nodes.len() * DIM];
            rows.read(&sampled.input_nodes, &mut input)?;
            let mut gradient = vec![0.0f32; DIM];
            for row in input.chunks_exact(DIM) {
                let score: f32 = row.iter().zip(&weights).map(|(x, w)| x * w).sum();
                gradient.iter_mut().zip(row).for_each(|(g, x)| *g += x * (score - 1.0));
            }
            all.sum(100 + epoch * BATCHES + batch, &mut gradient)?;
            weights.iter_mut().zip(&gradient).for_each(|(w, g)| *w -= 0.01 * g);
        }
        all.barrier(1000 + epoch)?;
        if post.rank() == 0 {
            let weights = std::array::from_fn(|i| weights[i].to_bits());
            *lock(&disk.0) = Checkpoint { epoch: epoch + 1, weights };
        }
    }
    all.barrier(2000)?;
    post.close()?;
    Ok(std::array::from_fn(|i| weights[i].to_bits()))
}
