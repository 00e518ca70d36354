//! Which of the loader's samplers a device draws for, and how.

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

/// Visits of a node's walks that fit a warp's part of a block's shared memory.
const MOST_VISITS: usize = 512;

/// How devices draw what one of the loader's samplers draws.
pub(super) enum Plan {
    /// With this.
    OnDevices {
        /// The processor's, which the device's is held against, and which draws what it leaves.
        inner: HopStack,
        draw: Draw,
        /// Neighbours a node, hop by hop; [`ALL`] for all.
        fanout: Vec<u32>,
        /// The tables of [`Draw::Alias`].
        alias: Option<RowAlias>,
    },
    /// They do not: why.
    OnHost(String),
}

impl Plan {
    /// For draws that need no tables.
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

/// Makes a plan, or says in one sentence what is wrong with the options.
type Make = fn(&SamplerOptions, &Source) -> Result<Plan, String>;

/// The samplers that devices draw for, by their names in [`graphmill_loader::sampler::TABLE`].
const TABLE: &[(&str, Make)] =
    &[("neighbor", neighbor), ("full", full), ("weighted", weighted), ("random-walk", random_walk)];

/// Whether devices draw for the sampler of that name. With some options they may not, all the same:
/// see [`super::make`].
pub fn is_drawn_on_devices(name: &str) -> bool {
    TABLE.iter().any(|(drawn, _)| *drawn == name)
}

/// The plan for the sampler of that name.
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

/// With replacement by alias tables, or where all edges weigh the same. Draws without replacement,
/// and those by prefix sums, end in logarithms, or in sums over whole rows, which a device does not
/// round as the processor does, or not at any useful rate.
fn weighted(options: &SamplerOptions, source: &Source) -> Result<Plan, String> {
    let WeightOptions { edge_weights } = options.own.get();
    let sampler = Weighted::new(source.graph, &options.fanout, &options.own.get(), edge_weights)?;
    if options.fanout.contains(&Fanout::ALL) && !sampler.draws_all() {
        return Plan::on_host("a fanout of -1 where edges weigh 0");
    }
    let (draw, tables) = match sampler.draws() {
        WeightedDraws::Uniform => (Draw::Distinct, None),
        WeightedDraws::UniformWithReplacement => (Draw::Again, None),
        WeightedDraws::AliasWithReplacement(tables) => (Draw::Alias, Some(tables.clone())),
        WeightedDraws::Other => {
            return Plan::on_host("weighted draws without replacement, or by prefix sums");
        }
    };
    Ok(Plan::with_tables(sampler, draw, &options.fanout, tables))
}

fn random_walk(options: &SamplerOptions, _: &Source) -> Result<Plan, String> {
    let WalkOptions { walks, restart } = options.own.get();
    let length = options.own.get::<WalkLength>().or(random_walk::LENGTH);
    let sampler = RandomWalk::new(&options.fanout, &options.own.get(), length)?;
    if walks * length > MOST_VISITS {
        return Plan::on_host(format!("walks of more than {MOST_VISITS} steps in all"));
    }
    let draw = Draw::Walks { walks: walks as u32, length: length as u32, restart };
    Ok(Plan::new(sampler, draw, &options.fanout))
}
