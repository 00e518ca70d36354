//! Section on the scores of each class and the confusion matrix.

use std::fmt::Write;

use graphmill_core::units::count;
use graphmill_engine::record::Summary;
use graphmill_nn::metric::classes::{Average, ClassReport, ClassScore};

use super::{
    section::section,
    text::{escape, percent, score},
};

/// Number of classes up to which the page has a matrix; more have a list of confusions.
const MATRIX: usize = 40;

/// Renders the sections; empty for a run without scores by class.
pub(super) fn classes(summary: &Summary) -> String {
    let Some(report) = &summary.by_class else { return String::new() };
    let mut out = String::from("<div class=pair>\n");
    let note = "Best epoch on the test nodes. Precision is the share of the predictions that are correct, \
                recall the share of the nodes that are found.";
    out += &section("Scores by class", note, &table(report));
    out += &confusions(report);
    out + "</div>\n"
}

/// Table with a row for each class.
fn table(report: &ClassReport) -> String {
    let number = |x: Option<f64>| x.map_or("–".to_string(), score);
    let mut body = String::from(
        "<div class=\"scroll tall\"><table>\n<thead><tr><th>class<th>nodes<th>predicted<th>precision\
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

/// The confusion matrix of few classes, or the most frequent confusions of many.
fn confusions(report: &ClassReport) -> String {
    match &report.confusion_matrix {
        Some(matrix) if matrix.len() <= MATRIX => {
            let note = "Rows are true classes, columns predicted ones. The shade is the share of the row.";
            section("Confusion matrix", note, &matrix_table(report, matrix))
        }
        _ if report.top_confusions.is_empty() => String::new(),
        _ => {
            let mut body = String::from(
                "<div class=\"scroll tall\"><table>\n<thead><tr><th>true class<th>predicted class<th>nodes\
                 </tr></thead>\n<tbody>\n",
            );
            for confusion in &report.top_confusions {
                let [truth, predicted] =
                    [confusion.truth, confusion.predicted].map(|c| escape(report.name(c)));
                let _ = writeln!(body, "<tr><td>{truth}<td>{predicted}<td>{}</tr>", count(confusion.count));
            }
            body += "</tbody></table></div>\n";
            section("Confusions", "The most frequent wrong predictions on the test nodes.", &body)
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
