//! Rules of the options of draws at the times of a task's rows.

use graphmill_core::options::OptionGroup;
use graphmill_loader::typed::{TABLE, names_at_times};

use super::{
    keys::Key,
    reasons::{Read, unread, use_or_leave_out},
};
use crate::TrainConfig;

/// Options that every sampler reads that draws at times: the edges that a seed sees.
const OF_ALL: &[&str] = &["time_bound", "time_window"];

/// The sampler draws at times, and by the option if not all do. An unknown name passes, because its
/// lookup reports it.
pub(super) fn own(config: &TrainConfig, key: &Key, group: OptionGroup) -> Read {
    let Some(row) = TABLE.get(&config.sampler) else { return Ok(()) };
    match row.make.at_times {
        None => Err(unread("sampler", &config.sampler, &names_at_times(|_| true))),
        Some(of) if !of.reads_draw && !OF_ALL.contains(&key.name) => Err(format!(
            "--sampler {} draws among the edges that a row sees as it does without times; {}",
            config.sampler,
            use_or_leave_out("sampler", &names_at_times(|of| of.reads_draw))
        )),
        Some(_) => config.own.unused(group, key.name).map_or(Ok(()), Err),
    }
}
