//! Frame of a section of the page.

/// Renders a section with a title and an explanatory line.
pub(super) fn section(title: &str, note: &str, body: &str) -> String {
    section_with_legend(title, "", note, body)
}

/// Renders a section with a legend beside the title.
pub(super) fn section_with_legend(title: &str, legend: &str, note: &str, body: &str) -> String {
    format!("<section>\n<div class=title><h2>{title}</h2>{legend}</div>\n<p>{note}</p>\n{body}\n</section>\n")
}
