//! Section on the scores of each class and the confusion matrix.

use std::fmt::Write;

use graphmill_core::units::count;
use graphmill_engine::record::{ScoredRows, Summary};
use graphmill_nn::metric::{
    classes::{Average, ClassReport, ClassScore},
    diagnostics::Diagnostics,
};

use super::{
    section::section,
    text::{escape, percent, score},
};

/// Number of classes up to which the page has a matrix; more have a list of confusions.
const MATRIX: usize = 40;

/// Number of columns of classes that have tables of their classes.
const MAX_COLUMNS: usize = 6;

/// Renders the sections; empty for a run without scores by class.
pub(super) fn classes(summary: &Summary) -> String {
    let test = summary.diagnostics.iter().find(|of| of.part == "test");
    let columns = test.map_or(&[][..], |test| &test.columns);
    let what = summary.scored_rows;
    let mut out = by_column(&summary.diagnostics, what);
    for column in columns.iter().take(MAX_COLUMNS) {
        out += &of_classes(&column.by_class, &format!(" of {}", escape(&column.name)), what);
    }
    if columns.len() > MAX_COLUMNS {
        let more = columns.len() - MAX_COLUMNS;
        out += &section("More columns", &format!("{more} more have no tables; summary.json has them."), "");
    }
    summary.by_class.as_ref().map_or(out.clone(), |report| out + &of_classes(report, "", what))
}

/// Scores of each part and column of classes; empty unless the run learned several columns.
fn by_column(parts: &[Diagnostics], what: ScoredRows) -> String {
    let Some(first) = parts.iter().find_map(|of| of.columns.first()) else { return String::new() };
    let mut body = format!("<div class=scroll><table>\n<thead><tr><th>part<th>target<th>{what}");
    first.scores.keys().for_each(|name| {
        let _ = write!(body, "<th>{}", escape(name));
    });
    body += "</tr></thead>\n<tbody>\n";
    for of in parts {
        for column in &of.columns {
            let name = escape(&column.name);
            let _ = write!(body, "<tr><td>{}<td>{name}<td>{}", of.part, count(column.count));
            for name in first.scores.keys() {
                let value = column.scores.get(name).copied().flatten();
                let _ = write!(body, "<td>{}", value.map_or("–".to_string(), score));
            }
            body += "</tr>\n";
        }
    }
    let note = format!(
        "Best epoch, on the {what} that have a class in the column. The score of the run is the mean over \
         the columns."
    );
    section("Scores by target", &note, &(body + "</tbody></table></div>\n"))
}

/// Scores of each class and the confusions; `of` follows the titles.
fn of_classes(report: &ClassReport, of: &str, what: ScoredRows) -> String {
    let note = format!(
        "Best epoch on the test {what}. Precision is the share of the predictions that are correct, recall \
         the share of the {what} that are found."
    );
    let scores = section(&format!("Scores by class{of}"), &note, &table(report, what));
    format!("<div class=pair>\n{scores}{}</div>\n", confusions(report, of, what))
}

/// Table with a row for each class.
fn table(report: &ClassReport, what: ScoredRows) -> String {
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    let mut body = format!(
        "<div class=\"scroll tall\"><table>\n<thead><tr><th>class<th>{what}<th>predicted<th>precision\
         <th>recall<th>F1</tr></thead>\n<tbody>\n",
    );
    for ClassScore { class, support, predicted, precision, recall, f1 } in &report.classes {
        let (nodes, predicted) = (count(*support), count(*predicted));
        let (precision, recall, f1) = (number(*precision), number(*recall), number(*f1));
        let name = escape(class);
        let _ = writeln!(
            body,
            "<tr><td>{name}<td>{nodes}<td>{predicted}<td>{precision}<td>{recall}<td>{f1}</tr>"
        );
    }
    for (name, Average { precision, recall, f1 }) in
        [("macro average", report.macro_average), ("weighted average", report.weighted_average)]
    {
        let [precision, recall, f1] = [precision, recall, f1].map(score);
        let _ = writeln!(body, "<tr class=star><td>{name}<td><td><td>{precision}<td>{recall}<td>{f1}</tr>");
    }
    body + "</tbody></table></div>\n"
}

/// The confusion matrix of few classes, or the most frequent confusions of many; `of` follows the
/// title.
fn confusions(report: &ClassReport, of: &str, what: ScoredRows) -> String {
    match &report.confusion_matrix {
        Some(matrix) if matrix.len() <= MATRIX => {
            let note = "Rows are true classes, columns predicted ones. The shade is the share of the row.";
            section(&format!("Confusion matrix{of}"), note, &matrix_table(report, matrix))
        }
        _ if report.top_confusions.is_empty() => String::new(),
        _ => {
            let mut body = format!(
                "<div class=\"scroll tall\"><table>\n<thead><tr><th>true class<th>predicted class<th>{what}\
                 </tr></thead>\n<tbody>\n",
            );
            for confusion in &report.top_confusions {
                let [truth, predicted] =
                    [confusion.truth, confusion.predicted].map(|c| escape(report.name(c)));
                let _ = writeln!(body, "<tr><td>{truth}<td>{predicted}<td>{}</tr>", count(confusion.count));
            }
            body += "</tbody></table></div>\n";
            let note = format!("The most frequent wrong predictions on the test {what}.");
            section(&format!("Confusions{of}"), &note, &body)
        }
    }
}

fn matrix_table(report: &ClassReport, matrix: &[Vec<u64>]) -> String {
    let mut body = String::from("<div class=\"scroll tall\"><table class=matrix>\n<thead><tr><th>");
    (0..matrix.len()).for_each(|c| {
        let _ = write!(body, "<th>{}", escape(report.name(c)));
    });
    body += "</tr></thead>\n<tbody>\n";
    for (c, row) in matrix.iter().enumerate() {
        let all = row.iter().sum::<u64>().max(1);
        let _ = write!(body, "<tr><td>{}", escape(report.name(c)));
        for (predicted, &nodes) in row.iter().enumerate() {
            let share = nodes as f64 / all as f64;
            let title = format!(
                "{} predicted as {}: {}, {}",
                escape(report.name(c)),
                escape(report.name(predicted)),
                count(nodes),
                percent(share)
            );
            let zero = if nodes == 0 { " class=zero" } else { "" };
            let _ = write!(
                body,
                "<td{zero} style=\"--u:{:.1}%\" title=\"{title}\">{}",
                share * 100.0,
                count(nodes)
            );
        }
        body += "</tr>\n";
    }
    body + "</tbody></table></div>\n"
}
