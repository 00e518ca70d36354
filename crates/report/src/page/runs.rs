//! Page of several runs: validation scores by epoch, and scores and differing options in a table.

use std::fmt::Write;

use graphmill_core::units::count;
use graphmill_engine::{
    options::word,
    record::{EpochRecord, Repeated, RunRow},
};

use super::{
    chart::{self, Line, points},
    section::{section, section_with_legend},
    text::{escape, score},
};

/// Number of runs drawn as lines; a chart of more cannot be read.
const MAX_LINES: usize = 60;

/// Renders the page of these runs, the best of each metric first. `epochs` has the records of each
/// run, `repeated` the spreads of those that differ by their seeds, with their directories.
pub fn runs_html(rows: &[RunRow], epochs: &[Vec<EpochRecord>], repeated: &[(String, Repeated)]) -> String {
    let mut page = super::head("Runs");
    let _ = write!(
        page,
        "<header>\n<p class=mark>graphmill</p>\n<h1>Runs</h1>\n<p>{} runs, compared</p>\n</header>\n",
        count(rows.len() as u64)
    );
    let mut first = 0;
    for group in rows.chunk_by(|a, b| a.metric == b.metric) {
        page += &curves(group, &epochs[first..first + group.len()]);
        first += group.len();
    }
    page += &table(rows);
    if !repeated.is_empty() {
        page += &spreads(repeated);
    }
    let version = env!("CARGO_PKG_VERSION");
    page + &format!("<footer>Written by graphmill {version}.</footer>\n</main>\n")
}

/// Curves of runs of the same metric.
fn curves(rows: &[RunRow], epochs: &[Vec<EpochRecord>]) -> String {
    let title = format!("Validation {}", escape(&rows[0].metric));
    let drawn = |(i, (row, records)): (usize, (&RunRow, &Vec<EpochRecord>))| {
        let points = points(records, &row.run.display().to_string(), |epoch| epoch.valid_score);
        let class = if i == 0 { "valid" } else { "faint" };
        (!points.is_empty()).then_some(Line { class, points })
    };
    // the best lies on top of the others
    let of_runs: Vec<_> = rows.iter().zip(epochs).enumerate().take(MAX_LINES).collect();
    let lines: Vec<Line> = of_runs.into_iter().rev().filter_map(drawn).collect();
    let chart = chart::wide_lines("validation score of each run", &lines);
    if chart.is_empty() {
        return section(&title, "No run has a score.", "");
    }
    let legend = format!(
        "<ul class=legend><li class=valid><i class=swatch></i>{}</li>\
         <li class=faint><i class=swatch></i>other runs</li></ul>",
        escape(&rows[0].run.display().to_string())
    );
    section_with_legend(&title, &legend, "By epoch.", &format!("<div class=wide>{chart}</div>"))
}

/// Scores of all runs, and the options in which they differ.
fn table(rows: &[RunRow]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for name in rows.iter().flat_map(|row| row.options.keys()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut body = String::from(
        "<div class=scroll><table>\n<thead><tr><th>run<th>dataset<th>metric<th>validation<th>test\
         <th>best epoch<th>epochs<th>seconds",
    );
    for name in &names {
        let _ = write!(body, "<th>{}", escape(&name.replace('_', "-")));
    }
    body += "</tr></thead>\n<tbody>\n";
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    for row in rows {
        let _ = write!(
            body,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.1}",
            escape(&row.run.display().to_string()),
            escape(&row.dataset),
            escape(&row.metric),
            number(row.valid),
            number(row.test),
            row.best_epoch,
            row.epochs,
            row.seconds
        );
        for name in &names {
            let value = row.options.get(*name).map_or("–".to_string(), word);
            let _ = write!(body, "<td>{}", escape(&value));
        }
        body += "</tr>\n";
    }
    let note = "The best validation score of each metric first, and the options in which the runs differ.";
    section("Scores", note, &(body + "</tbody></table></div>\n"))
}

/// Spread of runs that differ by their seeds.
fn spreads(repeated: &[(String, Repeated)]) -> String {
    let mut body = String::from(
        "<div class=scroll><table>\n<thead><tr><th>runs<th>seeds<th>metric<th>validation<th>test</tr>\
         </thead>\n<tbody>\n",
    );
    for (dir, of) in repeated {
        let [valid, test] = [of.valid, of.test].map(|spread| {
            spread.map_or("–".into(), |x| format!("{} ± {}", score(x.mean), score(x.deviation)))
        });
        let _ = writeln!(
            body,
            "<tr><td>{}<td>{}<td>{}<td>{valid}<td>{test}</tr>",
            escape(dir),
            of.runs.len(),
            escape(&of.metric)
        );
    }
    section("Seeds", "Mean ± standard deviation.", &(body + "</tbody></table></div>\n"))
}
