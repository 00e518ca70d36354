//! Options of a run that learns links.

use std::{fmt, str::FromStr};

use clap::{Args, ValueEnum};
use graphmill_core::{
    by_name, by_word,
    options::{Fault, OptionSet, one_of, range},
};
use graphmill_loader::link::{self, Corrupt, Exclude, ListSource, NegativeKind, WalkRule, negatives_that};
use graphmill_nn::link::decoder::{self, decoders_that};
use serde::{Deserialize, Serialize, Serializer};

/// Value of `--task` for the only link task of a dataset or, if it has none, a split of its edges.
pub const LINK: &str = "link";

/// Ends of an edge that negatives replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacedEnds {
    /// Both ends of undirected graphs, the destination of others.
    Auto,
    /// The destination.
    Destination,
    /// The source.
    Source,
    /// Both, in turn.
    Both,
}

/// Edges that no batch reads messages over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExcludedFromMessages {
    /// None: a model may read the edges that it learns.
    None,
    /// The edges of the batch.
    Edges,
    /// The edges of the batch and their reverses.
    WithReverses,
}

/// Pairs of nodes that a run learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Positives {
    /// The training edges.
    Edges,
    /// Nodes that occur together on random walks over the training edges.
    Walks,
}

/// Times as of which links are learned and scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkTimes {
    /// Those of the rows of the task, if they have some.
    Rows,
    /// Those of the edges of the graph.
    Edges,
}

by_name!(ReplacedEnds, ExcludedFromMessages, Positives, LinkTimes);

/// Shares of the edges that train, validate and test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeShares {
    /// The shares, of any sum.
    pub shares: [f64; 3],
    /// True to cut the edges by their times, false to draw them at random.
    pub by_time: bool,
}

/// Word before the shares of a split by time.
const BY_TIME: &str = "time:";

impl FromStr for EdgeShares {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{word}' is not a split; write three shares, such as 85,5,10, or time:85,5,10 to split by \
                 time"
            )
        };
        let (by_time, list) = word.strip_prefix(BY_TIME).map_or((false, word), |list| (true, list));
        let shares: Vec<f64> =
            list.split(',').map(|part| part.trim().parse().map_err(|_| wrong())).collect::<Result<_, _>>()?;
        let shares: [f64; 3] = shares.try_into().map_err(|_| wrong())?;
        if shares.iter().all(|x| x.is_finite() && *x >= 0.0) && shares[0] > 0.0 {
            return Ok(Self { shares, by_time });
        }
        Err(format!("'{word}' must have shares of at least 0, the first of them above 0"))
    }
}

impl fmt::Display for EdgeShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [train, valid, test] = self.shares;
        let by_time = if self.by_time { BY_TIME } else { "" };
        write!(f, "{by_time}{train},{valid},{test}")
    }
}

impl Serialize for EdgeShares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

by_word!(EdgeShares);

/// Candidates among which an edge is ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Candidates {
    /// The negatives of the task if it has some, else `pairs` for metrics of classification and
    /// `all` for metrics of ranking.
    Auto,
    /// As many random pairs without an edge as there are edges.
    Pairs,
    /// All nodes without a known edge.
    All,
}

by_name!(Candidates);

/// Options of `--task link`.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkOptions {
    /// Decoder: scores a pair of embeddings
    ///
    /// Dot, cosine, bilinear, distmult, complex, transe, rotate, mlp or structure. Dot is the
    /// fastest to rank by. Structure also reads the graph around each pair, of one node type and
    /// one edge type: common neighbours, paths and distances without the pair's own edge. Example:
    /// --decoder mlp.
    #[arg(long, value_name = "NAME")]
    pub decoder: String,
    /// Width of the hidden layer of --decoder mlp or structure.
    #[arg(long, value_name = "N")]
    pub decoder_hidden: usize,
    /// Width of the embeddings; 0 for that of --hidden.
    ///
    /// The last layer has this width. Example: --embedding-dim 16.
    #[arg(long, value_name = "N")]
    pub embedding_dim: usize,
    /// Positive pairs: edges or walks.
    ///
    /// Edges are the training edges. Walks are pairs of nodes that occur together on random walks
    /// over them, as in node2vec and unsupervised GraphSAGE: the seeds of a batch are --batch-size
    /// walks. Example: --positives walks --negatives degree --num-negatives 5.
    #[arg(long, value_name = "PAIRS")]
    pub positives: Positives,
    /// Nodes of a walk of --positives walks.
    ///
    /// Range: 2 to 10000.
    #[arg(long, value_name = "N")]
    pub walk_nodes: usize,
    /// Walks of each node in an epoch of --positives walks.
    ///
    /// Range: 1 to 10000.
    #[arg(long, value_name = "N")]
    pub walks_per_node: usize,
    /// Most steps between the nodes of a pair of --positives walks.
    ///
    /// A larger window relates nodes that are further apart. Range: 1 to 10000.
    #[arg(long, value_name = "N")]
    pub walk_window: usize,
    /// Return parameter of walks: p of node2vec.
    ///
    /// A step back to the last node has the weight 1/p; a large p avoids it. Range: 0.001 to 1000.
    #[arg(long, value_name = "X")]
    pub walk_p: f64,
    /// In-out parameter of walks: q of node2vec.
    ///
    /// A step to a node without an edge with the last node has the weight 1/q: a small q leads
    /// away, and a large one stays near. Range: 0.001 to 1000.
    #[arg(long, value_name = "X")]
    pub walk_q: f64,
    /// Negative edges: uniform, degree, in-batch, existing, file or hard.
    ///
    /// Uniform draws exact non-edges. Degree prefers nodes of many edges. In-batch takes ends of
    /// the other edges of a batch, whose embeddings are computed anyway. Existing draws nodes that
    /// exist at the time of the edge, if nodes have times. File reads --negatives-file. Hard draws
    /// from the best non-edges by the model of the last epoch.
    #[arg(long, value_name = "NAME")]
    pub negatives: String,
    /// Pairs that --negatives file draws from: a .npy file.
    ///
    /// Integers of two columns, source and destination, or three: source, relation, destination. An
    /// edge draws from the pairs with its other end and, if no non-edge is among them, uniformly.
    /// Example: --negatives file --negatives-file pairs.npy.
    #[arg(long, value_name = "PATH")]
    pub negatives_file: String,
    /// Best non-edges of each node that --negatives hard draws from.
    ///
    /// The model ranks all nodes for each node at the end of an epoch. Fewer are harder, and more
    /// of them are edges that are not known. Range: 1 to 65536.
    #[arg(long, value_name = "K")]
    pub hard_candidates: usize,
    /// Negatives of each edge.
    ///
    /// More give better rankings and take more time. Range: 1 to 65536.
    #[arg(long, value_name = "N")]
    pub num_negatives: usize,
    /// Ends that negatives replace: auto, destination, source or both.
    ///
    /// Auto is both for undirected graphs, else destination. Rankings replace the same ends.
    #[arg(long, value_name = "ENDS")]
    pub corrupt: ReplacedEnds,
    /// Edges that a batch does not read: with-reverses, edges or none.
    ///
    /// A model that reads the edges that it predicts learns nothing else, so a batch leaves out its
    /// own edges and their reverses. Choose none to reproduce papers that train with all edges.
    #[arg(long, value_name = "EDGES")]
    pub exclude: ExcludedFromMessages,
    /// Fraction of the training edges that are learned and never read.
    ///
    /// With 0 all of them are both learned and read. Set it for small graphs with few batches.
    /// Range: 0 to below 1. Example: --disjoint 0.3.
    #[arg(long, value_name = "RATIO")]
    pub disjoint: f64,
    /// Shares of the edges that train, validate and test.
    ///
    /// For datasets without a link task, whose edges are split at random by --seed. time:T,V,T
    /// splits by the times of edges instead: the last ones test, those before validate. Models of
    /// events always split by time, time:70,15,15 if this is left out. Example: --split-edges
    /// time:80,10,10.
    #[arg(long, value_name = "T,V,T")]
    pub split_edges: EdgeShares,
    /// Fraction of training edges that validate if a stored task has none.
    ///
    /// For link tasks of the dataset without validation edges. They are drawn by --seed, and
    /// neither learned nor read. Choose epochs and options with it, then train again without.
    /// Range: 0 to below 1. Example: --valid-fraction 0.1.
    #[arg(long, value_name = "RATIO")]
    pub valid_fraction: f64,
    /// Candidates of a validation or test edge: auto, pairs or all.
    ///
    /// All ranks each edge among all nodes without a known edge. Pairs compares the edges with as
    /// many random pairs without an edge. Auto takes the negatives of the task if it has some.
    #[arg(long, value_name = "WHICH")]
    pub candidates: Candidates,
    /// Times of links: those of the rows of the task, or of the edges.
    ///
    /// Rows are without times unless the task has some. With edges, each edge is learned and scored
    /// at its own time: it reads only edges of earlier times, and its negatives exist then. The
    /// edges are split by time, time:85,5,10 if --split-edges is left out. Example: --link-times
    /// edges --eval-negatives 100.
    #[arg(long, value_name = "WHICH")]
    pub link_times: LinkTimes,
    /// Drawn candidates that an edge with a time is ranked among; 0: all.
    ///
    /// All candidates are embedded for each time of the edges that validate or test. With drawn
    /// ones, every edge may have a time of its own. More make the ranking harder. Range: 0 to
    /// 65536. Example: --eval-negatives 100.
    #[arg(long, value_name = "N")]
    pub eval_negatives: usize,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            decoder: "dot".into(),
            decoder_hidden: 64,
            embedding_dim: 0,
            positives: Positives::Edges,
            walk_nodes: 20,
            walks_per_node: 1,
            walk_window: 5,
            walk_p: 1.0,
            walk_q: 1.0,
            negatives: "uniform".into(),
            negatives_file: String::new(),
            hard_candidates: 100,
            num_negatives: 1,
            corrupt: ReplacedEnds::Auto,
            exclude: ExcludedFromMessages::WithReverses,
            disjoint: 0.0,
            split_edges: EdgeShares { shares: [85.0, 5.0, 10.0], by_time: false },
            valid_fraction: 0.0,
            candidates: Candidates::Auto,
            link_times: LinkTimes::Rows,
            eval_negatives: 0,
        }
    }
}

impl OptionSet for LinkOptions {
    fn check(&self) -> Result<(), Fault> {
        let named = |option: &str, found: graphmill_core::Result<()>| {
            found.map_err(|error| Fault { option: Some(option.into()), message: error.to_string() })
        };
        named("decoder", decoder::TABLE.find(&self.decoder).map(drop))?;
        named("negatives", link::TABLE.find(&self.negatives).map(drop))?;
        range("decoder_hidden", self.decoder_hidden, 1..=1 << 20)?;
        range("embedding_dim", self.embedding_dim, ..=1 << 20)?;
        range("walk_nodes", self.walk_nodes, 2..=10_000)?;
        range("walks_per_node", self.walks_per_node, 1..=10_000)?;
        range("walk_window", self.walk_window, 1..=10_000)?;
        range("walk_p", self.walk_p, 1e-3..=1e3)?;
        range("walk_q", self.walk_q, 1e-3..=1e3)?;
        range("hard_candidates", self.hard_candidates, 1..=1 << 16)?;
        if self.draws_from(ListSource::File) && self.negatives_file.is_empty() {
            let message = "it draws from the pairs of a file; pass --negatives-file PATH".into();
            return Err(Fault { option: Some("negatives".into()), message });
        }
        if self.needs_times() && self.positives == Positives::Walks {
            let message = "pairs of walks have no times; use --positives edges, or other --negatives".into();
            return Err(Fault { option: Some("negatives".into()), message });
        }
        range("num_negatives", self.num_negatives, 1..=1 << 16)?;
        range("eval_negatives", self.eval_negatives, ..=1 << 16)?;
        range("valid_fraction", self.valid_fraction, 0.0..1.0)?;
        range("disjoint", self.disjoint, 0.0..1.0)
    }

    fn unused(&self, option: &str) -> Option<String> {
        let of_lists = |source: ListSource| {
            let usable = || one_of(&negatives_that(|kind| kind.lists == Some(source)));
            (!self.draws_from(source)).then(|| {
                format!("--negatives {} does not read it; use --negatives {}", self.negatives, usable())
            })
        };
        let reason = match option {
            "decoder_hidden" if !self.decoder_reads(option) => {
                let usable = one_of(&decoders_that(|kind| kind.options.contains(&option)));
                Some(format!("--decoder {} has no hidden layer; use --decoder {usable}", self.decoder))
            }
            "negatives_file" => of_lists(ListSource::File),
            "hard_candidates" => of_lists(ListSource::Ranking),
            "walk_nodes" | "walks_per_node" | "walk_window" | "walk_p" | "walk_q"
                if self.positives == Positives::Edges =>
            {
                Some("--positives edges makes no walks; use --positives walks".into())
            }
            "exclude" | "disjoint" if self.positives == Positives::Walks => {
                Some("walks read all training edges; use --positives edges".into())
            }
            _ => None,
        };
        reason.map(|reason| format!("{reason}, or leave it out"))
    }
}

impl LinkOptions {
    /// Returns true if the decoder reads an option, or is unknown.
    pub fn decoder_reads(&self, option: &str) -> bool {
        decoder::TABLE.get(&self.decoder).is_none_or(|row| row.make.options.contains(&option))
    }

    /// Name of an option of links at times that the options set, if they set one.
    pub(crate) fn option_of_times(&self) -> Option<&'static str> {
        match self {
            Self { link_times: LinkTimes::Edges, .. } => Some("link-times"),
            Self { eval_negatives: 1.., .. } => Some("eval-negatives"),
            _ => None,
        }
    }

    /// Row of the sampler of negatives; `None` if the name is unknown.
    pub fn negative_kind(&self) -> Option<&'static NegativeKind> {
        link::TABLE.get(&self.negatives).map(|row| &row.make)
    }

    /// Returns true if negatives are drawn from lists of this source.
    pub fn draws_from(&self, source: ListSource) -> bool {
        self.negative_kind().is_some_and(|kind| kind.lists == Some(source))
    }

    /// Returns true if negatives exist at the times of edges.
    pub fn needs_times(&self) -> bool {
        self.negative_kind().is_some_and(|kind| kind.needs_times)
    }

    /// Ends that negatives replace in a graph that is `undirected` or not.
    pub fn ends(&self, undirected: bool) -> Corrupt {
        match (self.corrupt, undirected) {
            (ReplacedEnds::Destination, _) | (ReplacedEnds::Auto, false) => Corrupt::Destination,
            (ReplacedEnds::Source, _) => Corrupt::Source,
            (ReplacedEnds::Both, _) | (ReplacedEnds::Auto, true) => Corrupt::Both,
        }
    }

    /// Edges that blocks leave out. Disjoint supervision edges are not in the graph, and pairs of
    /// walks are not predicted edges.
    pub fn excluded(&self) -> Exclude {
        match self.exclude {
            _ if self.disjoint > 0.0 || self.positives == Positives::Walks => Exclude::Nothing,
            ExcludedFromMessages::None => Exclude::Nothing,
            ExcludedFromMessages::Edges => Exclude::Edges,
            ExcludedFromMessages::WithReverses => Exclude::WithReverses,
        }
    }
    /// Rule of walks, if the positives are pairs of walks.
    pub fn walk_rule(&self) -> Option<WalkRule> {
        let Self { walk_nodes: length, walks_per_node: walks, walk_window: window, .. } = *self;
        let (p, q) = (self.walk_p, self.walk_q);
        (self.positives == Positives::Walks).then_some(WalkRule { length, walks, window, p, q })
    }
}
