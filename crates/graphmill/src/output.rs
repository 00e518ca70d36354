//! Output of the command: results on standard output, messages on standard error, and with `--json`
//! one document on standard output and nothing else there. Exit status: 0 done, 1 failed, 2 wrong
//! usage, 101 a fault of the program, 130 stopped by Ctrl-C or by another rank, 143 by SIGTERM.

use std::{borrow::Cow, io::Write, process::ExitCode};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use graphmill_data::TypedDataset;
use graphmill_engine::{Dataset, Error};

use crate::signals;

/// Writes one JSON document to standard output.
pub(crate) fn json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Sizes of a dataset that are known without reading it: a subset of the fields of `info`.
pub(crate) fn counts(dataset: &Dataset) -> serde_json::Value {
    serde_json::json!({
        "name": dataset.name,
        "nodes": dataset.num_nodes(),
        "edges": dataset.graph.num_edges(),
        "feature_dim": dataset.features.dim,
        "classes": dataset.labels.classes(),
        "multilabel": dataset.labels.is_multi(),
        "train": dataset.split.train.len(),
        "valid": dataset.split.valid.len(),
        "test": dataset.split.test.len(),
        "metric": dataset.metric,
    })
}

/// Counts of a dataset of several types: sums, and by type.
pub(crate) fn type_counts(data: &TypedDataset) -> serde_json::Value {
    let count = |name: String, count: usize| serde_json::json!({ "name": name, "count": count });
    let nodes: Vec<_> = data.nodes.iter().map(|of| count(of.name.clone(), of.count)).collect();
    let edges: Vec<_> = data.edges.iter().map(|of| count(of.edge_type.to_string(), of.num_edges())).collect();
    serde_json::json!({
        "name": data.name,
        "nodes": data.num_nodes(),
        "edges": data.num_edges(),
        "node_types": nodes,
        "edge_types": edges,
        "tasks": data.tasks.iter().map(|task| &task.name).collect::<Vec<_>>(),
    })
}

/// Text for a terminal: control characters, which could change colours or the title of a window,
/// are shown as escapes. Names in datasets come from anywhere.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unsafe(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown.into()
}

/// Writes text to standard output.
pub(crate) fn text(value: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(printable(value).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Rows of cells as lines with aligned columns.
pub(crate) fn columns(table: &[Vec<String>]) -> String {
    let count = table.first().map_or(0, Vec::len);
    let width = |c: usize| table.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in table {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Prints a line to standard error, in one write, so that lines of several processes do not mix. A
/// failure, as on a full disk, must not stop the work.
pub(crate) fn note(line: &str) {
    let line = format!("{}\n", printable(line));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Prints a note to standard error if dataset `name` is not the one that the run was trained on
/// (`same` is false), and how its features were rescaled.
pub(crate) fn note_dataset(name: &str, same: Option<bool>, rescaled: Option<&str>) {
    if same == Some(false) {
        note(&format!("note: {name} has other contents than the dataset that the run was trained on"));
    }
    if let Some(how) = rescaled {
        note(&format!("note: features of {name}: {how}"));
    }
}

/// Prints help and version, or reports a command line that does not parse.
pub(crate) fn usage(error: clap::Error, json: bool) -> ExitCode {
    let error = without_value_tip(error);
    if !error.use_stderr() {
        let _ = error.print(); // help and version
        return ExitCode::SUCCESS;
    }
    if json {
        let rendered = error.render().to_string();
        let first = rendered.split("\n\n").next().unwrap_or(&rendered);
        let message = first.trim().trim_start_matches("error: ").replace('\n', " ");
        let _ = self::json(&serde_json::json!({ "error": message }));
    }
    let _ = error.print();
    ExitCode::from(2)
}

/// The error without the tip to pass an unknown option as a value: no argument of a command starts
/// with a dash.
fn without_value_tip(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested)
    {
        tips.retain(|tip| !tip.to_string().contains("as a value"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    error
}

/// Reports a failed command; the exit status is that of the signal that stopped it, 130 if the
/// signal came to another rank, 2 if an argument was wrong, and 1 otherwise.
pub(crate) fn failure(error: &anyhow::Error, json: bool) -> ExitCode {
    let message = format_error(error);
    if json {
        let _ = self::json(&serde_json::json!({ "error": message }));
    }
    note(&format!("error: {message}"));
    ExitCode::from(signals::exit_status().unwrap_or(exit_status(error)))
}

/// Exit status of a command that failed without a signal to this process.
fn exit_status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(Error::Interrupted { .. }) => 130,
        Some(error) if error.is_usage() => 2,
        _ => 1,
    }
}

/// The message with its causes; this project's own errors already contain theirs.
fn format_error(error: &anyhow::Error) -> String {
    let mut message = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_statuses_distinguish_interruptions_and_wrong_usage() {
        let stopped = || anyhow::Error::from(Error::Interrupted { epoch: 1, batch: 2, saved: true });
        assert_eq!((exit_status(&stopped()), exit_status(&stopped().context("resume with: x"))), (130, 130));
        assert_eq!(exit_status(&Error::usage("--lr 0: pass more").into()), 2);
        assert_eq!(exit_status(&anyhow::anyhow!("disk full")), 1);
    }

    #[test]
    fn unknown_options_are_not_taken_for_values() {
        let message = |option: &str| {
            let command = clap::Command::new("train")
                .arg(clap::Arg::new("dataset"))
                .arg(clap::Arg::new("edge-weight").long("edge-weight"));
            let error = command.try_get_matches_from(["train", option, "1"]).unwrap_err();
            without_value_tip(error).render().to_string()
        };
        let unknown = message("--zzz");
        assert!(unknown.contains("unexpected argument '--zzz'") && !unknown.contains("tip:"), "{unknown}");
        assert!(message("--edge-weigth").contains("'--edge-weight'"));
    }

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(printable("a\tb\nä"), "a\tb\nä");
        assert_eq!(printable("\u{1b}[31mred\u{7}\u{9b}\r"), "\\u{1b}[31mred\\u{7}\\u{9b}\\r");
    }
}
