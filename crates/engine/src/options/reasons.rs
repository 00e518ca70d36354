//! Reasons that a run does not read an option.

use graphmill_core::options::one_of;

use super::keys::Key;
use crate::TrainConfig;

/// Whether a run reads an option; an error holds the reason and the remedy.
pub(crate) type Read = std::result::Result<(), String>;

/// Decides whether a run reads an option.
pub(crate) type Rule = fn(&TrainConfig, &Key) -> Read;

/// The reason that the chosen row does not read an option, and the rows that do.
pub(super) fn unread(flag: &str, chosen: &str, readers: &[&str]) -> String {
    format!("--{flag} {chosen} does not use it; {}", use_or_leave_out(flag, readers))
}

/// Names the values of `flag` with which an option is read.
pub(super) fn use_or_leave_out(flag: &str, values: &[&str]) -> String {
    format!("use --{flag} {}, or leave it out", one_of(values))
}
