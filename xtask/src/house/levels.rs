//! Levels of the crates: the table of ARCHITECTURE.md gives them, and the manifests of `crates/`
//! keep them. A crate imports only crates of lower levels.
//!
//! Crates outside of `crates/` build on those in it, so only crates of the highest level may import
//! them. Dependencies of tests (`dev-dependencies`) are free.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};

/// Page with the table.
const PAGE: &str = "ARCHITECTURE.md";
/// Heading above the table.
const HEADING: &str = "## Crates";
/// Directory of the crates.
const CRATES: &str = "crates";
/// Beginning of the crates' names, which the table and the directories omit.
const PREFIX: &str = "graphmill-";
/// Tables of a manifest that list dependencies of a crate's own code.
const DEPENDENCIES: [&str; 2] = ["dependencies", "build-dependencies"];

/// Imports that break the levels, and crates that have no level.
///
/// # Errors
/// The page or a manifest cannot be read.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let page = fs::read_to_string(root.join(PAGE)).with_context(|| PAGE.to_owned())?;
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(root.join(CRATES)).with_context(|| CRATES.to_owned())? {
        let entry = entry?;
        let path = entry.path().join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let manifest: toml::Table = text.parse().with_context(|| path.display().to_string())?;
        crates.insert(entry.file_name().to_string_lossy().into_owned(), imports(&manifest));
    }
    Ok(faults_of(&levels(&page), &crates))
}

/// Faults of the imports of all crates.
fn faults_of(levels: &BTreeMap<String, u32>, crates: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let highest = levels.values().max().copied().unwrap_or_default();
    let mut faults = Vec::new();
    for (name, imports) in crates {
        let Some(&level) = levels.get(name) else {
            faults.push(format!("{PAGE}: the table below '{HEADING}' has no level of {CRATES}/{name}"));
            continue;
        };
        for import in imports {
            let (is_lower, of) = match levels.get(import) {
                Some(&other) => (other < level, format!("level {other}")),
                None => (level == highest, format!("no level, as it is outside of {CRATES}/")),
            };
            if !is_lower {
                faults.push(format!(
                    "{CRATES}/{name}/Cargo.toml: level {level} imports {import} of {of}; a crate imports \
                     only crates of lower levels ({PAGE})"
                ));
            }
        }
    }
    let unknown = levels.keys().filter(|name| !crates.contains_key(*name));
    faults.extend(unknown.map(|name| format!("{PAGE}: {CRATES}/{name} does not exist")));
    faults
}

/// Levels of the table: rows of a name in backticks and a number.
fn levels(page: &str) -> BTreeMap<String, u32> {
    let section = page.split_once(HEADING).map_or("", |(_, rest)| rest);
    let section = section.split("\n## ").next().unwrap_or("");
    let row = |line: &str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name.to_owned(), cells.next()?.parse().ok()?))
    };
    section.lines().filter_map(row).collect()
}

/// Crates of the project that a manifest names for its own code, on any system.
fn imports(manifest: &toml::Table) -> BTreeSet<String> {
    let systems = manifest.get("target").and_then(toml::Value::as_table);
    let systems = systems.into_iter().flat_map(|systems| systems.values().filter_map(toml::Value::as_table));
    let lists = [manifest].into_iter().chain(systems).flat_map(|of| {
        DEPENDENCIES.iter().filter_map(move |name| of.get(*name)).filter_map(toml::Value::as_table)
    });
    let name = |(name, value): (&String, &toml::Value)| {
        let package = value.get("package").and_then(toml::Value::as_str).unwrap_or(name);
        let is_own = package == PREFIX.trim_end_matches('-');
        package.strip_prefix(PREFIX).or(is_own.then_some(package)).map(String::from)
    };
    lists.flatten().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_TEXT: &str = "## Crates\n\n| crate | level | holds |\n| --- | --- | --- |\n\
                             | `core` | 1 | a |\n| `nn` | 2 | b |\n| `loader` | 2 | c |\n\
                             | `graphmill` | 3 | d |\n\n\
                             ## Next\n\n| `x` | 9 | e |\n";

    fn of(manifest: &str) -> BTreeSet<String> {
        imports(&manifest.parse().unwrap())
    }

    fn found(name: &str, manifest: &str) -> Vec<String> {
        let levels = levels(PAGE_TEXT);
        let mut crates: BTreeMap<_, _> = levels.keys().map(|name| (name.clone(), BTreeSet::new())).collect();
        crates.insert(name.into(), of(manifest));
        faults_of(&levels, &crates)
    }

    #[test]
    fn imports_of_the_same_and_of_higher_levels_are_found() {
        let lower = "[dependencies]\ngraphmill-core.workspace = true\nserde = \"1\"\n";
        assert!(found("nn", lower).is_empty());
        for (manifest, import) in [
            ("[dependencies]\ngraphmill-loader.workspace = true\n", "imports loader of level 2"),
            ("[dependencies]\ngraphmill = { path = \"..\" }\n", "imports graphmill of level 3"),
            ("[build-dependencies]\ngraphmill-loader = \"1\"\n", "imports loader of level 2"),
            ("[target.'cfg(unix)'.dependencies]\ngraphmill-loader = \"1\"\n", "imports loader of level 2"),
            ("[dependencies]\nl = { package = \"graphmill-loader\" }\n", "imports loader of level 2"),
            ("[dependencies]\ngraphmill-papers = \"1\"\n", "imports papers of no level"),
        ] {
            let found = found("nn", manifest);
            assert!(found.len() == 1 && found[0].contains(import), "{found:?}");
        }
        let tests = "[dev-dependencies]\ngraphmill-loader.workspace = true\n";
        assert!(found("nn", tests).is_empty());
        assert!(found("graphmill", "[dependencies]\ngraphmill-papers = \"1\"\n").is_empty());
    }

    #[test]
    fn every_crate_has_a_level() {
        let found = found("plan", "");
        assert!(found.len() == 1 && found[0].contains("no level of crates/plan"), "{found:?}");
        let levels = levels(PAGE_TEXT);
        assert_eq!(levels.len(), 4);
        assert_eq!(faults_of(&levels, &BTreeMap::new()).len(), 4);
    }
}
