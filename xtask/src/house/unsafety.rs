//! Unsafe code by reason: a file that has some allows it for one reason, and a page has a row for
//! each reason, with the numbers of its uses and files. Crates and modules without unsafe code
//! forbid it.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};

use super::source::Source;

/// Page with the table of reasons.
pub(super) const PAGE: &str = "book/src/internals/unsafe-code.md";
/// Heading above the table.
const HEADING: &str = "## Reasons";

/// Uses of `unsafe` and the files that have them.
type Count = (usize, usize);

/// Faults of the files and of the page.
///
/// # Errors
/// The page cannot be read.
pub(super) fn faults(root: &Path, sources: &[Source]) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| PAGE.to_owned())?;
    let mut faults: Vec<String> = sources.iter().filter_map(fault_of_file).collect();
    faults.extend(roots_that_must_forbid(sources));
    faults.extend(modules_that_must_forbid(sources));
    faults.extend(faults_of_table(&page, &counts(sources)));
    Ok(faults)
}

/// Counts by reason.
fn counts(sources: &[Source]) -> BTreeMap<&str, Count> {
    let mut counts: BTreeMap<&str, Count> = BTreeMap::new();
    for source in sources {
        if let Some(reason) = source.unsafe_reasons().first() {
            let count = counts.entry(reason).or_default();
            *count = (count.0 + source.unsafe_uses(), count.1 + 1);
        }
    }
    counts
}

/// Fault of a file whose unsafe code and whose attribute do not match.
fn fault_of_file(source: &Source) -> Option<String> {
    let (uses, reasons) = (source.unsafe_uses(), source.unsafe_reasons());
    let fault = match (uses, reasons.len()) {
        (0, 0) => return None,
        (0, _) => "allows unsafe code and has none; remove the attribute".to_owned(),
        (_, 0) => format!("{uses} uses of unsafe; allow them with a reason of {PAGE}"),
        (_, 1) => return None,
        _ => format!("allows unsafe code for several reasons; choose one of {reasons:?}"),
    };
    Some(format!("{}: {fault}", source.path))
}

/// Roots of packages without unsafe code that do not forbid it.
fn roots_that_must_forbid(sources: &[Source]) -> Vec<String> {
    let package = |path: &str| path.split_once("/src/").map(|(package, _)| package.to_owned());
    let has_unsafe = |of: &str| {
        let inside = sources.iter().filter(|source| package(&source.path).as_deref() == Some(of));
        inside.map(Source::unsafe_uses).sum::<usize>() > 0
    };
    let is_root = |path: &str| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    let roots = sources.iter().filter(|source| is_root(&source.path) && !source.forbids_unsafe());
    roots
        .filter(|root| package(&root.path).is_some_and(|package| !has_unsafe(&package)))
        .map(|root| format!("{}: the package has no unsafe code; add #![forbid(unsafe_code)]", root.path))
        .collect()
}

/// Modules without unsafe code that do not forbid it, in libraries that have some elsewhere.
fn modules_that_must_forbid(sources: &[Source]) -> Vec<String> {
    let forbidding: Vec<&str> = sources
        .iter()
        .filter(|source| source.forbids_unsafe())
        .filter_map(|source| source.path.strip_suffix("lib.rs"))
        .collect();
    let mut faults = Vec::new();
    for source in sources.iter().filter(|source| !source.forbids_unsafe()) {
        let Some((src, module)) = top_level_module(&source.path) else { continue };
        let below = format!("{src}{module}/");
        let files =
            sources.iter().filter(|other| other.path == source.path || other.path.starts_with(&below));
        if !forbidding.contains(&src) && files.map(Source::unsafe_uses).sum::<usize>() == 0 {
            let path = &source.path;
            faults.push(format!("{path}: the module has no unsafe code; add #![forbid(unsafe_code)]"));
        }
    }
    faults
}

/// Directory of the sources, with the slash, and name of a library's module that lies in its root.
fn top_level_module(path: &str) -> Option<(&str, &str)> {
    let end = path.strip_prefix("crates/")?.find("/src/")? + "crates/".len() + "/src/".len();
    let (src, file) = path.split_at(end);
    let module = file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix(".rs"))?;
    (!module.contains('/') && !["lib", "main"].contains(&module)).then_some((src, module))
}

/// Differences between the page's table and the counts.
fn faults_of_table(page: &str, counts: &BTreeMap<&str, Count>) -> Vec<String> {
    let section = page.split_once(HEADING).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or("");
    let rows: BTreeMap<&str, [&str; 2]> = section
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            Some((cells.next()?, [cells.next()?, cells.next()?]))
        })
        .filter(|(reason, _)| *reason != "reason" && !reason.starts_with("---"))
        .collect();
    let unused = rows.keys().filter(|reason| !counts.contains_key(**reason));
    let mut faults: Vec<String> =
        unused.map(|reason| format!("{PAGE}: no file has the reason '{reason}'; remove its row")).collect();
    for (reason, (uses, files)) in counts {
        let expected = [uses.to_string(), files.to_string()];
        if rows.get(reason).is_none_or(|cells| *cells != expected) {
            faults.push(format!("{PAGE}: the row must begin | {reason} | {uses} | {files} |"));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path.into(), text.into())
    }

    #[test]
    fn files_allow_unsafe_code_for_one_reason() {
        let fault = |text: &str| fault_of_file(&source("crates/a/src/b.rs", text)).unwrap_or_default();
        let allowed = "#![allow(unsafe_code, reason = \"maps\")]\n";
        assert_eq!(fault("fn f() {} // unsafe\n"), "");
        assert_eq!(fault(&format!("{allowed}unsafe fn f() {{}}\n")), "");
        assert!(fault("unsafe fn f() {}\n").contains("1 uses"));
        assert!(fault(&format!("{allowed}fn f() {{}}\n")).contains("has none"));
        let twice = format!("{allowed}    #[allow(unsafe_code)]\n    unsafe fn f() {{}}\n");
        assert!(fault(&twice).contains("several reasons"), "{twice}");
    }

    #[test]
    fn packages_without_unsafe_code_forbid_it() {
        let [a, b] = ["crates/a/src/lib.rs", "crates/b/src/lib.rs"];
        let sources =
            [source(a, "mod c;\n"), source("crates/a/src/c.rs", "unsafe {}\n"), source(b, "mod c;\n")];
        let faults = roots_that_must_forbid(&sources);
        assert!(faults.len() == 1 && faults[0].starts_with(b), "{faults:?}");
        assert!(roots_that_must_forbid(&[source(b, "#![forbid(unsafe_code)]\n")]).is_empty());
    }

    #[test]
    fn modules_without_unsafe_code_forbid_it() {
        let forbids = "//! C.\n\n#![forbid(unsafe_code)]\n";
        let sources = [
            source("crates/a/src/lib.rs", "mod b;\nmod c;\nmod d;\nmod e;\n"),
            source("crates/a/src/b.rs", "unsafe {}\n"),
            source("crates/a/src/c.rs", forbids),
            source("crates/a/src/d/mod.rs", "mod f;\n"),
            source("crates/a/src/d/f.rs", "fn f() {}\n"),
            source("crates/a/src/e.rs", "mod g;\n"),
            source("crates/a/src/e/g.rs", "unsafe {}\n"),
            source("crates/h/src/lib.rs", forbids),
            source("crates/h/src/i.rs", "fn f() {}\n"),
        ];
        let faults = modules_that_must_forbid(&sources);
        assert!(faults.len() == 1 && faults[0].starts_with("crates/a/src/d/mod.rs"), "{faults:?}");
    }

    #[test]
    fn the_page_counts_uses_and_files() {
        let allowed = "#![allow(unsafe_code, reason = \"maps\")]\nunsafe {} unsafe {}\n";
        let sources = [source("crates/a/src/b.rs", allowed), source("crates/a/src/c.rs", allowed)];
        let faults = |rows: &str| {
            let head = "# P\n\n## Reasons\n\n| reason | uses | files |\n| --- | --- | --- |\n";
            let page = format!("{head}{rows}\n## Next\n| x | 1 | 1 |\n");
            faults_of_table(&page, &counts(&sources))
        };
        assert!(faults("| maps | 4 | 2 | proof |\n").is_empty());
        assert!(faults("| maps | 4 | 1 | proof |\n")[0].contains("| maps | 4 | 2 |"));
        assert!(faults("| maps | 4 | 2 |\n| calls | 1 | 1 |\n")[0].contains("calls"));
        assert_eq!(faults("").len(), 1);
    }
}
