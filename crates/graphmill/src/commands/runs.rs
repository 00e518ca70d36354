//! `graphmill runs DIR...`: compares runs in a table.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use graphmill_engine::{
    Error,
    options::word,
    record::{Repeated, RunRow, compare_runs},
};
use graphmill_report::write_runs_report;

use crate::{args, output};

/// Most options that the table has as columns.
const COLUMNS: usize = 6;

/// The subcommand with its arguments.
pub(crate) fn command() -> Command {
    let dirs = Arg::new("dirs")
        .value_name("DIR")
        .value_parser(value_parser!(PathBuf))
        .action(ArgAction::Append)
        .num_args(1..)
        .required(true);
    Command::new("runs")
        .about("Compare runs in a table")
        .long_about(
            "Compare runs in a table.\n\n\
             Each DIR is a run, or a directory that holds runs. The table has the scores of each run and the \
             options in which the runs differ, the best validation score first, and the mean of runs of \
             train --repeat. --out writes a page with the scores by epoch.",
        )
        .after_long_help(
            "Examples:\n  \
             graphmill runs runs                     all runs in a directory\n  \
             graphmill runs runs/sage runs/gat --json\n  \
             graphmill runs runs --out runs.html",
        )
        .arg(args::explain(
            dirs,
            "Runs, or directories that hold runs",
            "Directories are searched two levels deep",
        ))
        .arg(args::path_option("out", "FILE", "Page to write", "An HTML file. Example: --out runs.html"))
        .arg(args::flag("force", "Replace the page if it exists", "Without it, an existing file is an error"))
        .arg(args::json())
}

/// Reads the runs and prints the table.
pub(crate) fn run(matches: &ArgMatches) -> anyhow::Result<()> {
    let rows = compare_runs(matches.get_many::<PathBuf>("dirs").into_iter().flatten())?;
    let out = args::get_path(matches, "out");
    if let Some(out) = out {
        if out.exists() && !matches.get_flag("force") {
            let message = format!("--out {}: the file exists; pass --force to replace it", out.display());
            return Err(Error::usage(message).into());
        }
        write_runs_report(&rows, out)?;
    }
    let repeated = Repeated::of_rows(&rows)?;
    if matches.get_flag("json") {
        return output::json(&serde_json::json!({ "runs": rows, "report": out }));
    }
    let mut text = text(&rows);
    for (dir, of) in &repeated {
        if let Some(test) = of.test {
            let count = of.runs.len();
            let (mean, deviation) = (test.mean, test.deviation);
            text += &format!("{dir}: test {} {mean:.4} ± {deviation:.4} over {count} seeds\n", of.metric);
        }
    }
    text += &out.map_or(String::new(), |out| format!("{}\n", out.display()));
    output::text(&text)
}

fn text(rows: &[RunRow]) -> String {
    let score = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.4}"));
    let mut options: Vec<&String> = rows.iter().flat_map(|row| row.options.keys()).collect();
    options.dedup();
    let mut names: Vec<&String> = Vec::new();
    for name in options {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let more = names.len().saturating_sub(COLUMNS);
    names.truncate(COLUMNS);
    let mut table: Vec<Vec<String>> =
        vec![["run", "dataset", "metric", "valid", "test", "epoch", "seconds"].map(String::from).to_vec()];
    table[0].extend(names.iter().map(|name| name.replace('_', "-")));
    for row in rows {
        let mut cells = vec![
            row.run.display().to_string(),
            row.dataset.clone(),
            row.metric.clone(),
            score(row.valid),
            score(row.test),
            format!("{}/{}", row.best_epoch, row.epochs),
            format!("{:.1}", row.seconds),
        ];
        cells.extend(names.iter().map(|name| row.options.get(*name).map_or("-".into(), word)));
        table.push(cells);
    }
    let mut text = output::columns(&table);
    if more > 0 {
        text += &format!("(the runs differ in {more} more options; --json has them)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_table_has_a_column_for_each_option() {
        let row = RunRow {
            run: "c".into(),
            dataset: "d".into(),
            metric: "accuracy".into(),
            epochs: 2,
            best_epoch: 1,
            valid: Some(0.7),
            test: None,
            seconds: 1.25,
            options: json!({"lr": 0.2}).as_object().cloned().unwrap_or_default(),
        };
        let text = text(&[row]);
        let expected = "run  dataset  metric    valid   test  epoch  seconds  lr\n\
                        c    d        accuracy  0.7000  -     1/2    1.2      0.2\n";
        assert_eq!(text, expected);
    }
}
