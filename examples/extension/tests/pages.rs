//! Checks that code on the pages `book/src/contributing/add-a-*.md` is quoted from the examples and
//! from this crate, and that links of these pages resolve.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Paths and texts of the Rust files of the examples and of this crate.
fn sources(root: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for folder in ["examples", "examples/extension/src", "examples/extension/tests"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                all.push((path, text));
            }
        }
    }
    all
}

/// Rust blocks of a page, with their first lines. A doc comment in a block may contain a fence.
fn quoted(page: &str) -> Vec<(usize, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in page.lines().enumerate() {
        open = match open {
            None => (line == "```rust").then(|| (number + 2, String::new())),
            Some(block) if line == "```" => {
                blocks.push(block);
                None
            }
            Some((first, text)) => Some((first, text + line + "\n")),
        };
    }
    assert!(open.is_none(), "a Rust block has no closing fence");
    blocks
}

#[test]
fn quoted_code_equals_the_source_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = sources(&root);
    for page in ["sampler", "layer", "policy", "partitioner", "strategy"] {
        let name = format!("book/src/contributing/add-a-{page}.md");
        let text = fs::read_to_string(root.join(&name)).unwrap();
        let blocks = quoted(&text);
        assert!(blocks.len() >= 3, "{name} quotes {} blocks", blocks.len());
        for (line, block) in blocks {
            let is_quoted = sources.iter().any(|(_, source)| source.contains(&block));
            assert!(is_quoted, "{name}, line {line}: no example contains these lines:\n{block}");
        }
    }
}

/// Anchors of a page's headings: their words in lower case, joined by dashes.
fn anchors(text: &str) -> Vec<String> {
    let heading =
        |line: &str| line.starts_with('#').then(|| line.trim_start_matches('#').trim().to_lowercase());
    let anchor = |heading: String| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-');
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    text.lines().filter_map(heading).map(anchor).collect()
}

/// Address of the repository's files on pages of the book.
const REPOSITORY: &str = "https://github.com/graphmill/graphmill/blob/main";

#[test]
fn links_resolve_to_files_and_headings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = root.join("book/src/contributing");
    for page in ["sampler", "layer", "policy", "partitioner", "strategy"] {
        let text = fs::read_to_string(folder.join(format!("add-a-{page}.md"))).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file.strip_prefix(REPOSITORY) {
                Some(path) => root.join(path.trim_start_matches('/')),
                None => folder.join(file),
            };
            assert!(target.exists(), "add-a-{page}.md: {link}");
            if !anchor.is_empty() {
                let text = fs::read_to_string(target).unwrap();
                assert!(anchors(&text).iter().any(|own| own == anchor), "add-a-{page}.md: {link}");
            }
        }
    }
}
