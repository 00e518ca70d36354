//! `report.html` of a sweep: scores of all trials by epoch, and their values in a table.

use std::fmt::Write;

use graphmill_core::units::count;
use graphmill_engine::{
    options::word,
    record::EpochRecord,
    sweep::{SweepRecord, TrialRecord},
};

use super::{
    chart::{self, Line, points},
    section::{section, section_with_legend},
    text::{escape, score},
};

/// Number of trials drawn as lines; a chart of more cannot be read.
const MAX_LINES: usize = 60;

/// Renders the page of a sweep. `epochs` has the records of each trial, as far as it was trained.
pub fn sweep_html(sweep: &SweepRecord, epochs: &[Vec<EpochRecord>]) -> String {
    let name = escape(&sweep.dataset);
    let mut page = super::head(&name);
    let (trials, most) = (sweep.trials.len() as u64, sweep.rungs.last().copied().unwrap_or(0));
    let tried: Vec<String> = sweep.tried.iter().map(|word| escape(word)).collect();
    let _ = write!(
        page,
        "<header>\n<p class=mark>graphmill</p>\n<h1>{name}</h1>\n<p>sweep of {} trials · {}</p>\n</header>\n",
        count(trials),
        tried.join(" · ")
    );
    page += &cards(sweep, most);
    page += &curves(sweep, epochs);
    page += &table(sweep);
    if let Some(command) = &sweep.command {
        let body = format!("<pre>{}</pre>", escape(command));
        page += &section("The best trial", "The command that trains it alone, to the same bits.", &body);
    }
    let _ = write!(page, "<footer>Written by graphmill {}.</footer>\n</main>\n", escape(&sweep.graphmill));
    page
}

fn cards(sweep: &SweepRecord, most: usize) -> String {
    let mut out = String::from("<div class=cards>\n");
    let mut card = |class: &str, value: &str, what: &str| {
        let _ = writeln!(out, "<div{class}><b>{value}</b><span>{what}</span></div>");
    };
    let metric = escape(&sweep.metric);
    if let Some(best) = sweep.best() {
        if let Some(valid) = best.last().and_then(|last| last.valid) {
            card(" class=main", &score(valid), &format!("validation {metric} of trial {}", best.trial));
        }
        if let Some(test) = best.test {
            card("", &score(test), &format!("its test {metric}"));
        }
    }
    if let Some(test) = sweep.repeated.as_ref().and_then(|repeated| repeated.test) {
        let seeds = sweep.repeated.as_ref().map_or(0, |repeated| repeated.runs.len());
        let value = format!("{} ± {}", score(test.mean), score(test.deviation));
        card("", &value, &format!("test {metric}, mean ± deviation of {seeds} seeds"));
    }
    let trained: usize = sweep.trials.iter().filter_map(TrialRecord::last).map(|last| last.epochs).sum();
    let all = count((sweep.trials.len() * most) as u64);
    card("", &count(trained as u64), &format!("epochs trained, instead of {all}"));
    out + "</div>\n"
}

fn curves(sweep: &SweepRecord, epochs: &[Vec<EpochRecord>]) -> String {
    let title = format!("Validation {}", escape(&sweep.metric));
    let drawn = |trial: &TrialRecord| {
        let records = epochs.get(trial.trial - 1)?;
        let what = format!("trial {}, validation", trial.trial);
        let points = points(records, &what, |epoch| epoch.valid_score);
        let class = if sweep.best == Some(trial.trial) { "valid" } else { "faint" };
        (!points.is_empty()).then_some(Line { class, points })
    };
    let ranked = sweep.ranked();
    // the best lies on top of the others
    let lines: Vec<Line> = ranked.iter().take(MAX_LINES).rev().filter_map(|trial| drawn(trial)).collect();
    let chart = chart::wide_lines("validation score of each trial", &lines);
    if chart.is_empty() {
        return section(&title, "No trial has a score yet.", "");
    }
    let legend = "<ul class=legend><li class=valid><i class=swatch></i>best trial</li>\
                  <li class=faint><i class=swatch></i>other trials</li></ul>";
    let rungs: Vec<String> = sweep.rungs.iter().map(ToString::to_string).collect();
    let note = format!("By epoch. Trials were compared after epochs {}.", rungs.join(", "));
    section_with_legend(&title, legend, &note, &format!("<div class=wide>{chart}</div>"))
}

fn table(sweep: &SweepRecord) -> String {
    let names = sweep.names();
    let mut body = String::from("<div class=scroll><table>\n<thead><tr><th>trial");
    for name in &names {
        let _ = write!(body, "<th>{}", escape(&name.replace('_', "-")));
    }
    body += "<th>epochs<th>validation<th>best epoch<th>test<th>run</tr></thead>\n<tbody>\n";
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    for trial in sweep.ranked() {
        let star = if sweep.best == Some(trial.trial) { " class=star" } else { "" };
        let _ = write!(body, "<tr{star}><td>{}", trial.trial);
        for name in &names {
            let value = trial.values.get(*name).map_or("–".to_string(), word);
            let _ = write!(body, "<td>{}", escape(&value));
        }
        let last = trial.last().copied().unwrap_or_default();
        let _ = match &trial.failed {
            Some(why) => write!(body, "<td colspan=4>dropped: {}", escape(why)),
            None => write!(
                body,
                "<td>{}<td>{}<td>{}<td>{}",
                last.epochs,
                number(last.valid),
                last.best_epoch,
                number(trial.test)
            ),
        };
        let _ = writeln!(body, "<td>{}</tr>", escape(&trial.run));
    }
    let note = "The best first: those that were trained longest, by their validation score. The test part \
                chose nothing.";
    section("Trials", note, &(body + "</tbody></table></div>\n"))
}
