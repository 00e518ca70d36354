//! Draws that a device can repeat: the capability of a sampler's row in [`TABLE`](super::TABLE).

use std::sync::Arc;

use graphmill_core::alias::RowAlias;

use super::{
    HopSampler, SamplerOptions, Source, WalkLength, WalkOptions, WeightOptions, WeightedDraws,
    full::Full,
    neighbor::Neighbor,
    random_walk::{self, RandomWalk},
    weighted::Weighted,
};
use crate::Fanout;

/// Method by which a hop draws neighbours.
#[derive(Clone, Debug)]
pub enum DrawMethod {
    /// Uniformly, without replacement.
    Distinct,
    /// Uniformly, with replacement.
    WithReplacement,
    /// In proportion to weights, with replacement, by these tables.
    Alias(RowAlias),
    /// The nodes that short random walks visit most.
    Walks {
        /// Walks per node.
        walks: usize,
        /// Steps per walk.
        length: usize,
        /// Probability of a return to the node before a step.
        restart: f64,
    },
}

/// Description of a sampler's draws, from which a device draws the same neighbours.
pub enum DeviceDraws {
    /// A device can draw.
    Supported {
        /// The sampler whose draws are described.
        sampler: Arc<dyn HopSampler>,
        /// Method of its draws.
        method: DrawMethod,
        /// Neighbours per node, by hop.
        fanout: Fanout,
    },
    /// The options require the CPU; the reason.
    Unsupported(String),
}

impl DeviceDraws {
    fn new(sampler: impl HopSampler + 'static, method: DrawMethod, fanout: &Fanout) -> Self {
        Self::Supported { sampler: Arc::new(sampler), method, fanout: fanout.clone() }
    }

    fn unsupported(why: &str) -> Result<Self, String> {
        Ok(Self::Unsupported(why.to_owned()))
    }
}

/// Describes a sampler's draws. The error is one sentence about an invalid option.
pub type DescribeDraws = fn(&SamplerOptions, &Source) -> Result<DeviceDraws, String>;

pub(super) fn neighbor(options: &SamplerOptions, _: &Source) -> Result<DeviceDraws, String> {
    Ok(DeviceDraws::new(Neighbor::new(&options.fanout)?, DrawMethod::Distinct, &options.fanout))
}

pub(super) fn full(options: &SamplerOptions, _: &Source) -> Result<DeviceDraws, String> {
    let hops = options.fanout.len();
    Ok(DeviceDraws::new(Full::new(hops)?, DrawMethod::Distinct, &Fanout(vec![Fanout::ALL; hops])))
}

/// Supports draws with replacement by alias tables, or with equal weights. Draws without
/// replacement or by prefix sums depend on logarithms or sums over whole rows, which a device does
/// not round as the CPU does, or not at a useful rate.
pub(super) fn weighted(options: &SamplerOptions, source: &Source) -> Result<DeviceDraws, String> {
    let WeightOptions { edge_weights } = options.own.get();
    let sampler = Weighted::new(source.graph, &options.fanout, &options.own.get(), edge_weights)?;
    if options.fanout.contains(&Fanout::ALL) && !sampler.draws_all() {
        return DeviceDraws::unsupported("a fanout of -1 where edges weigh 0");
    }
    let method = match sampler.draws() {
        WeightedDraws::Uniform => DrawMethod::Distinct,
        WeightedDraws::UniformWithReplacement => DrawMethod::WithReplacement,
        WeightedDraws::AliasWithReplacement(tables) => DrawMethod::Alias(tables.clone()),
        WeightedDraws::Other => {
            return DeviceDraws::unsupported("weighted draws without replacement, or by prefix sums");
        }
    };
    Ok(DeviceDraws::new(sampler, method, &options.fanout))
}

pub(super) fn random_walk(options: &SamplerOptions, _: &Source) -> Result<DeviceDraws, String> {
    let WalkOptions { num_walks: walks, restart_prob: restart } = options.own.get();
    let length = options.own.get::<WalkLength>().or(random_walk::LENGTH);
    let sampler = RandomWalk::new(&options.fanout, &options.own.get(), length)?;
    Ok(DeviceDraws::new(sampler, DrawMethod::Walks { walks, length, restart }, &options.fanout))
}
