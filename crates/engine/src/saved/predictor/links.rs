//! A run on links or events that stays open: scores of pairs, best candidates and embeddings.
//!
//! [`LinkPredictor::open`] computes the embeddings of all nodes once, as `graphmill predict` does.
//! A question then looks rows up and multiplies them. Answers have the bits of `graphmill predict
//! --top-k` and `graphmill embed`, for any number of threads, and whatever is asked together.
//!
//! ```no_run
//! use graphmill_core::progress::Quiet;
//! use graphmill_engine::{
//!     predictor::{LinkPredictor, TopOptions},
//!     saved::links::Reading,
//! };
//!
//! let links = LinkPredictor::open("runs/shop".as_ref(), None, false, Reading::Training, &Quiet)?;
//! let buys = links.relation("")?;
//! let [users, items] = links.relations()[buys].ends;
//! let ann = links.find(users, "ann")?;
//! let best = links.top(buys, &[ann], TopOptions { k: 10, ..TopOptions::default() })?;
//! for &(item, score) in &best[0] {
//!     println!("{:?} {score}", links.key(items, item));
//! }
//! # Ok::<(), graphmill_engine::Error>(())
//! ```
//!
//! # Cost
//!
//! To open, an inference for all nodes. O(C F) for the best of `C` candidates, O(F) for the score
//! of a pair. New events of a stream of `E` take O(V F + E), and the embeddings of all nodes once
//! more when the best candidates are asked for.
//!
//! # Memory
//!
//! The embeddings, `V x F` numbers of 4 bytes, the known edges, and 12 bytes per node for the index
//! of the keys. While they are computed, the memory of `graphmill predict`, too. A call allocates a
//! block of scores: 64 MiB, or 16 rows of `C` scores if that is more.

use std::path::Path;

use graphmill_core::{End, NodeId, progress::Progress};
use graphmill_data::{Dataset, typed::TypedDataset};

use super::{index::KeyedNodes, opened_links::OpenLinks};
use crate::{
    CandidateOptions, Error, Result,
    embedding::SavedEmbedding,
    events::{NewEvents, OpenEvents, SavedEvents},
    link::split::Edge,
    relational::{Embedded, find_relation},
    saved::{SavedRun, check_outputs, keys::Names, links::Reading},
    typed::links::SavedTypedLinks,
};

/// Sources whose candidates are ranked at once.
const SOURCES: usize = 1 << 12;

/// A run on links that was opened once and answers from any number of threads.
pub struct LinkPredictor {
    run: SavedRun,
    dataset: String,
    links: Links,
    /// Nodes of each type that has embeddings.
    nodes: Vec<KeyedNodes>,
    relations: Vec<ScoredRelation>,
}

/// Sources of the answers.
enum Links {
    /// Embeddings of all nodes.
    Embedded(Box<dyn OpenLinks>),
    /// A stream of events, which answers as of a time.
    Events(Box<OpenEvents>),
}

/// A relation whose edges a run scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoredRelation {
    /// Name: that of the task or the edge type.
    pub name: String,
    /// Node types of source and destination, by their numbers in [`LinkPredictor::node_types`].
    pub ends: [usize; 2],
}

/// Choice of candidates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopOptions {
    /// Number of candidates of each node.
    pub k: usize,
    /// True to rank sources of given destinations.
    pub sources: bool,
    /// True to rank known edges, too, which are left out otherwise. Events repeat, so those of a
    /// run on events are always ranked.
    pub include_known: bool,
    /// Time as of which a run on events ranks: by the events strictly before it. All by default.
    pub at: Option<i64>,
}

impl LinkPredictor {
    /// Opens the run in `dir` with its dataset or the one at `dataset`: the best model or, with
    /// `last`, that of the last checkpoint. Embeddings are computed from the messages of `reading`.
    ///
    /// # Errors
    /// The run or the dataset cannot be read; the run learned no links; `reading` is not for its
    /// model; or `watch` stops the work.
    pub fn open(
        dir: &Path,
        dataset: Option<&Path>,
        last: bool,
        reading: Reading,
        watch: &dyn Progress,
    ) -> Result<Self> {
        Self::of(SavedRun::open(dir, last)?, dataset, reading, watch)
    }

    /// Answers by `run` for its dataset or the one at `dataset`.
    ///
    /// # Errors
    /// As [`LinkPredictor::open`].
    pub fn of(run: SavedRun, dataset: Option<&Path>, reading: Reading, watch: &dyn Progress) -> Result<Self> {
        if let Some(table) = SavedEmbedding::of(&run) {
            let options = CandidateOptions { all_edges: reading == Reading::All, ..Default::default() };
            options.of_table()?;
            let data = table.dataset(dataset)?;
            let embedded = table.load(&data)?;
            return Ok(Self::of_relations(run, &data, embedded));
        }
        if let Some(events) = SavedEvents::of(&run) {
            if reading == Reading::All {
                let message = "--all-edges: the run learned events, of which all before a time are read; \
                               leave it out";
                return Err(Error::usage(message));
            }
            let data = events.dataset(dataset)?;
            return Self::of_events(run, &data);
        }
        if let Some(typed) = SavedTypedLinks::of(&run) {
            let data = typed.dataset(dataset)?;
            let embedded = typed.load(&data, reading, watch)?;
            return Ok(Self::of_relations(run, &data, embedded));
        }
        refuse_others(&run)?;
        let data = run.dataset(dataset)?;
        Self::new(run, &data, reading, watch)
    }

    /// Answers by `run`, which learned the stream of events in `data`.
    fn of_events(run: SavedRun, data: &TypedDataset) -> Result<Self> {
        let events = OpenEvents::new(run.clone(), data)?;
        let [sources, destinations] = events.types();
        let types = if sources == destinations { vec![sources] } else { vec![sources, destinations] };
        let nodes = types.iter().map(|&t| {
            let of = &data.nodes[t];
            KeyedNodes::new(Names::of_type(data, t, Vec::new()), Some(of.name.clone()), of.count)
        });
        let relations = vec![ScoredRelation { name: events.task(), ends: [0, types.len() - 1] }];
        let nodes = nodes.collect();
        Ok(Self { run, dataset: data.name.clone(), links: Links::Events(Box::new(events)), nodes, relations })
    }

    /// Answers by `run`, which learned a graph of one type, for the nodes of `data`.
    ///
    /// # Errors
    /// As [`LinkPredictor::open`].
    pub fn new(run: SavedRun, data: &Dataset, reading: Reading, watch: &dyn Progress) -> Result<Self> {
        refuse_others(&run)?;
        if !run.learns_links() {
            let message = "it has one type, and the run learned links of several types or a table; pass the \
                           directory of its dataset";
            return Err(Error::dataset(&data.name, message));
        }
        let nodes = KeyedNodes::new(Names::of(data, None)?, None, data.num_nodes());
        let links = run.open_links(data, reading, watch)?;
        Ok(Self::with(run, data.name.clone(), Box::new(links), vec![nodes]))
    }

    fn of_relations(run: SavedRun, data: &TypedDataset, embedded: Embedded) -> Self {
        let nodes = |(t, rows): &(usize, std::ops::Range<NodeId>)| {
            let name = data.nodes[*t].name.clone();
            KeyedNodes::new(Names::of_type(data, *t, Vec::new()), Some(name), rows.len())
        };
        let nodes = embedded.edges.types.iter().map(nodes).collect();
        Self::with(run, data.name.clone(), Box::new(embedded), nodes)
    }

    fn with(run: SavedRun, dataset: String, links: Box<dyn OpenLinks>, nodes: Vec<KeyedNodes>) -> Self {
        let relations = links.relations().into_iter();
        let relations = relations.map(|(name, ends)| ScoredRelation { name, ends }).collect();
        Self { run, dataset, links: Links::Embedded(links), nodes, relations }
    }

    /// The run.
    pub fn run(&self) -> &SavedRun {
        &self.run
    }

    /// Name of the dataset.
    pub fn dataset(&self) -> &str {
        &self.dataset
    }

    /// Types of the nodes that have embeddings; `None` for the nodes of a dataset of one type.
    pub fn node_types(&self) -> impl Iterator<Item = Option<&str>> {
        self.nodes.iter().map(|nodes| nodes.node_type.as_deref())
    }

    /// Number of the node type of this name, or of the first if the name is empty.
    ///
    /// # Errors
    /// Wrong usage: the type has no embeddings; the message lists those that have some.
    pub fn node_type(&self, name: &str) -> Result<usize> {
        let known = || self.node_types().flatten();
        self.node_types().position(|of| name.is_empty() || of == Some(name)).ok_or_else(|| {
            let known = match known().count() {
                0 => "leave it out: the nodes have one type".into(),
                _ => format!("known: {}", known().collect::<Vec<_>>().join(", ")),
            };
            Error::usage(format!("node type '{name}' has no embeddings; {known}"))
        })
    }

    /// Relations, in the order of the decoder's parameters.
    pub fn relations(&self) -> &[ScoredRelation] {
        &self.relations
    }

    /// Number of the relation of this name, or of the only one if the name is empty.
    ///
    /// # Errors
    /// The relation is unknown, or there are several and the name is empty.
    pub fn relation(&self, name: &str) -> Result<usize> {
        find_relation(&self.dataset, self.relations.iter().map(|of| &of.name[..]), name)
    }

    /// Number of nodes of a type.
    ///
    /// # Panics
    /// The type is not one of [`LinkPredictor::node_types`].
    pub fn num_nodes(&self, node_type: usize) -> usize {
        self.nodes[node_type].count
    }

    /// Width of the embeddings, `F`; 0 for a model on events whose rows are those of pairs.
    pub fn embedding_dim(&self) -> usize {
        match &self.links {
            Links::Embedded(links) => links.width(),
            Links::Events(events) => events.width(),
        }
    }

    /// Time after all events, as of which a run on events answers by default; `None` for other
    /// runs.
    pub fn end_time(&self) -> Option<i64> {
        match &self.links {
            Links::Embedded(_) => None,
            Links::Events(events) => Some(events.end()),
        }
    }

    /// Number of events of a run on events, and of features of each; `None` for other runs.
    pub fn events(&self) -> Option<[usize; 2]> {
        match &self.links {
            Links::Embedded(_) => None,
            Links::Events(events) => Some([events.num_events(), events.event_dim()]),
        }
    }

    /// Adds events to the stream of a run on events: further answers are those of a run opened on a
    /// dataset whose test part ends with them, to the bit. The dataset does not change. Answers
    /// that are under way are those of before.
    ///
    /// # Errors
    /// Nothing is added: the run learned no events, a node is out of range, lists differ in length,
    /// a feature is not finite, or an event is earlier than the last one.
    pub fn add_events(&self, new: &NewEvents) -> Result<()> {
        let Links::Events(events) = &self.links else {
            let message = "new events: the run learned no stream of events; train with --model tgn or tgat";
            return Err(Error::usage(message));
        };
        let [sources, destinations] = self.relations[0].ends.map(|end| &self.nodes[end]);
        sources.check(&self.dataset, new.pairs.iter().map(|pair| pair.0))?;
        destinations.check(&self.dataset, new.pairs.iter().map(|pair| pair.1))?;
        events.add(new)
    }

    /// Returns false if the run learned classes or values of events, so that it has embeddings
    /// only.
    pub fn ranks(&self) -> bool {
        match &self.links {
            Links::Embedded(_) => true,
            Links::Events(events) => events.ranks(),
        }
    }

    /// Node of a key in a type. The parts of a key of several columns are joined by `|`. O(log V).
    ///
    /// # Errors
    /// The key is unknown, or the dataset has no keys.
    ///
    /// # Panics
    /// As [`LinkPredictor::num_nodes`].
    pub fn find(&self, node_type: usize, key: &str) -> Result<NodeId> {
        self.nodes[node_type].find(&self.dataset, key)
    }

    /// Key of a node of a type; `None` if the dataset has no keys.
    ///
    /// # Panics
    /// The type or the node is out of range.
    pub fn key(&self, node_type: usize, node: NodeId) -> Option<String> {
        self.nodes[node_type].key(node)
    }

    /// Checks that nodes of a type are in the graph.
    ///
    /// # Errors
    /// The message names the first that is not.
    ///
    /// # Panics
    /// As [`LinkPredictor::num_nodes`].
    pub fn check_nodes(&self, node_type: usize, nodes: &[NodeId]) -> Result<()> {
        self.nodes[node_type].check(&self.dataset, nodes.iter().copied())
    }

    /// Scores of pairs (source, destination) of a relation, in their order: those that `graphmill
    /// predict --top-k` writes beside the destination, also of known edges.
    ///
    /// # Errors
    /// A node is out of range.
    ///
    /// # Panics
    /// The relation is not one of [`LinkPredictor::relations`].
    pub fn score(&self, relation: usize, pairs: &[Edge]) -> Result<Vec<f32>> {
        self.score_at(relation, pairs, None)
    }

    /// Scores of pairs as of the time `at`, by a run on events.
    ///
    /// # Errors
    /// A node is out of range; `at` is given and the run learned no events; or it learned classes
    /// or values of events.
    ///
    /// # Panics
    /// As [`LinkPredictor::score`].
    pub fn score_at(&self, relation: usize, pairs: &[Edge], at: Option<i64>) -> Result<Vec<f32>> {
        let [sources, destinations] = self.relations[relation].ends.map(|end| &self.nodes[end]);
        sources.check(&self.dataset, pairs.iter().map(|pair| pair.0))?;
        destinations.check(&self.dataset, pairs.iter().map(|pair| pair.1))?;
        let scores = match &self.links {
            Links::Embedded(links) => {
                check_at(at)?;
                rayon::scope(|_| links.scores(relation, pairs))
            }
            Links::Events(events) => rayon::scope(|_| events.scores(pairs, at))?,
        };
        let name = |(u, v): (NodeId, NodeId)| format!("{} and {}", sources.name(u), destinations.name(v));
        check_outputs(&scores, 1, |row| name(pairs[row]))?;
        Ok(scores)
    }

    /// The best candidates of each node in a relation with their scores, the best first: the bits
    /// of `graphmill predict --top-k`. A node may have fewer than `k`, because known edges are left
    /// out, and in a dataset of one type the node itself.
    ///
    /// # Errors
    /// A node is out of range; the options have a time and the run learned no events; or it learned
    /// events, and ranks no sources, or has classes or values of events.
    ///
    /// # Panics
    /// The relation is not one of [`LinkPredictor::relations`].
    pub fn top(
        &self,
        relation: usize,
        nodes: &[NodeId],
        options: TopOptions,
    ) -> Result<Vec<Vec<(NodeId, f32)>>> {
        let TopOptions { k, sources, include_known, at } = options;
        let end = if sources { End::Source } else { End::Destination };
        let fixed = self.relations[relation].ends[end.other() as usize];
        self.check_nodes(fixed, nodes)?;
        self.check(&options)?;
        let best = match &self.links {
            Links::Embedded(links) => {
                let mut best = Vec::with_capacity(nodes.len());
                for chunk in nodes.chunks(SOURCES) {
                    best.extend(rayon::scope(|_| links.top((relation, end), chunk, k, include_known)));
                }
                best
            }
            Links::Events(events) => {
                let count = self.nodes[self.relations[relation].ends[1]].count;
                rayon::scope(|_| events.top(nodes, (k, at), count))?
            }
        };
        for (&node, best) in nodes.iter().zip(&best) {
            let scores: Vec<f32> = best.iter().map(|pair| pair.1).collect();
            check_outputs(&scores, 1, |_| self.nodes[fixed].name(node))?;
        }
        Ok(best)
    }

    /// Checks that candidates can be ranked by these options.
    ///
    /// # Errors
    /// As [`LinkPredictor::top`], but for the nodes.
    pub fn check(&self, options: &TopOptions) -> Result<()> {
        match &self.links {
            Links::Embedded(_) => check_at(options.at),
            Links::Events(_) if options.sources => {
                Err(Error::usage("--sources: a run on events ranks destinations; leave it out"))
            }
            Links::Events(events) => events.check_ranks(),
        }
    }

    /// Embeddings of nodes of a type (`N x F`), as `graphmill embed` writes them.
    ///
    /// # Errors
    /// A node is out of range.
    ///
    /// # Panics
    /// As [`LinkPredictor::num_nodes`].
    pub fn embed(&self, node_type: usize, nodes: &[NodeId]) -> Result<Vec<f32>> {
        self.embed_at(node_type, nodes, None)
    }

    /// Embeddings of nodes of a type (`N x F`) as of the time `at`, by a run on events.
    ///
    /// # Errors
    /// A node is out of range; `at` is given and the run learned no events; or the rows of its
    /// model are those of pairs.
    ///
    /// # Panics
    /// As [`LinkPredictor::num_nodes`].
    pub fn embed_at(&self, node_type: usize, nodes: &[NodeId], at: Option<i64>) -> Result<Vec<f32>> {
        self.check_nodes(node_type, nodes)?;
        let rows = match &self.links {
            Links::Embedded(links) => {
                check_at(at)?;
                links.embeddings(node_type, nodes)
            }
            Links::Events(events) => rayon::scope(|_| events.embeddings(node_type, nodes, at))?,
        };
        check_outputs(rows.view().host(), rows.num_cols(), |row| self.nodes[node_type].name(nodes[row]))?;
        Ok(rows.view().host().to_vec())
    }
}

/// Refuses a time for a run on links.
fn check_at(at: Option<i64>) -> Result<()> {
    match at {
        None => Ok(()),
        Some(at) => Err(Error::usage(format!(
            "at {at}: only runs on streams of events answer links as of a time; leave it out"
        ))),
    }
}

/// Refuses runs without links.
fn refuse_others(run: &SavedRun) -> Result<()> {
    if run.ranks_links() {
        return Ok(());
    }
    let why = "no links; open it as a Predictor, or train with --task link";
    Err(Error::usage(format!("{}: the run learned {why}", run.dir.display())))
}
