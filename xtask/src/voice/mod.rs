//! `cargo xtask voice [MEMBER]`: the wording rules that a program can check.
//!
//! | rule | fault |
//! | --- | --- |
//! | opening | a doc comment opens with What, Who, Which, Whether, Where, How or When |
//! | length | a comment or Markdown line exceeds 100 columns, or a source line rustfmt's limit |
//! | word | a comment, string or identifier contains a word of `xtask/voice.toml` |
//! | pointer | an item is documented by "See the module's text." |
//! | sections | the header of an algorithm's module lacks a section |
//!
//! Tables, headings, links and fenced code are exempt from the comment limit, raw strings from rustfmt's. A
//! module holds an algorithm if its header has a section `# Algorithm`, or cites a paper with its
//! title in italics and a year.
//!
//! `xtask/voice.toml` holds the number of remaining faults per member of the workspace, which only
//! falls: more faults fail the check, and fewer print a note to lower the number. With a member's
//! name the command lists all faults of that member.

mod source;
mod words;

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use self::words::Words;
use crate::house;

/// Words and numbers of remaining faults, relative to the workspace.
const SETTINGS: &str = "xtask/voice.toml";
/// Columns of a comment or Markdown line.
const MAX_COMMENT: usize = 100;
/// Member name of all Markdown files.
const MARKDOWN: &str = "markdown";

/// Contents of [`SETTINGS`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// Number of remaining faults by member; a missing one has none.
    faults: BTreeMap<String, usize>,
    /// Forbidden words, each with its replacement.
    words: BTreeMap<String, String>,
    /// Forbidden names of constants, each with its replacement; `*` at the end matches any suffix.
    constants: BTreeMap<String, String>,
}

/// Fault at a line of a file.
#[derive(Debug, PartialEq, Eq)]
struct Fault {
    /// Line, from 1.
    line: usize,
    message: String,
}

/// Checks every member against its number of remaining faults.
///
/// # Errors
/// A member has more faults than its number, or a file cannot be read.
pub(crate) fn check() -> Result<()> {
    let root = root()?;
    let settings = settings(root)?;
    let found = find(root, &settings)?;
    let mut exceeded = 0;
    for (member, faults) in &found {
        let limit = settings.faults.get(member).copied().unwrap_or(0);
        if faults.len() > limit {
            if limit == 0 {
                faults.iter().for_each(|fault| eprintln!("{fault}"));
            }
            let hint = "`cargo xtask voice MEMBER` lists them";
            eprintln!("{member}: {} faults, at most {limit} are allowed; {hint}", faults.len());
            exceeded += 1;
        } else if faults.len() < limit {
            eprintln!("note: {SETTINGS}: lower {member} from {limit} to {}", faults.len());
        }
    }
    for member in settings.faults.keys().filter(|member| !found.contains_key(*member)) {
        eprintln!("note: {SETTINGS}: {member} is not a member of the workspace; remove it");
    }
    if exceeded > 0 {
        bail!("{exceeded} members have new faults in their wording; {SETTINGS} lists the replacements");
    }
    let rest: usize = found.values().map(Vec::len).sum();
    eprintln!("── voice: {rest} known faults remain");
    Ok(())
}

/// Prints all faults of a member.
///
/// # Errors
/// The member is unknown, or a file cannot be read.
pub(crate) fn list(member: &str) -> Result<()> {
    let root = root()?;
    let found = find(root, &settings(root)?)?;
    let Some(faults) = found.get(member) else {
        let known: Vec<&str> = found.keys().map(String::as_str).collect();
        bail!("unknown member '{member}'; known: {}", known.join(", "));
    };
    faults.iter().for_each(|fault| println!("{fault}"));
    println!("{member}: {} faults", faults.len());
    Ok(())
}

fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")
}

fn settings(root: &Path) -> Result<Settings> {
    let text = fs::read_to_string(root.join(SETTINGS)).with_context(|| SETTINGS.to_owned())?;
    toml::from_str(&text).with_context(|| SETTINGS.to_owned())
}

/// Faults by member, each with its file and line.
fn find(root: &Path, settings: &Settings) -> Result<BTreeMap<String, Vec<String>>> {
    let limit = source_limit(root)?;
    let words = Words::new(&settings.words, &settings.constants);
    let mut found = BTreeMap::<String, Vec<String>>::new();
    let mut add = |path: &str, faults: Vec<Fault>| {
        let named = faults.into_iter().map(|Fault { line, message }| format!("{path}:{line}: {message}"));
        found.entry(member_of(path)).or_default().extend(named);
    };
    for path in house::source_paths(root)? {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        // The word list's own tests contain the words.
        if !path.starts_with("xtask/src/voice/") {
            add(&path, source::faults(&text, limit, &words));
        }
    }
    for path in house::markdown_paths(root)? {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        add(&path, markdown_faults(&text));
    }
    Ok(found)
}

/// Longest line of formatted code, from `rustfmt.toml`.
fn source_limit(root: &Path) -> Result<usize> {
    let name = "rustfmt.toml";
    let text = fs::read_to_string(root.join(name)).with_context(|| name.to_owned())?;
    let table: toml::Table = toml::from_str(&text).with_context(|| name.to_owned())?;
    let width = table.get("max_width").and_then(toml::Value::as_integer).context("max_width is missing")?;
    Ok(usize::try_from(width)?)
}

/// Member of the workspace to which a path belongs.
fn member_of(path: &str) -> String {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        _ if path.ends_with(".md") => MARKDOWN.to_owned(),
        (Some("crates"), Some(name)) => name.to_owned(),
        (Some(name), _) => name.to_owned(),
        (None, _) => String::new(),
    }
}

/// Lines of a Markdown page that exceed [`MAX_COMMENT`], except tables, headings, signatures, links and
/// fenced code.
fn markdown_faults(text: &str) -> Vec<Fault> {
    let mut fenced = false;
    let mut faults = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        let columns = line.chars().count();
        if columns > MAX_COMMENT && !fenced && !is_fence && !is_exempt(line) {
            faults.push(Fault {
                line: at + 1,
                message: format!("length: {columns} columns, of {MAX_COMMENT}"),
            });
        }
    }
    faults
}

/// Returns true for a row of a table, a heading, a signature (`**` and code), and a line with a
/// link: they cannot be wrapped.
fn is_exempt(line: &str) -> bool {
    line.trim_start().starts_with(['|', '#'])
        || line.starts_with("**`")
        || line.contains("://")
        || line.contains("](")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_crates_folders_and_markdown() {
        for (path, member) in [
            ("crates/data/src/lib.rs", "data"),
            ("xtask/src/main.rs", "xtask"),
            ("benchmarks/papers/src/main.rs", "benchmarks"),
            ("crates/data/README.md", MARKDOWN),
        ] {
            assert_eq!(member_of(path), member);
        }
    }

    #[test]
    fn long_markdown_lines_except_tables_links_and_code_are_faults() {
        let long = "a".repeat(101);
        let page = format!("{long}\n| {long} |\n[a](b) {long}\n```text\n{long}\n```\n{}\n", &long[1..]);
        let faults = markdown_faults(&page);
        assert_eq!(faults, [Fault { line: 1, message: "length: 101 columns, of 100".into() }]);
    }

    #[test]
    fn settings_name_each_replacement() {
        let settings = settings(root().unwrap()).unwrap();
        assert!(settings.words.iter().chain(&settings.constants).all(|(_, better)| !better.is_empty()));
    }
}
