//! Reuse of bottom-layer rows between batches: a property of a run that wraps its strategy.

use graphmill_core::{
    options::OptionGroup,
    table::{Entry, Table},
};

use super::{
    interface::{Strategy, StrategyContext},
    layered::{self, Layered, LayeredOptions},
    options::unused_in_parts,
};
use crate::{Result, TrainConfig};

/// Wraps a strategy, which then trains on batches whose rows are reused.
pub type Wrap = for<'a> fn(StrategyContext<'a>, Box<dyn Strategy + 'a>) -> Result<Box<dyn Strategy + 'a>>;

/// Row of the [`TABLE`].
#[derive(Clone, Copy)]
pub struct ReuseKind {
    /// Wraps the strategy; `None` leaves it as it is.
    pub wrap: Option<Wrap>,
    /// True if the upper blocks and the bottom block of a batch are drawn separately, which only
    /// the processor does.
    pub draws_in_parts: bool,
    /// True if it needs a layer above the bottom one, and blocks that are drawn hop by hop.
    pub needs_layers: bool,
    /// Resolves options that follow from others, so that a resumed run has the same values.
    pub derive_options: fn(&mut TrainConfig),
    /// Returns the reason and the fix if it cannot run with the other options.
    pub refuses: fn(&TrainConfig) -> Option<String>,
    /// Returns the reason and the fix if the other options of a run leave an option of the reuse
    /// without effect.
    pub unused: fn(&TrainConfig, &str) -> Option<String>,
}

impl ReuseKind {
    /// Row that reuses no rows.
    pub const NONE: Self = Self {
        wrap: None,
        draws_in_parts: false,
        needs_layers: false,
        derive_options: |_| {},
        refuses: |_| None,
        unused: |_, _| None,
    };

    /// Row that `wrap` wraps, with the options of layered reuse.
    const fn of_layers(wrap: Wrap) -> Self {
        Self {
            wrap: Some(wrap),
            draws_in_parts: true,
            needs_layers: true,
            derive_options: layered::derive_options,
            unused: |config, option| {
                layered::unused(config, option).or_else(|| unused_in_parts(config, option))
            },
            ..Self::NONE
        }
    }
}

/// Name of the row that reuses no rows.
pub const NONE: &str = "none";
/// Name of the row that reuses rows within super-batches.
pub const LAYERED: &str = "layered";

/// Name of the row that reuses rows within super-batches if counts say that it pays.
pub const AUTO: &str = "auto";

/// Row of the table that reuses no rows.
pub(super) const WITHOUT: Entry<ReuseKind> = Entry {
    name: NONE,
    summary: "every batch computes all its rows",
    source: "",
    options: &[],
    make: ReuseKind::NONE,
};

/// Table of all kinds of reuse.
pub static TABLE: Table<ReuseKind> = Table::new(
    "reuse",
    &[
        WITHOUT,
        Entry {
            name: LAYERED,
            summary: "hot bottom-layer rows computed once for several batches, with bounded staleness",
            source: "Ai et al., NeutronOrch, VLDB 2024, section 4",
            options: &[OptionGroup::of::<LayeredOptions>()],
            make: ReuseKind::of_layers(|context, inner| Ok(Box::new(Layered::new(context, inner)))),
        },
        Entry {
            name: AUTO,
            summary: "layered if counts of the first super-batch say that it pays, else none",
            source: "",
            options: &[OptionGroup::of::<LayeredOptions>()],
            make: ReuseKind {
                refuses: layered::refuses_to_decide,
                ..ReuseKind::of_layers(|context, inner| Ok(Box::new(Layered::if_it_pays(context, inner))))
            },
        },
    ],
);
