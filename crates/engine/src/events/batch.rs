//! Rows of a batch of events, and the neighbours that existed at their times.

use std::collections::HashMap;

use graphmill_core::{Matrix, NodeId, memory};
use graphmill_loader::{
    BatchKey,
    time::{TimeBatch, TimeRequest, TimeSampler, TimeSeeds, TimeWorkspace},
};

use super::stream::EventStream;
use crate::{Error, Result, TrainConfig, config::events::kind};

/// Pairs of a node and a time, each once, and the rows of the events of a batch.
#[derive(Debug, Default)]
pub(super) struct Rows {
    nodes: Vec<NodeId>,
    pub(super) times: Vec<i64>,
    /// Row of the source, and of the destinations, of each pair to score.
    pub(super) source: Vec<NodeId>,
    pub(super) destination: Vec<NodeId>,
    numbers: HashMap<(NodeId, i64), NodeId>,
}

impl Rows {
    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.numbers.clear();
        [&mut self.nodes, &mut self.source, &mut self.destination].into_iter().for_each(Vec::clear);
        self.times.clear();
    }

    /// Row of a node at a time. If the system refuses memory, the thread unwinds
    /// ([`memory::demand`]).
    pub(super) fn row(&mut self, node: NodeId, time: i64) -> NodeId {
        let Self { nodes, times, numbers, .. } = self;
        memory::demand_in_map(numbers, 1);
        *numbers.entry((node, time)).or_insert_with(|| {
            memory::demand_push(nodes, node);
            memory::demand_push(times, time);
            nodes.len() as NodeId - 1
        })
    }

    /// Adds the pair of two nodes at a time. Unwinds as [`Rows::row`].
    pub(super) fn push(&mut self, source: NodeId, destination: NodeId, time: i64) {
        let (source, destination) = (self.row(source, time), self.row(destination, time));
        memory::demand_push(&mut self.source, source);
        memory::demand_push(&mut self.destination, destination);
    }
}

/// Draws the neighbourhoods of rows. Draws depend on the seed, the epoch and the batch.
pub(super) struct Sampling<'a> {
    stream: &'a EventStream,
    /// `None` if the model reads no neighbours.
    sampler: Option<TimeSampler>,
    workspace: TimeWorkspace,
    seeds: TimeSeeds,
}

/// A sampled neighbourhood, with the rows that models read.
#[derive(Debug, Default)]
pub(super) struct Neighborhood {
    pub(super) batch: Option<TimeBatch>,
    /// Features of the events of each block, from the bottom.
    pub(super) edges: Vec<Matrix>,
    /// Time since each event, of each block.
    pub(super) since: Vec<Vec<f64>>,
}

impl<'a> Sampling<'a> {
    /// Prepares the sampler of a configuration.
    ///
    /// # Errors
    /// The fanout or an option is invalid.
    pub(super) fn new(config: &TrainConfig, stream: &'a EventStream) -> Result<Self> {
        let schema = stream.history(false).graph.schema();
        let has_neighbors = kind(config).is_none_or(|kind| kind.neighbors.is_some());
        let fault = |message: String| Error::usage(format!("--fanout {}: {message}", config.fanout));
        let sampler = || -> Result<TimeSampler> {
            let fanout = config.fanout.to_string().parse().map_err(fault)?;
            // rows read their times
            Ok(TimeSampler::new(schema, &fanout, config.own.get()).map_err(fault)?.without_sharing())
        };
        Ok(Self {
            stream,
            sampler: has_neighbors.then(sampler).transpose()?,
            workspace: TimeWorkspace::new(schema),
            seeds: TimeSeeds::default(),
        })
    }

    /// Replaces `out` by the neighbourhood of `rows`; for a backward pass if `is_training`.
    ///
    /// # Errors
    /// A block would have more edges than 32-bit positions can number.
    pub(super) fn draw(
        &mut self,
        rows: &Rows,
        of: BatchKey,
        is_training: bool,
        out: &mut Neighborhood,
    ) -> Result<()> {
        self.sample(rows, of, is_training, out)?;
        self.read(is_training, out);
        Ok(())
    }

    /// Draws the blocks of a neighbourhood, the first part of [`Sampling::draw`].
    ///
    /// # Errors
    /// As for [`Sampling::draw`].
    pub(super) fn sample(
        &mut self,
        rows: &Rows,
        of: BatchKey,
        is_training: bool,
        out: &mut Neighborhood,
    ) -> Result<()> {
        let Some(sampler) = &self.sampler else { return Ok(()) };
        let history = self.stream.history(is_training);
        let spare = out.batch.take().map_or_else(|| std::mem::take(&mut self.seeds), TimeBatch::recycle);
        let seeds = spare.refill(of.batch, &[(&rows.nodes, &rows.times)]);
        let request = TimeRequest::new(&history.graph, of);
        let request = if is_training { request.transposed() } else { request };
        out.batch = Some(sampler.sample(&request, &mut self.workspace, seeds)?);
        Ok(())
    }

    /// Reads the features and times of the drawn events, the second part of [`Sampling::draw`].
    pub(super) fn read(&self, is_training: bool, out: &mut Neighborhood) {
        let Some(batch) = &out.batch else { return };
        let history = self.stream.history(is_training);
        let (time, features, event) = (self.stream.events.time(), &self.stream.features, &history.event[..]);
        out.edges.resize_with(batch.edges.len(), Matrix::default);
        out.since.resize_with(batch.edges.len(), Vec::new);
        for (l, block) in batch.sampled.blocks.iter().enumerate() {
            let (block, positions) = (&block.relations[0], &batch.edges[l][0]);
            let since = &mut out.since[l];
            since.clear();
            memory::demand(since, positions.len());
            for v in 0..block.num_dst {
                let of_event = |e: usize| {
                    let event = event[positions[e] as usize] as usize;
                    (i128::from(batch.row_times[0][v]) - i128::from(time[event])) as f64
                };
                since.extend(block.edges(v).map(of_event));
            }
            let events = positions.iter().map(|&position| event[position as usize] as usize);
            features.copy(events, &mut out.edges[l]);
        }
    }
}

impl Neighborhood {
    /// Nodes of the bottom rows of a batch; a node at several times is listed several times.
    pub(super) fn nodes<'n>(&'n self, rows: &'n Rows) -> &'n [NodeId] {
        self.batch.as_ref().map_or(&rows.nodes, |batch| &batch.sampled.input_nodes[0])
    }
}
