//! Options of runs that learn links ([`LinkOptions`]), and the rule of those of their losses.

use crate::config::link_task::loss_name;
pub use crate::config::{
    link::{Candidates, EdgeShares, ExcludedFromMessages, LINK, LinkOptions, Positives, ReplacedEnds},
    link_task::{is_link, is_typed_link, seeds_are},
};

use graphmill_nn::link::loss::TABLE;

use super::{
    keys::Key,
    reasons::{Read, unread},
};
use crate::TrainConfig;

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
