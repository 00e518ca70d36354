//! Sampling of neighbours of remote nodes by their owners, with one exchange per hop.
//!
//! ```text
//!   destinations ─┬─ own ──────────────────────────────► sampled here ─┐
//!                 └─ remote ─► ids, keys ~~► owner samples ~~► counts, ids ─┴─► block, in destination order
//! ```
//!
//! Samplers that read several lists draw on the requesting rank ([`crate::neighbors`]).
//!
//! An owner samples with the same sampler as the requesting rank, keyed by (seed, epoch, batch,
//! hop, node), so the block equals that of a single process with the whole graph. Edges that the
//! batch excludes are sent with the ids of their destinations, 8 bytes for each and 4 for their
//! number, and the owner draws from its graph without them.

#![forbid(unsafe_code)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use graphmill_core::{Block, Buffer, Error, Graph, NodeId, ObjectPool, Result, block::Aggregation, memory};
use graphmill_loader::{
    BatchKey, HopSampler,
    link::ExcludedEdges,
    sampler::{
        EdgeSampler, HopProperties, HopRequest, HopScratch, NeighborAccess, sample_remaining,
        sample_remaining_edges,
    },
};

use crate::{
    Messenger, NodeOwnership,
    answer::{Answer, Merged, Part, REPLY_WORDS, has},
    messenger::{HEADER, PendingReply, Service, service_of_type},
    neighbors::{FETCH, ListService, STEP, StepService, Steps, fetch_lists},
    ownership::Share,
};

/// Number of the sampling service.
pub const SAMPLE: u32 = 1;
/// Number of the service that returns whole neighbour lists.
pub const LISTS: u32 = 2;
/// Words of a request before the ids: hop, aggregation, and the key.
const REQUEST_WORDS: usize = 8;

/// Bytes on the wire for requesting the neighbours of `nodes` nodes, and for the reply with `edges`
/// edges.
pub fn bytes_of_a_hop(nodes: usize, edges: usize, weighted: bool) -> [u64; 2] {
    let edges = if weighted { 2 * edges } else { edges };
    [HEADER + REQUEST_WORDS + nodes, HEADER + REPLY_WORDS + nodes + edges].map(|words| 4 * words as u64)
}

/// Method by which a rank draws for nodes of other ranks.
enum Method {
    /// Owners draw from the lists of their nodes.
    Owners,
    /// The rank draws from the fetched lists of all destinations.
    Fetch,
    /// The rank draws from single neighbours, with the in-degrees of all nodes.
    Steps(Buffer<u32>),
}

/// Sampler over the ranks. Its graph has all nodes, and the edges of the nodes that this rank owns.
pub struct Distributed {
    method: Method,
    inner: Arc<dyn HopSampler>,
    post: Arc<Messenger>,
    book: Arc<NodeOwnership>,
    /// Number of the service of owners that draw.
    service: u32,
    /// Number of the relation, in a graph of several types.
    relation: Option<usize>,
    /// Number of nodes that may be neighbours: those of the relation's source type.
    sources: usize,
    /// Number of the first edge of this rank, if blocks name their edges.
    first_edge: Option<NodeId>,
    spare: ObjectPool<Drawn>,
    built: Arc<AtomicU64>,
}

/// Buffers of a drawn hop.
#[derive(Default)]
struct Drawn {
    scratch: HopScratch,
    block: Block,
    positions: Vec<u64>,
    /// Numbers of the edges over all ranks; empty unless they are asked for.
    numbers: Vec<u32>,
}

/// Service that samples own nodes.
pub struct Drawing {
    /// Nanoseconds that writing replies took.
    built: Arc<AtomicU64>,
    inner: Arc<dyn HopSampler>,
    graph: Graph,
    book: Arc<NodeOwnership>,
    first_edge: Option<NodeId>,
    spare: ObjectPool<Drawn>,
}

impl Drawn {
    /// Draws on the calling thread; with `first_edge`, numbers the edges from there on by their
    /// positions in the graph.
    ///
    /// # Errors
    /// Those of the sampler, or it does not name its edges.
    fn draw(
        &mut self,
        inner: &dyn HopSampler,
        request: &HopRequest,
        first_edge: Option<NodeId>,
    ) -> Result<()> {
        let Self { scratch, block, positions, numbers } = self;
        scratch.parallel = false;
        block.clear();
        block.edge_weight.clear();
        numbers.clear();
        let Some(first) = first_edge else { return sample_remaining(inner, request, scratch, block) };
        sample_remaining_edges(inner, request, scratch, block, positions)?;
        // the numbers of all ranks' edges have 32 bits
        memory::demand_extend(numbers, positions.iter().map(|&position| first + position as NodeId));
        Ok(())
    }
}

impl Distributed {
    /// Creates the sampler `inner` over the ranks, with the service [`SAMPLE`].
    ///
    /// # Errors
    /// Its draws for a node depend on more than the node's own neighbours.
    pub fn new(
        inner: Arc<dyn HopSampler>,
        post: Arc<Messenger>,
        book: Arc<NodeOwnership>,
    ) -> Result<Self, String> {
        Self::by(SAMPLE, inner, post, book)
    }

    /// Creates the sampler as [`Distributed::new`] does, with the service of that number.
    ///
    /// # Errors
    /// As for [`Distributed::new`].
    pub fn by(
        service: u32,
        inner: Arc<dyn HopSampler>,
        post: Arc<Messenger>,
        book: Arc<NodeOwnership>,
    ) -> Result<Self, String> {
        let method = match inner.properties().access {
            NeighborAccess::OwnList => Method::Owners,
            NeighborAccess::Lists => Method::Fetch,
            NeighborAccess::Graph if inner.by_steps().is_some() => Method::Steps(Buffer::default()),
            NeighborAccess::Graph => {
                return Err("it reads the graph in ways that its properties do not describe, and a rank \
                            holds only the lists of its own nodes; use a sampler with another \
                            NeighborAccess, such as neighbor"
                    .into());
            }
        };
        let (spare, built) = Default::default();
        let sources = book.num_nodes();
        let (relation, first_edge) = (None, None);
        Ok(Self { method, inner, post, book, service, relation, sources, first_edge, spare, built })
    }

    /// The same sampler for relation `relation` of a graph of several types, with services of its
    /// own. Its source type has `sources` nodes.
    #[must_use]
    pub fn of_relation(self, relation: usize, sources: usize) -> Self {
        Self { relation: Some(relation), sources, ..self }
    }

    /// The same sampler, which can name the edges that it draws by their numbers over all ranks
    /// ([`crate::edges`]). `first` is the number of the first edge of this rank.
    #[must_use]
    pub fn naming_edges(self, first: NodeId) -> Self {
        Self { first_edge: Some(first), ..self }
    }

    /// Number of this sampler's service of the kind `service`.
    fn number_of(&self, service: u32) -> u32 {
        self.relation.map_or(service, |r| service_of_type(service, r))
    }

    /// The same sampler with the in-degrees of all nodes (`V`), which walks read.
    #[must_use]
    pub fn with_degrees(mut self, degrees: Buffer<u32>) -> Self {
        if let Method::Steps(known) = &mut self.method {
            *known = degrees;
        }
        self
    }

    /// The same sampler, whose service adds the nanoseconds of writing replies to `nanos`.
    #[must_use]
    pub fn with_building(self, nanos: Arc<AtomicU64>) -> Self {
        Self { built: nanos, ..self }
    }

    /// Registers the sampling service on `graph` for the other ranks.
    pub fn serve(&self, graph: &Graph) {
        let (inner, book, graph) = (self.inner.clone(), self.book.clone(), graph.clone());
        match self.method {
            Method::Owners => {
                let (built, first_edge) = (self.built.clone(), self.first_edge);
                let drawing = Drawing { built, inner, graph, book, first_edge, spare: ObjectPool::default() };
                self.post.serve(self.number_of(self.service), Arc::new(drawing));
            }
            Method::Fetch => {
                self.post.serve(self.number_of(FETCH), Arc::new(ListService { graph, book }));
            }
            Method::Steps(_) => {
                let (steps, lists) = (book.clone(), graph.clone());
                self.post.serve(self.number_of(STEP), Arc::new(StepService { graph, book: steps }));
                self.post.serve(self.number_of(FETCH), Arc::new(ListService { graph: lists, book }));
            }
        }
    }

    /// Draws a hop at the owners of its destinations, with the numbers of the edges if they are
    /// asked for.
    fn sample_by_owners(
        &self,
        request: &HopRequest,
        block: &mut Block,
        positions: Option<&mut Vec<u64>>,
    ) -> Result<()> {
        let &HopRequest { hop, dst, key, aggregation, excluded, .. } = request;
        let shares = self.book.by_owner(dst);
        let question = Request { hop, key, aggregation, names_edges: positions.is_some() };
        let excluded = excluded.filter(|excluded| !excluded.is_empty());
        let mut asked: Vec<(&Share, PendingReply)> = Vec::with_capacity(shares.len());
        for to in self.post.others() {
            let share = &shares[to];
            if !share.ids.is_empty() {
                let say = |words: &mut Vec<u32>| {
                    memory::demand(words, REQUEST_WORDS + share.ids.len());
                    question.write(excluded, &share.ids, words);
                };
                asked.push((share, self.post.ask(to, self.number_of(self.service), say)));
            }
        }
        let own = &shares[self.book.rank()];
        let first_edge = self.first_edge.filter(|_| question.names_edges);
        self.spare.with(|mine| {
            if !own.ids.is_empty() {
                mine.draw(&*self.inner, &HopRequest { dst: &own.ids, ..*request }, first_edge)?;
            }
            let mut answers = Vec::with_capacity(asked.len());
            for (share, asked) in asked {
                answers.push((share, Answer::read(asked.wait()?, share.ids.len(), self.sources)?));
            }
            let mut parts: Vec<Part> = answers.iter().map(|(share, answer)| answer.part(share)).collect();
            if !own.ids.is_empty() {
                let Drawn { block: Block { indptr, indices, edge_weight, .. }, numbers, .. } = &*mine;
                let (ends, positions) = (&indptr[1..], &numbers[..]);
                let weights = &edge_weight[..];
                parts.push(Part { at: &own.at, ends, indices, weights, positions, times: &[] });
            }
            Merged::of(block, positions).fill(dst.len(), &parts)
        })
    }

    /// Draws a hop from the fetched lists of its destinations.
    fn sample_fetched(
        &self,
        request: &HopRequest,
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        let service = self.number_of(FETCH);
        let lists =
            fetch_lists((&self.post, service), (&self.book, self.sources), request.graph, request.dst)?;
        let dst = memory::demand_collect(0..request.dst.len() as NodeId);
        let request = HopRequest { graph: &lists, dst: &dst, names: Some(request.dst), ..*request };
        sample_remaining(&*self.inner, &request, scratch, block)
    }

    /// Draws a hop from single neighbours.
    fn sample_by_steps(
        &self,
        request: &HopRequest,
        degrees: &[u32],
        scratch: &mut HopScratch,
        block: &mut Block,
    ) -> Result<()> {
        if degrees.len() != self.book.num_nodes() {
            let (known, nodes) = (degrees.len(), self.book.num_nodes());
            return Err(Error::invalid(format!("degrees of {known} nodes: walks read those of {nodes}")));
        }
        let Some(sampler) = self.inner.by_steps() else {
            return Err(Error::invalid("the sampler reads no single neighbours"));
        };
        let services = [STEP, FETCH].map(|service| self.number_of(service));
        let source = Steps { post: &self.post, services, book: &self.book, graph: request.graph, degrees };
        sampler.sample_hop_by_steps(request, &source, scratch, block)
    }
}

impl HopSampler for Distributed {
    fn num_layers(&self) -> usize {
        self.inner.num_layers()
    }

    fn properties(&self) -> HopProperties {
        // A hop is a single exchange, so it is not split.
        HopProperties {
            is_per_node: false,
            access: NeighborAccess::Graph,
            leaves_out: true,
            ..self.inner.properties()
        }
    }

    fn sample_hop(&self, request: &HopRequest, scratch: &mut HopScratch, block: &mut Block) -> Result<()> {
        match &self.method {
            Method::Owners => self.sample_by_owners(request, block, None),
            Method::Fetch => self.sample_fetched(request, scratch, block),
            Method::Steps(degrees) => self.sample_by_steps(request, degrees, scratch, block),
        }
    }

    fn by_edges(&self) -> Option<&dyn EdgeSampler> {
        let names = matches!(self.method, Method::Owners) && self.inner.by_edges().is_some();
        (names && self.first_edge.is_some()).then_some(self)
    }
}

impl EdgeSampler for Distributed {
    /// Positions are the numbers of the edges over all ranks.
    fn sample_hop_edges(
        &self,
        request: &HopRequest,
        _: &mut HopScratch,
        block: &mut Block,
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        self.sample_by_owners(request, block, Some(positions))
    }
}

impl Service for Drawing {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        let (question, excluded, ids) = Request::read(words)?;
        if question.hop >= self.inner.num_layers() {
            return Err(Error::invalid(format!("hop {} of {}", question.hop, self.inner.num_layers())));
        }
        if let Some(&v) = ids.iter().find(|&&v| v as usize >= self.book.num_nodes() || !self.book.is_own(v)) {
            return Err(Error::invalid(format!(
                "node {v} is not on this rank: the ranks have opened different partitions"
            )));
        }
        let Request { hop, key, aggregation, names_edges } = question;
        self.spare.with(|drawn| {
            let excluded = excluded.as_ref();
            let request = HopRequest { aggregation, excluded, ..HopRequest::new(&self.graph, hop, ids, key) };
            drawn.draw(&*self.inner, &request, self.first_edge.filter(|_| names_edges))?;
            let began = Instant::now();
            let Drawn { block: Block { indptr, indices, edge_weight, .. }, numbers, .. } = &*drawn;
            let mut arrays = if edge_weight.is_empty() { 0 } else { has::WEIGHTS };
            arrays |= if names_edges { has::POSITIONS } else { 0 };
            let edges = indices.len() + edge_weight.len() + numbers.len();
            memory::demand(answer, REPLY_WORDS + ids.len() + edges);
            answer.extend([indices.len() as u32, arrays]);
            answer.extend_from_slice(&indptr[1..]);
            answer.extend_from_slice(indices);
            answer.extend_from_slice(bytemuck::cast_slice(edge_weight));
            answer.extend_from_slice(numbers);
            self.built.fetch_add(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX), Relaxed);
            Ok(())
        })
    }
}

/// Parameters of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) hop: usize,
    pub(crate) key: BatchKey,
    pub(crate) aggregation: Aggregation,
    /// True if the reply numbers the edges.
    pub(crate) names_edges: bool,
}

/// Bit of the word of the aggregation that asks for the numbers of the edges.
const NAMES_EDGES: u32 = 1 << 8;
/// Bit of that word for a request with excluded edges before the ids: their number, then the
/// destination and the source of each.
const EXCLUDES: u32 = 1 << 9;

/// Aggregations of neighbour rows, by number.
const AGGREGATIONS: [Aggregation; 4] =
    [Aggregation::Other, Aggregation::Mean, Aggregation::Sum, Aggregation::Symmetric];

impl Request {
    pub(crate) fn words(&self) -> [u32; REQUEST_WORDS] {
        let BatchKey { seed, epoch, batch } = self.key;
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        let ([s0, s1], [e0, e1], [b0, b1]) = (halves(seed), halves(epoch), halves(batch));
        let made = AGGREGATIONS.iter().position(|&a| a == self.aggregation).unwrap_or(0);
        let made = made as u32 | if self.names_edges { NAMES_EDGES } else { 0 };
        [self.hop as u32, made, s0, s1, e0, e1, b0, b1]
    }

    /// Appends the request for neighbours of `ids`, without the excluded edges into these.
    fn write(&self, excluded: Option<&ExcludedEdges>, ids: &[NodeId], words: &mut Vec<u32>) {
        let first = words.len();
        words.extend(self.words());
        if let Some(excluded) = excluded {
            let number = words.len();
            words.push(0);
            for edges in ids.iter().map(|&v| excluded.sources_of(v)) {
                memory::demand_extend(words, edges.iter().flat_map(|&(v, u)| [v, u]));
                words[number] += edges.len() as u32;
            }
            if words[number] > 0 {
                words[first + 1] |= EXCLUDES;
            } else {
                words.pop();
            }
        }
        memory::demand_append(words, ids);
    }

    /// Reads a request: its parameters, excluded edges and ids.
    pub(crate) fn read(words: &[u32]) -> Result<(Self, Option<ExcludedEdges>, &[NodeId])> {
        let too_few = || Error::invalid("a request of too few words");
        let (&[hop, made, s0, s1, e0, e1, b0, b1], mut ids) =
            words.split_first_chunk().ok_or_else(too_few)?;
        let mut excluded = None;
        if made & EXCLUDES > 0 {
            let (&number, rest) = ids.split_first().ok_or_else(too_few)?;
            let (edges, rest) = rest.split_at_checked(2 * number as usize).ok_or_else(too_few)?;
            let edges = edges.as_chunks::<2>().0.iter().map(|&[v, u]| (u, v));
            excluded.insert(ExcludedEdges::default()).refill(edges);
            ids = rest;
        }
        let whole = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let key = BatchKey { seed: whole(s0, s1), epoch: whole(e0, e1), batch: whole(b0, b1) };
        let Some(&aggregation) = AGGREGATIONS.get((made & !(NAMES_EDGES | EXCLUDES)) as usize) else {
            return Err(Error::invalid(format!("unknown aggregation {made}")));
        };
        let names_edges = made & NAMES_EDGES > 0;
        Ok((Self { hop: hop as usize, key, aggregation, names_edges }, excluded, ids))
    }
}
