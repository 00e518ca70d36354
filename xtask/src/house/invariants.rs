//! Invariants of ARCHITECTURE.md: each names a test by `FILE::TEST`, or a command, and these exist.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Page with the list.
const PAGE: &str = "ARCHITECTURE.md";
/// Heading above the list.
const HEADING: &str = "## Invariants";
/// Beginning of a command that checks an invariant.
const COMMAND: &str = "cargo xtask ";

/// Invariants without a test, and tests that do not exist.
///
/// # Errors
/// The page cannot be read.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| PAGE.to_owned())?;
    let has_test = |file: &str, test: &str| {
        let text = fs::read_to_string(root.join("crates").join(file))
            .or_else(|_| fs::read_to_string(root.join(file)));
        text.is_ok_and(|text| text.contains(&format!("fn {test}(")))
    };
    Ok(faults_of(&page, has_test))
}

/// Faults of the page's list; `has_test` reports whether a file has a test.
fn faults_of(page: &str, has_test: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let items = items(page);
    if items.is_empty() {
        return vec![format!("{PAGE}: no numbered invariants below '{HEADING}'")];
    }
    let mut faults = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let number = at + 1;
        let spans: Vec<&str> = item.split('`').skip(1).step_by(2).collect();
        let tests: Vec<(&str, &str)> = spans.iter().filter_map(|span| span.split_once("::")).collect();
        if tests.is_empty() && !spans.iter().any(|span| span.starts_with(COMMAND)) {
            faults.push(format!("{PAGE}: invariant {number} names no test as `FILE::TEST`"));
        }
        let missing = tests.iter().filter(|(file, test)| !has_test(file, test));
        faults.extend(
            missing
                .map(|(file, test)| format!("{PAGE}: invariant {number}: crates/{file} has no test {test}")),
        );
    }
    faults
}

/// Numbered items below the heading, each in one line.
fn items(page: &str) -> Vec<String> {
    let section = page.split_once(HEADING).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or("");
    let is_numbered =
        |line: &str| line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    let mut items: Vec<String> = Vec::new();
    for line in section.lines() {
        match items.last_mut() {
            _ if is_numbered(line) => items.push(line.to_owned()),
            Some(item) => {
                item.push(' ');
                item.push_str(line.trim());
            }
            None => {}
        }
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_invariant_names_a_test_that_exists() {
        let head = "# A\n\n## Invariants\n\nText.\n\n";
        let faults = |list: &str| {
            let page = format!("{head}{list}\n## Next\n\n1. no invariant\n");
            faults_of(&page, |file, test| file == "a/tests/b.rs" && test == "c")
        };
        assert!(
            faults("1. **x**: y.\n   *`a/tests/b.rs::c`, `a/tests`*\n2. z `cargo xtask house`\n").is_empty()
        );
        let found = faults("1. **x**. *`a/tests/b.rs`*\n2. `a/tests/b.rs::d`\n");
        assert!(
            found.len() == 2 && found[0].contains("names no test") && found[1].contains("test d"),
            "{found:?}"
        );
        assert_eq!(faults("").len(), 1);
    }
}
