//! Section that compares the model with label propagation.

use graphmill_engine::record::{Baseline, Summary};

use super::{
    section::section,
    text::{escape, score},
};

/// Renders the section; empty for a run without a baseline.
pub(super) fn baseline(summary: &Summary) -> String {
    let Some(Baseline { method, valid, test }) = &summary.baseline else { return String::new() };
    let what = summary.scored_rows;
    let note = format!(
        "The targets of the training {what}, spread over the graph without features and without training, \
         scored on the same {what}. A model that reads features should reach more."
    );
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    let row = |name: &str, valid: Option<f64>, test: Option<f64>| {
        format!("<tr><td>{name}<td>{}<td>{}</tr>\n", number(valid), number(test))
    };
    let metric = escape(&summary.test.metric);
    let mut table = format!(
        "<div class=scroll><table>\n<thead><tr><th>{metric}<th>validation<th>test</tr></thead>\n<tbody>\n"
    );
    table += &row("the model", summary.best.valid_score, summary.test.score);
    table += &row(&escape(&method.replace('-', " ")), *valid, *test);
    section("Without a model", &note, &(table + "</tbody></table></div>\n"))
}
