//! Reasons why a run does not read an option.

use graphmill_core::options::one_of;

use super::keys::Key;
use crate::TrainConfig;

/// `Ok` if a run reads an option; the error holds the reason why not, and the remedy.
pub(crate) type Read = std::result::Result<(), String>;

/// A rule that decides if a run reads an option.
pub(crate) type Rule = fn(&TrainConfig, &Key) -> Read;

/// Reason that the chosen row does not read an option, with the rows that do.
pub(super) fn unread(flag: &str, chosen: &str, readers: &[&str]) -> String {
    format!("--{flag} {chosen} does not use it; {}", use_or_leave_out(flag, readers))
}

/// Remedy that names the `values` of `flag` with which an option is read.
pub(super) fn use_or_leave_out(flag: &str, values: &[&str]) -> String {
    format!("use --{flag} {}, or leave it out", one_of(values))
}
