//! Options of runs that learn links ([`LinkOptions`]), and the rule of those of their losses.

use graphmill_nn::link::loss::TABLE;

use crate::config::link_task::loss_name;
pub use crate::config::{
    link::{
        Candidates, EdgeShares, ExcludedFromMessages, LINK, LinkOptions, LinkTimes, Positives, ReplacedEnds,
    },
    link_task::{is_link, is_typed_link, seeds_are},
};

use super::{
    keys::Key,
    reasons::{Read, unread},
};
use crate::{TrainConfig, config::embedding::has_link_task};

/// Rule of the options of losses: the chosen loss reads the option. An unknown loss passes, because
/// its lookup reports it.
pub(super) fn of_loss(config: &TrainConfig, key: &Key) -> Read {
    let name = loss_name(config);
    match TABLE.get(name) {
        Some(loss) if loss.make.option != Some(key.name) => {
            let readers = TABLE.iter().filter(|row| row.make.option == Some(key.name)).map(|row| row.name);
            Err(unread("loss", name, &readers.collect::<Vec<_>>()))
        }
        _ => Ok(()),
    }
}

/// Rule of `--valid-fraction`: the dataset stores a link task.
pub(super) fn of_stored_task(config: &TrainConfig, _: &Key) -> Read {
    match has_link_task(config) {
        true => Ok(()),
        false => Err("the dataset has no link task, so --split-edges divides its edges; leave it out".into()),
    }
}

/// Splits edges that are learned at their own times by time, unless the split was `given`.
pub(super) fn derive_options(config: &mut TrainConfig, given: &[&str]) {
    let LinkOptions { link_times, split_edges, .. } = config.own.get();
    let is_default = split_edges == LinkOptions::default().split_edges;
    if link_times == LinkTimes::Edges && is_default && !given.contains(&"split_edges") {
        config.own.get_mut::<LinkOptions>().split_edges.by_time = true;
    }
}

/// Rule of the options of links at times in a run on one type.
pub(super) fn at_times(config: &TrainConfig, _: &Key) -> Read {
    Err(format!(
        "--model {} reads no times of edges; use a model of types, such as --model rsage, which may read a \
         graph of one type, or leave it out",
        config.model
    ))
}
