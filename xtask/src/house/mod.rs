//! `cargo xtask house`: checks of the structure of the sources, and of the paths in the
//! documentation.
//!
//! | rule | limit |
//! | --- | --- |
//! | a source file | 500 lines without its tests |
//! | a function | 80 lines, unless a comment `// long: REASON` stands above it |
//! | modules of a crate | no import cycles |
//! | crates | import only crates of lower levels, by the table of ARCHITECTURE.md |
//! | samplers and cache policies | do not name what they must not know ([`ignorance`]) |
//! | `allow(clippy::too_many_arguments)` | at most the number in `xtask/house.toml`, which only falls |
//! | default of a trait's method | no `unreachable!` |
//! | unsafe code | allowed by file, for a reason of [`unsafety::PAGE`], which counts it |
//! | names of Unix in a crate | below a `cfg` that names a system |
//! | a path in a Markdown page | exists |
//! | an invariant of ARCHITECTURE.md | names a test that exists |
//!
//! `xtask/house.toml` lists the exceptions with their reasons. Superfluous exceptions are printed,
//! so that the list shrinks.

mod cycles;
mod ignorance;
mod invariants;
mod levels;
mod paths;
mod platforms;
pub(crate) mod source;
mod unsafety;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use self::source::{Function, Source};

/// Lines of a file without its tests.
const MAX_FILE: usize = 500;
/// Lines of a function.
const MAX_FUNCTION: usize = 80;
/// Comment that gives the reason for a longer function.
const LONG: &str = "// long: ";
/// Pages in the root of the workspace.
const PAGES: [&str; 4] = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"];
/// List of exceptions, relative to the workspace.
const EXCEPTIONS: &str = "xtask/house.toml";

/// Exceptions with their reasons.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    /// `allow(clippy::too_many_arguments)` in the workspace.
    too_many_arguments: usize,
    /// Files by path.
    #[serde(default)]
    long_files: BTreeMap<String, String>,
    /// Functions by path and name, such as `xtask/src/plot.rs svg`.
    #[serde(default)]
    long_functions: BTreeMap<String, String>,
    /// Files of crates that name Unix without a `cfg`, by path.
    #[serde(default)]
    unix_files: BTreeMap<String, String>,
    /// Import cycles by crate and first module, such as `engine::record`.
    #[serde(default)]
    cycles: BTreeMap<String, String>,
}

/// Checks all rules and lists every fault.
///
/// # Errors
/// A rule is broken, or a file cannot be read.
pub(crate) fn check() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    let text = fs::read_to_string(root.join(EXCEPTIONS)).with_context(|| EXCEPTIONS.to_owned())?;
    let exceptions: Exceptions = toml::from_str(&text).with_context(|| EXCEPTIONS.to_owned())?;
    let sources = sources(root)?;
    let mut faults = excepted(long_files(&sources), &exceptions.long_files);
    faults.extend(excepted(long_functions(&sources), &exceptions.long_functions));
    faults.extend(allowed_arguments(&sources, exceptions.too_many_arguments));
    faults.extend(unreachable_defaults(&sources));
    faults.extend(excepted(cycles::find(&sources), &exceptions.cycles));
    faults.extend(excepted(platforms::faults(&sources), &exceptions.unix_files));
    faults.extend(unsafety::faults(root, &sources)?);
    faults.extend(paths::faults(root)?);
    faults.extend(invariants::faults(root)?);
    faults.extend(levels::faults(root)?);
    faults.extend(ignorance::faults(&sources));
    if faults.is_empty() {
        eprintln!("── house: {} files are in shape", sources.len());
        return Ok(());
    }
    for fault in &faults {
        eprintln!("{fault}");
    }
    bail!(
        "{} faults in the shape of the sources; {EXCEPTIONS} lists exceptions with their reasons",
        faults.len()
    );
}

/// Reads the sources of all members of the workspace.
fn sources(root: &Path) -> Result<Vec<Source>> {
    source_paths(root)?.into_iter().map(|path| Source::read(root, path)).collect()
}

/// Sorted paths of the sources of all members, relative to the workspace.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn source_paths(root: &Path) -> Result<Vec<String>> {
    let mut members = ["xtask", "fuzz", "book/builder"].map(|name| root.join(name)).to_vec();
    for parent in ["crates", "benchmarks"] {
        for entry in fs::read_dir(root.join(parent)).with_context(|| parent.to_owned())? {
            members.push(entry?.path());
        }
    }
    let mut files = Vec::new();
    for member in members {
        for directory in ["src", "tests", "benches", "examples"] {
            find_files(&member.join(directory), "rs", &mut files)?;
        }
    }
    Ok(relative(root, files))
}

/// Sorted paths of the Markdown pages, relative to the workspace.
///
/// # Errors
/// A directory cannot be read.
pub(crate) fn markdown_paths(root: &Path) -> Result<Vec<String>> {
    let mut files: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    for folder in ["book", "fuzz", "benchmarks"] {
        find_files(&root.join(folder), "md", &mut files)?;
    }
    Ok(relative(root, files))
}

/// Paths relative to the workspace, with slashes, sorted.
fn relative(root: &Path, files: Vec<PathBuf>) -> Vec<String> {
    let name = |path: PathBuf| path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
    let mut names: Vec<String> = files.into_iter().map(name).collect();
    names.sort();
    names
}

/// Adds a directory's files with this extension, at any depth.
fn find_files(directory: &Path, extension: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            find_files(&path, extension, found)?;
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    Ok(())
}

/// Faults by their names, without the excepted ones. Prints the exceptions that no fault needs.
fn excepted(mut found: BTreeMap<String, String>, exceptions: &BTreeMap<String, String>) -> Vec<String> {
    for name in exceptions.keys() {
        if found.remove(name).is_none() {
            eprintln!("note: {EXCEPTIONS}: {name} needs no exception any more; remove it");
        }
    }
    found.into_values().collect()
}

fn long_files(sources: &[Source]) -> BTreeMap<String, String> {
    let is_long = |source: &&Source| !source.is_test() && source.code_lines() > MAX_FILE;
    let fault = |source: &Source| {
        let fault = format!("{}: {} lines without tests, of {MAX_FILE}", source.path, source.code_lines());
        (source.path.clone(), fault)
    };
    sources.iter().filter(is_long).map(fault).collect()
}

fn long_functions(sources: &[Source]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        let path = &source.path;
        for Function { name, line, lines, comment } in source.functions() {
            if lines > MAX_FUNCTION && !comment.contains(LONG) {
                let fault = format!(
                    "{path}:{line}: {name} has {lines} lines, of {MAX_FUNCTION}; split it or give the \
                     reason: {LONG}REASON"
                );
                found.insert(format!("{path} {name}"), fault);
            }
        }
    }
    found
}

fn allowed_arguments(sources: &[Source], limit: usize) -> Vec<String> {
    let count = |source: &Source| source.code.matches("clippy::too_many_arguments").count();
    let total: usize = sources.iter().map(count).sum();
    if total <= limit {
        return Vec::new();
    }
    let named: Vec<String> = sources
        .iter()
        .filter(|source| count(source) > 0)
        .map(|source| format!("{} ({})", source.path, count(source)))
        .collect();
    vec![format!("{total} times clippy::too_many_arguments, of {limit}: {}", named.join(", "))]
}

fn unreachable_defaults(sources: &[Source]) -> Vec<String> {
    let found = sources.iter().flat_map(|source| {
        let lines = source.unreachable_defaults();
        lines
            .into_iter()
            .map(|line| format!("{}:{line}: unreachable! as a trait method's default", source.path))
    });
    found.collect()
}
