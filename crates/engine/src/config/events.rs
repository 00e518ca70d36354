//! Models of streams of events, and their options.

use std::ops::Bound;

use clap::Args;
use graphmill_core::{
    options::{Fault, OptionGroup, OptionSet, range},
    table::{Entry, Table},
};
use graphmill_loader::time::{TimeCarry, TimeDraw, TimeOptions};
use graphmill_nn::{layer::GatOptions, temporal::CellKind};
use serde::{Deserialize, Serialize};

use super::{
    TrainConfig,
    stored_tasks::{learns_edge_targets, learns_links_without_times, learns_nodes},
};

/// Computation of the rows of nodes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventRows {
    /// The attention of TGAT and TGN to sampled events.
    Attention,
    /// The layer with rows of edges of this name, over sampled events.
    Edges(&'static str),
    /// JODIE's projection of the memory to the time, without neighbours.
    Projection,
    /// DyGFormer's transformer over the events of both ends of a pair. A node alone has no row.
    Pairs,
}

/// A kind of model of events.
#[derive(Clone, Copy, Debug)]
pub struct EventModelKind {
    /// Cell that updates the memory of nodes, if they have one.
    pub memory: Option<CellKind>,
    /// Computation of the rows that are scored.
    pub rows: EventRows,
    /// Neighbours that the model reads, if it reads any.
    pub neighbors: Option<EventNeighbors>,
}

/// Neighbours of a model, by its paper.
#[derive(Clone, Copy, Debug)]
pub struct EventNeighbors {
    /// Neighbours per hop.
    pub fanout: &'static [i64],
    /// Draw of neighbours.
    pub draw: TimeDraw,
    /// Time that bounds the hops after the first.
    pub carry: TimeCarry,
}

impl EventNeighbors {
    /// The last events of each node.
    const fn last(fanout: &'static [i64]) -> Option<Self> {
        Some(Self { fanout, draw: TimeDraw::Last, carry: TimeCarry::Edge })
    }
}

impl EventModelKind {
    /// A model of a layer with rows of edges, over the last `fanout` events per hop.
    const fn of_edges(layer: &'static str, fanout: &'static [i64]) -> Self {
        Self { memory: None, rows: EventRows::Edges(layer), neighbors: EventNeighbors::last(fanout) }
    }
}

/// Option groups of these models.
pub const OPTIONS: &[OptionGroup] = &[OptionGroup::of::<TimeOptions>(), OptionGroup::of::<EventOptions>()];

/// Option groups of those that read no neighbours.
const WITHOUT_NEIGHBORS: &[OptionGroup] = &[OptionGroup::of::<EventOptions>()];

/// Option groups of those with GATv2.
const GAT_OPTIONS: &[OptionGroup] =
    &[OptionGroup::of::<TimeOptions>(), OptionGroup::of::<EventOptions>(), OptionGroup::of::<GatOptions>()];

/// Option groups of DyGFormer.
const PAIR_OPTIONS: &[OptionGroup] = &[
    OptionGroup::of::<TimeOptions>(),
    OptionGroup::of::<EventOptions>(),
    OptionGroup::of::<DygFormerOptions>(),
];

/// Table of these models.
pub static TABLE: Table<EventModelKind> = Table::new(
    "event model",
    &[
        Entry {
            name: "tgn",
            summary: "TGN: a memory of each node, and attention to its last neighbours",
            source: "Rossi et al., 2020, arXiv:2006.10637",
            options: OPTIONS,
            make: EventModelKind {
                memory: Some(CellKind::Gru),
                rows: EventRows::Attention,
                neighbors: EventNeighbors::last(&[10]),
            },
        },
        Entry {
            name: "tgat",
            summary: "TGAT: attention to random earlier neighbours with the time since their events",
            source: "Xu et al., ICLR 2020, arXiv:2002.07962",
            options: OPTIONS,
            make: EventModelKind {
                memory: None,
                rows: EventRows::Attention,
                neighbors: Some(EventNeighbors {
                    fanout: &[20, 20],
                    draw: TimeDraw::Uniform,
                    carry: TimeCarry::Edge,
                }),
            },
        },
        Entry {
            name: "jodie",
            summary: "JODIE: a memory of each node, projected to the time of the event",
            source: "Kumar, Zhang and Leskovec, KDD 2019, arXiv:1908.01207",
            options: WITHOUT_NEIGHBORS,
            make: EventModelKind {
                memory: Some(CellKind::Rnn),
                rows: EventRows::Projection,
                neighbors: None,
            },
        },
        Entry {
            name: "graphmixer",
            summary: "GraphMixer: an MLP-mixer over the last events, and a mean over their neighbours",
            source: "Cong et al., ICLR 2023, arXiv:2302.11636",
            options: OPTIONS,
            make: EventModelKind::of_edges("mixer", &[20]),
        },
        Entry {
            name: "dygformer",
            summary: "DyGFormer: a transformer over the last events of both ends, with common neighbours",
            source: "Yu et al., NeurIPS 2023, arXiv:2303.13047",
            options: PAIR_OPTIONS,
            make: EventModelKind {
                memory: None,
                rows: EventRows::Pairs,
                neighbors: EventNeighbors::last(&[31]),
            },
        },
        Entry {
            name: "gine",
            summary: "GINE over the last events: an MLP on own row and the sum of relu(neighbour + event)",
            source: "Hu et al., ICLR 2020, arXiv:1905.12265",
            options: OPTIONS,
            make: EventModelKind::of_edges("gine", &[10, 10]),
        },
        Entry {
            name: "gatv2-edge",
            summary: "GATv2 over the last events: attention to both ends and the event",
            source: "Brody, Alon and Yahav, ICLR 2022, arXiv:2105.14491",
            options: GAT_OPTIONS,
            make: EventModelKind::of_edges("gatv2", &[10, 10]),
        },
        Entry {
            name: "sage-edge",
            summary: "GraphSAGE over the last events: neighbours' rows joined with the event's",
            source: "Hamilton, Ying and Leskovec, NeurIPS 2017, arXiv:1706.02216",
            options: OPTIONS,
            make: EventModelKind::of_edges("sage", &[10, 10]),
        },
        Entry {
            name: "edge-gated",
            summary: "residual gated convolution over the last events, gated by ends and event",
            source: "Bresson and Laurent, 2017, arXiv:1711.07553",
            options: OPTIONS,
            make: EventModelKind::of_edges("edge-gated", &[10, 10]),
        },
    ],
);

/// Options of models of events.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventOptions {
    /// Width of the encodings of times.
    #[arg(long, value_name = "N")]
    pub time_dim: usize,
    /// Heads of the attention; they divide --hidden, or for dygformer four times --channel-dim.
    #[arg(long, value_name = "N")]
    pub event_heads: usize,
    /// Learn the frequencies of the encodings of times, as the papers do.
    ///
    /// A small change of a frequency changes the encodings of all long times, and models fit noise.
    /// Use it with learning rates of at most 0.0001.
    #[arg(long)]
    pub learn_frequencies: bool,
    /// Fraction of the nodes whose events are left out of training.
    ///
    /// They are drawn among the nodes of validation and test events, so that inductive scores are
    /// those of nodes that training has not seen. The papers leave out a tenth. Example:
    /// --new-nodes 0.1.
    #[arg(long, value_name = "RATIO")]
    pub new_nodes: f64,
}

impl Default for EventOptions {
    fn default() -> Self {
        Self { time_dim: 100, event_heads: 2, learn_frequencies: false, new_nodes: 0.0 }
    }
}

impl OptionSet for EventOptions {
    fn check(&self) -> Result<(), Fault> {
        range("time_dim", self.time_dim, 1..=1 << 16)?;
        range("event_heads", self.event_heads, 1..=1 << 10)?;
        range("new_nodes", self.new_nodes, (Bound::Included(0.0), Bound::Excluded(1.0)))
    }
}

/// Options of DyGFormer. Its histories are the --fanout last events of a node, and the node.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DygFormerOptions {
    /// Events of a history that are one token of the transformer.
    ///
    /// A long history needs larger patches: the transformer compares all patches of both ends. The
    /// paper has 1 for histories of 32 events and grows it with their length, so that a history has
    /// 32 patches. Example: --fanout 255 --patch-size 8.
    #[arg(long, value_name = "N")]
    pub patch_size: usize,
    /// Width of each of the four channels of a patch (nodes, events, times, common neighbours).
    #[arg(long, value_name = "N")]
    pub channel_dim: usize,
    /// Layers of the transformer.
    #[arg(long, value_name = "N")]
    pub transformer_layers: usize,
}

impl Default for DygFormerOptions {
    fn default() -> Self {
        Self { patch_size: 1, channel_dim: 50, transformer_layers: 2 }
    }
}

impl OptionSet for DygFormerOptions {
    fn check(&self) -> Result<(), Fault> {
        range("patch_size", self.patch_size, 1..=1 << 16)?;
        range("channel_dim", self.channel_dim, 1..=1 << 14)?;
        range("transformer_layers", self.transformer_layers, 1..=64)
    }
}

/// The kind of model, if it is one of events.
pub fn kind(config: &TrainConfig) -> Option<EventModelKind> {
    TABLE.get(&config.model).map(|entry| entry.make)
}

/// Returns true if the run learns a stream of events. Some models also learn tasks on nodes, and
/// links, classes and values of edges without times, from edge features, which the task of the
/// dataset decides.
pub fn is_of_events(config: &TrainConfig) -> bool {
    let learns_others = || {
        graphmill_nn::typed::TABLE.get(&config.model).is_some()
            && (learns_nodes(config)
                || learns_links_without_times(config)
                || learns_edge_targets(config, false))
    };
    kind(config).is_some() && !learns_others()
}

/// Returns true if the run learns a class or value of each event.
pub(crate) fn learns_targets(config: &TrainConfig) -> bool {
    is_of_events(config) && learns_edge_targets(config, true)
}
