//! Mapping from the loader's samplers to draws on a device.

use graphmill_core::alias::RowAlias;
use graphmill_loader::{
    Fanout, HopSampler,
    sampler::{
        HopStack, SamplerOptions, Source, WalkLength, WalkOptions, WeightOptions, WeightedDraws,
        full::Full,
        neighbor::Neighbor,
        random_walk::{self, RandomWalk},
        weighted::Weighted,
    },
};

use super::{Draw, hop::ALL};

/// Maximum number of visits of a node's walks in a warp's part of shared memory.
const MAX_VISITS: usize = 512;

/// Mapping of a sampler to draws on devices.
pub(super) enum Plan {
    /// Devices draw.
    OnDevices {
        /// The CPU's sampler, which defines the expected draws and handles all other requests.
        inner: HopStack,
        draw: Draw,
        /// Neighbours per node, by hop; [`ALL`] for all.
        fanout: Vec<u32>,
        /// Tables of [`Draw::Alias`].
        alias: Option<RowAlias>,
    },
    /// The CPU must draw; the reason.
    OnHost(String),
}

impl Plan {
    /// Creates a plan for draws without tables.
    fn new(inner: impl HopSampler + 'static, draw: Draw, fanout: &Fanout) -> Self {
        Self::with_tables(inner, draw, fanout, None)
    }

    fn with_tables(
        inner: impl HopSampler + 'static,
        draw: Draw,
        fanout: &Fanout,
        alias: Option<RowAlias>,
    ) -> Self {
        let fanout = fanout.iter().map(|&k| if k == Fanout::ALL { ALL } else { k as u32 }).collect();
        Self::OnDevices { inner: HopStack::new(inner), draw, fanout, alias }
    }

    fn on_host(why: impl Into<String>) -> Result<Self, String> {
        Ok(Self::OnHost(why.into()))
    }
}

/// Constructor of a plan. The error is one sentence about an invalid option.
type Make = fn(&SamplerOptions, &Source) -> Result<Plan, String>;

/// Samplers that devices support, by their names in [`graphmill_loader::sampler::TABLE`].
const TABLE: &[(&str, Make)] =
    &[("neighbor", neighbor), ("full", full), ("weighted", weighted), ("random-walk", random_walk)];

/// Returns true if devices support the sampler of that name. Some of its options may still require
/// the CPU: see [`super::make`].
pub fn is_drawn_on_devices(name: &str) -> bool {
    TABLE.iter().any(|(drawn, _)| *drawn == name)
}

/// Creates the plan for the sampler of that name.
pub(super) fn make(name: &str, options: &SamplerOptions, source: &Source) -> Result<Plan, String> {
    match TABLE.iter().find(|(drawn, _)| *drawn == name) {
        Some((_, make)) => make(options, source),
        None => Plan::on_host(format!("the sampler {name}")),
    }
}

fn neighbor(options: &SamplerOptions, _: &Source) -> Result<Plan, String> {
    Ok(Plan::new(Neighbor::new(&options.fanout)?, Draw::Distinct, &options.fanout))
}

fn full(options: &SamplerOptions, _: &Source) -> Result<Plan, String> {
    let hops = options.fanout.len();
    Ok(Plan::new(Full::new(hops)?, Draw::Distinct, &Fanout(vec![Fanout::ALL; hops])))
}

/// Plan of weighted sampling: with replacement by alias tables, or with equal weights. Draws
/// without replacement or by prefix sums depend on logarithms or sums over whole rows, which a
/// device does not round as the CPU does, or not at a useful rate.
fn weighted(options: &SamplerOptions, source: &Source) -> Result<Plan, String> {
    let WeightOptions { edge_weights } = options.own.get();
    let sampler = Weighted::new(source.graph, &options.fanout, &options.own.get(), edge_weights)?;
    if options.fanout.contains(&Fanout::ALL) && !sampler.draws_all() {
        return Plan::on_host("a fanout of -1 where edges weigh 0");
    }
    let (draw, tables) = match sampler.draws() {
        WeightedDraws::Distinct => (Draw::Distinct, None),
        WeightedDraws::Again => (Draw::Again, None),
        WeightedDraws::AgainByAlias(tables) => (Draw::Alias, Some(tables.clone())),
        WeightedDraws::Others => {
            return Plan::on_host("weighted draws without replacement, or by prefix sums");
        }
    };
    Ok(Plan::with_tables(sampler, draw, &options.fanout, tables))
}

fn random_walk(options: &SamplerOptions, _: &Source) -> Result<Plan, String> {
    let WalkOptions { walks, restart } = options.own.get();
    let length = options.own.get::<WalkLength>().or(random_walk::LENGTH);
    let sampler = RandomWalk::new(&options.fanout, &options.own.get(), length)?;
    if walks * length > MAX_VISITS {
        return Plan::on_host(format!("walks of more than {MAX_VISITS} steps in all"));
    }
    let draw = Draw::Walks { walks: walks as u32, length: length as u32, restart };
    Ok(Plan::new(sampler, draw, &options.fanout))
}
