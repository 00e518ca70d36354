//! Licences of everything that is built, and the table of direct dependencies.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::metadata::Metadata;

/// Page with a row for each direct dependency.
const TABLE: &str = "book/src/contributing/dependencies.md";

/// The part of `deny.toml` that is read here.
#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

/// Faults of licences and of the table.
///
/// # Errors
/// A file cannot be read.
pub(super) fn faults(root: &Path, metadata: &Metadata) -> Result<Vec<String>> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_string());
    let deny: Deny = toml::from_str(&read("deny.toml")?).context("deny.toml")?;
    let mut faults = Vec::new();
    for package in &metadata.packages {
        let license = package.license.as_deref().unwrap_or("none");
        if !is_allowed(license, &deny.licenses.allow) {
            let name = &package.name;
            faults.push(format!("deny.toml: the licence of {name}, {license}, is not allowed"));
        }
    }
    let mut direct: BTreeMap<&str, Direct> = BTreeMap::new();
    for member in metadata.members() {
        let short = member.name.strip_prefix("graphmill-").unwrap_or(&member.name);
        for of in member.dependencies.iter().filter(|of| of.path.is_none()) {
            let found = metadata.packages.iter().find(|package| package.name == of.name);
            let license = found.and_then(|package| package.license.as_deref());
            let row = direct.entry(&of.name).or_insert(Direct { license, members: BTreeMap::new() });
            *row.members.entry(short).or_default() |= !of.is_of_tests();
        }
    }
    faults.extend(faults_of_table(&read(TABLE)?, &direct));
    Ok(faults)
}

/// A direct dependency.
struct Direct<'a> {
    /// Licence; a dependency of another platform has none that is known.
    license: Option<&'a str>,
    /// Members of the workspace that use it, and whether they do beyond their tests.
    members: BTreeMap<&'a str, bool>,
}

impl Direct<'_> {
    /// Members that use it, as in the table.
    fn used_by(&self) -> String {
        let those = |is_built: bool| {
            let of = self.members.iter().filter(|(_, built)| **built == is_built);
            of.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        match (those(true), those(false)) {
            (built, tests) if tests.is_empty() => built,
            (built, tests) if built.is_empty() => format!("{tests} (tests)"),
            (built, tests) => format!("{built}; tests of {tests}"),
        }
    }
}

/// Faults of the table.
fn faults_of_table(table: &str, direct: &BTreeMap<&str, Direct>) -> Vec<String> {
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|line| line.starts_with("| [")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let name = cells[0].trim_start_matches('[').split(']').next().unwrap_or_default();
        rows.insert(name, cells);
    }
    let mut faults = Vec::new();
    for (name, of) in direct {
        match rows.remove(name) {
            None => faults.push(format!("{TABLE}: there is no row for {name}")),
            Some(cells) if cells.len() != 5 || cells.iter().any(|cell| cell.is_empty()) => {
                faults.push(format!("{TABLE}: the row of {name} has an empty cell"));
            }
            Some(cells) if of.license.is_some_and(|license| license != cells[4]) => {
                faults.push(format!("{TABLE}: the licence of {name} is {}", of.license.unwrap_or_default()));
            }
            Some(cells) if of.used_by() != cells[2] => {
                faults.push(format!("{TABLE}: {name} is used by {}", of.used_by()));
            }
            Some(_) => {}
        }
    }
    faults.extend(rows.into_keys().map(|name| format!("{TABLE}: {name} is no dependency; remove its row")));
    faults
}

/// Returns true if one choice of a licence expression (SPDX, or with `/` for OR) is allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    any_of(&mut words, allowed) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Licences joined by OR.
fn any_of(words: &mut Words, allowed: &BTreeSet<String>) -> bool {
    let mut is_any = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        is_any |= all_of(words, allowed);
    }
    is_any
}

/// Licences joined by AND.
fn all_of(words: &mut Words, allowed: &BTreeSet<String>) -> bool {
    let mut are_all = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        are_all &= one(words, allowed);
    }
    are_all
}

/// A licence, perhaps with an exception, or an expression in parentheses.
fn one(words: &mut Words, allowed: &BTreeSet<String>) -> bool {
    match words.next() {
        Some("(") => any_of(words, allowed) & words.next_if_eq(&")").is_some(),
        Some(name) if words.next_if_eq(&"WITH").is_some() => {
            let exception = words.next().unwrap_or_default();
            allowed.contains(&format!("{name} WITH {exception}"))
        }
        Some(name) => allowed.contains(name),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_allowed_by_any_choice() {
        let allowed = ["MIT", "MIT WITH X", "Zlib"].map(String::from).into();
        for good in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND Zlib", "MIT WITH X"] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in
            ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND GPL-3.0", "Zlib WITH X", "", "MIT MIT", "(MIT"]
        {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn the_table_has_each_direct_dependency_with_its_licence_and_members() {
        let of = |license, members: &[(&'static str, bool)]| {
            let members = members.iter().copied().collect();
            Direct { license, members }
        };
        let core = [("core", true)];
        let direct = BTreeMap::from([
            ("a", of(Some("MIT"), &core)),
            ("b", of(Some("MIT"), &core)),
            ("c", of(None, &core)),
            ("d", of(Some("MIT"), &core)),
            ("f", of(None, &[("core", true), ("data", false), ("nn", true)])),
            ("g", of(None, &[("core", false), ("data", false)])),
            ("h", of(None, &[("core", true), ("nn", true)])),
        ]);
        let table = "| crate | x |\n| [a](u) | why | core | who | MIT |\n\
                     | [b](u) | why | core | who | Zlib |\n\
                     | [c](u) | | core | who | MIT |\n| [e](u) | why | core | who | MIT |\n\
                     | [f](u) | why | core, nn; tests of data | who | MIT |\n\
                     | [g](u) | why | core, data (tests) | who | MIT |\n\
                     | [h](u) | why | core | who | MIT |\n";
        let faults = faults_of_table(table, &direct).join("\n");
        for word in [
            "the licence of b is MIT",
            "c has an empty cell",
            "no row for d",
            "e is no dependency",
            "h is used by core, nn",
        ] {
            assert!(faults.contains(word), "{faults}");
        }
        assert_eq!(faults.lines().count(), 5, "{faults}");
    }
}
