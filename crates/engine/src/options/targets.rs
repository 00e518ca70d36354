//! Rules of the options of losses of classes and values.

use super::{keys::Key, link::is_link, reasons::Read};
use crate::{TrainConfig, config::link_task::has_default_loss};

/// The chosen loss reads the option.
pub(super) fn of_loss(config: &TrainConfig, key: &Key) -> Read {
    let reader = if key.name == "quantile" { "quantile" } else { "huber" };
    if config.loss == reader {
        return Ok(());
    }
    Err(format!("--loss {} does not use it; use --loss {reader}, or leave it out", config.loss))
}

/// The run learns values, by its options.
pub(super) fn of_values(config: &TrainConfig, _: &Key) -> Read {
    if is_link(config) {
        return Err("the run learns links, which have no values; leave it out".into());
    }
    if config.loss == "cross-entropy" {
        return Err("--loss cross-entropy is of classes; leave it out".into());
    }
    Ok(())
}

/// The run learns targets of nodes.
pub(super) fn learns_nodes(config: &TrainConfig) -> Read {
    if is_link(config) {
        return Err("the run learns links, which have no classes; leave it out".into());
    }
    Ok(())
}

/// The run learns classes of nodes, by its options.
pub(super) fn of_classes(config: &TrainConfig, _: &Key) -> Read {
    learns_nodes(config)?;
    if has_default_loss(config) || config.loss == "cross-entropy" {
        return Ok(());
    }
    Err(format!("--loss {} is not of classes; use --loss cross-entropy, or leave it out", config.loss))
}
