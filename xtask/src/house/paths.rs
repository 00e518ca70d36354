//! Paths that the Markdown pages name: each must exist.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::find_files;

/// Pages beside those of the book.
const PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"];
/// Folders of the project that a path in code style begins with.
const FOLDERS: [&str; 9] =
    ["benchmarks/", "configs/", "crates/", "book/", "examples/", "fuzz/", "scripts/", "xtask/", ".ci/"];

/// Lists the paths that do not exist.
///
/// # Errors
/// A page cannot be read.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    find_files(&root.join("book/src"), "md", &mut pages)?;
    pages.sort();
    let mut faults = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let beside = page.parent().unwrap_or(root);
        let shown = page.strip_prefix(root).unwrap_or(&page).display();
        for (at, line) in text.lines().enumerate() {
            let links = links(line).into_iter().filter(|link| !beside.join(link).exists());
            let is_missing =
                |path: &String| !root.join(path).exists() && !root.join("crates").join(path).exists();
            let named = code_paths(line).into_iter().filter(is_missing);
            faults
                .extend(links.chain(named).map(|path| format!("{shown}:{}: {path} does not exist", at + 1)));
        }
    }
    Ok(faults)
}

/// Targets of a line's links within the project, without their anchors.
fn links(line: &str) -> Vec<String> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let inside = targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '<']));
    inside
        .map(|target| target.split('#').next().unwrap_or("").to_owned())
        .filter(|path| !path.is_empty())
        .collect()
}

/// Paths in a line's code style, from the project's root or `crates`, without patterns and
/// placeholders; `a/{b,c}.rs` is two of them.
fn code_paths(line: &str) -> Vec<String> {
    let spans = line.split('`').skip(1).step_by(2);
    let words = spans.flat_map(|span| span.split_whitespace());
    let paths = words.map(|word| word.trim_matches([',', '.', ';', '"'])).filter(|word| {
        let is_pattern = word.contains(['*', '<', '$', '[', '=', ':']) || has_placeholder(word);
        let is_in_crate = word.contains("/src/") || word.contains("/tests/");
        (is_in_crate || FOLDERS.iter().any(|folder| word.starts_with(folder))) && !is_pattern
    });
    paths.flat_map(alternatives).collect()
}

/// Reports whether a part of a path is all capitals, such as NAME.
fn has_placeholder(word: &str) -> bool {
    let is_capital = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        stem.len() > 1 && stem.bytes().all(|byte| byte.is_ascii_uppercase()) && stem != "README"
    };
    word.split(['/', '-']).any(is_capital)
}

/// Writes `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn alternatives(word: &str) -> Vec<String> {
    let parts = word.split_once('{').and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    let Some((head, (inside, tail))) = parts else { return vec![word.to_owned()] };
    inside.split(',').flat_map(|part| alternatives(&format!("{head}{part}{tail}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_paths_are_found_and_patterns_are_not() {
        let line = "See [results](book/src/results/all.md#data), [a](https://x.y/z) and \
                    `crates/{nn,loader}/src/lib.rs`,";
        assert_eq!(links(line), ["book/src/results/all.md"]);
        assert_eq!(code_paths(line), ["crates/nn/src/lib.rs", "crates/loader/src/lib.rs"]);
        assert_eq!(code_paths("`nn/src/lib.rs`"), ["nn/src/lib.rs"]);
        assert!(
            code_paths("`crates/*/src`, `fuzz/artifacts/TARGET/x`, `a/b.rs`, `xtask/nvrtc-VERSION.txt`")
                .is_empty()
        );
    }
}
