//! The book for language models: `llms.txt`, a list of the pages with their first sentences, and
//! `llms-full.txt`, all pages in one file.
//!
//! The form is that of <https://llmstxt.org> (Howard, 2024).

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Name of the list of the pages.
const LIST: &str = "llms.txt";
/// Name of the file of all pages.
const FULL: &str = "llms-full.txt";
/// First lines of the list.
const HEAD: &str = "# Graphmill\n\n> Train graph neural networks on graphs that do not fit your GPU, or your \
                    RAM: from the command line,\n> from Python and from Rust.\n\n";

/// Writes both files of the book in `sources` to `out`.
///
/// # Errors
/// A page cannot be read, or a file cannot be written.
pub(crate) fn write(sources: &Path, out: &Path) -> Result<()> {
    let read = |name: &str| {
        let path = sources.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (list, full) = texts(&read("SUMMARY.md")?, read)?;
    for (name, text) in [(LIST, list), (FULL, full)] {
        fs::write(out.join(name), text).with_context(|| out.join(name).display().to_string())?;
    }
    Ok(())
}

/// Both files of a book with this outline, whose pages `read` returns by their names.
fn texts(outline: &str, read: impl Fn(&str) -> Result<String>) -> Result<(String, String)> {
    let (mut list, mut full) = (HEAD.to_owned(), HEAD.to_owned());
    list += &format!("All pages in one file: [{FULL}]({FULL}).\n");
    let mut is_first = true;
    for line in outline.lines().skip(1) {
        if let Some(part) = line.strip_prefix("# ") {
            list += &format!("\n## {part}\n\n");
            is_first = false;
        } else if let Some((title, page)) = link(line) {
            if std::mem::take(&mut is_first) {
                list += "\n## Begin\n\n";
            }
            let text = read(page)?;
            let html = page.strip_suffix(".md").unwrap_or(page);
            list += &format!("- [{title}]({html}.html): {}\n", first_sentence(&text));
            full += &format!("\n<!-- {page} -->\n\n{}\n", text.trim_end());
        }
    }
    Ok((list, full))
}

/// Title and target of the link in a line of the outline.
fn link(line: &str) -> Option<(&str, &str)> {
    let (title, rest) = line.split_once('[')?.1.split_once("](")?;
    Some((title, rest.split_once(')')?.0))
}

/// First sentence of the first paragraph after the heading of a page.
fn first_sentence(page: &str) -> String {
    let after = page.lines().skip_while(|line| !line.starts_with("# ")).skip(1);
    let paragraph =
        after.skip_while(|line| line.trim().is_empty()).take_while(|line| !line.trim().is_empty());
    let text = paragraph.collect::<Vec<_>>().join(" ");
    match text.split_once(". ") {
        Some((sentence, _)) => format!("{sentence}."),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_the_outline_is_listed_and_contained() {
        let outline = "# Summary\n\n[Start](start.md)\n\n# Guide\n\n- [Caches](guide/caches.md)\n";
        let read = |name: &str| {
            Ok(match name {
                "start.md" => {
                    "<!-- Generated -->\n\n# Start\n\nThis page is for\nreaders. It says more.\n\nEnd.\n"
                }
                _ => "# Caches\n\nOnly one sentence.\n",
            }
            .to_owned())
        };
        let (list, full) = texts(outline, read).unwrap();
        let pages = "\n## Begin\n\n- [Start](start.html): This page is for readers.\n\n## Guide\n\n\
                     - [Caches](guide/caches.html): Only one sentence.\n";
        assert!(list.starts_with("# Graphmill\n\n> ") && list.ends_with(pages), "{list}");
        for part in ["<!-- start.md -->", "It says more.\n\nEnd.\n", "<!-- guide/caches.md -->\n\n# Caches\n"]
        {
            assert!(full.contains(part), "{part}: {full}");
        }
    }

    #[test]
    fn pages_that_do_not_exist_are_errors() {
        let error = texts("# Summary\n- [A](a.md)\n", |name| anyhow::bail!("{name}: missing"));
        assert_eq!(error.unwrap_err().to_string(), "a.md: missing");
    }
}
