//! Import cycles between the modules of a crate.
//!
//! A module is a file. It imports the files that its `use crate::` and `use super::` lines and the
//! paths `crate::...` and `super::...` of its code name; names that a module re-exports count as
//! imports of the file that defines them. A module and the modules inside it belong together, so
//! imports between these are not counted.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// Imports of each module, by the modules' paths such as `strategy::worker`.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Finds the cycles of all crates, named by their crate and first module.
pub(super) fn find(sources: &[Source]) -> BTreeMap<String, String> {
    let mut crates: BTreeMap<&str, Vec<&Source>> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test()) {
        if let Some((name, _)) = source.path.split_once("/src/") {
            crates.entry(name).or_default().push(source);
        }
    }
    let mut found = BTreeMap::new();
    for (name, sources) in crates {
        let name = name.rsplit('/').next().unwrap_or(name);
        for cycle in cycles(&imports(&sources)) {
            let name = format!("{name}::{}", cycle[0]);
            found.insert(name.clone(), format!("{name}: import cycle of {}", cycle.join(", ")));
        }
    }
    found
}

/// Module path of a file, such as `strategy::worker`; empty for a crate's root.
fn module(path: &str) -> String {
    let inside = path.split_once("/src/").map_or(path, |(_, inside)| inside);
    let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    match inside {
        "lib" | "main" | "mod" => String::new(),
        other => other.replace('/', "::"),
    }
}

/// Imports of a crate's modules.
fn imports(sources: &[&Source]) -> Graph {
    let lists: BTreeMap<String, Vec<Use>> =
        sources.iter().map(|source| (module(&source.path), uses(&source.code_without_tests()))).collect();
    // names that a module re-exports from modules inside it
    let mut exports: BTreeMap<(String, String), String> = BTreeMap::new();
    for (module, list) in &lists {
        for Use { path, .. } in list.iter().filter(|entry| entry.is_public) {
            if let (Some(from), Some(name)) = (absolute(module, path), path.last()) {
                exports.insert((module.clone(), name.clone()), from.join("::"));
            }
        }
    }
    let mut graph = Graph::new();
    for (module, list) in &lists {
        let edges = graph.entry(module.clone()).or_default();
        for Use { path, .. } in list {
            let Some(path) = absolute(module, path) else { continue };
            let target = resolve(&path, &lists, &exports, 0);
            if !is_within(module, &target) && !is_within(&target, module) {
                edges.insert(target);
            }
        }
    }
    graph
}

/// Reports whether a module is another one or inside it.
fn is_within(module: &str, other: &str) -> bool {
    other.is_empty() || module == other || module.starts_with(&format!("{other}::"))
}

/// Path from the crate's root, of a `use` line in a module; `None` for other crates.
fn absolute(module: &str, path: &[String]) -> Option<Vec<String>> {
    let mut base: Vec<String> =
        module.split("::").filter(|part| !part.is_empty()).map(String::from).collect();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => {
            base.pop();
        }
        _ => return None,
    }
    rest = &rest[1..];
    while rest.first().is_some_and(|part| part == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend_from_slice(rest);
    Some(base)
}

/// The module that defines what a path names.
fn resolve(
    path: &[String],
    lists: &BTreeMap<String, Vec<Use>>,
    exports: &BTreeMap<(String, String), String>,
    depth: usize,
) -> String {
    let known = (0..=path.len()).rev().find(|&length| lists.contains_key(&path[..length].join("::")));
    let length = known.unwrap_or(0);
    let module = path[..length].join("::");
    let export = path.get(length).and_then(|name| exports.get(&(module.clone(), name.clone())));
    match export {
        // re-exports of re-exports end somewhere, unless a module re-exports itself
        Some(from) if depth < 8 => {
            let from: Vec<String> = from.split("::").map(String::from).collect();
            resolve(&from, lists, exports, depth + 1)
        }
        _ => module,
    }
}

/// A path that a file imports.
struct Use {
    path: Vec<String>,
    is_public: bool,
}

/// Paths of the `use` items of a file, and those that its code names where it needs them.
fn uses(code: &str) -> Vec<Use> {
    let mut found = inline_paths(code);
    let mut rest = code;
    while let Some(at) = rest.find("use ") {
        let before = rest[..at].rsplit('\n').next().unwrap_or("").trim();
        rest = &rest[at + 4..];
        let is_public = before.starts_with("pub");
        if !(before.is_empty() || is_public && !before.contains(['=', '.'])) {
            continue;
        }
        let end = rest.find(';').unwrap_or(rest.len());
        let item: String = rest[..end].split_whitespace().collect::<Vec<_>>().join(" ");
        for path in expand(&item) {
            // `x as y` imports x; a relative path of a re-export is one of the module's own
            let path = path.split(" as ").next().unwrap_or("").trim().to_owned();
            let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
            let is_own = !["crate", "self", "super"].contains(&path[0].as_str());
            if is_public && is_own {
                path.insert(0, "self".into());
            }
            if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                path.pop();
            }
            found.push(Use { path, is_public });
        }
        rest = &rest[end..];
    }
    found
}

/// Paths in the code that start at the crate or at the parent, such as `super::value::format`.
/// Those of `use` items are among them, up to the first brace, which adds no import.
fn inline_paths(code: &str) -> Vec<Use> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for start in ["crate::", "super::"] {
            for (at, _) in line.match_indices(start) {
                let before = line[..at].chars().next_back();
                if before.is_some_and(|c| is_word(c) || c == ':' || c == '$') {
                    continue;
                }
                let end = line[at..].find(|c| !is_word(c) && c != ':').map_or(line.len(), |end| at + end);
                let path = line[at..end].trim_end_matches(':').split("::").map(String::from).collect();
                found.push(Use { path, is_public: false });
            }
        }
    }
    found
}

/// Writes `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expand(item: &str) -> Vec<String> {
    let Some(open) = item.find('{') else { return vec![item.to_owned()] };
    let prefix = &item[..open];
    // a group ends its path, so that the last brace closes the first
    let inside = &item[open + 1..item.rfind('}').unwrap_or(item.len())];
    let (mut depth, mut start) = (0_usize, 0);
    let mut parts = Vec::new();
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(expand).map(|part| format!("{prefix}{part}")).collect()
}

/// Strongly connected modules, each list sorted.
fn cycles(graph: &Graph) -> Vec<Vec<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|from| (from, reachable(graph, from))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for module in graph.keys() {
        if seen.contains(module) || !reach[module].contains(module) {
            continue;
        }
        let back = |other: &&&String| reach.get(*other).is_some_and(|of| of.contains(module));
        let cycle: Vec<String> = reach[module].iter().filter(back).map(|other| (*other).clone()).collect();
        seen.extend(cycle.iter().cloned());
        found.push(cycle);
    }
    found
}

/// Modules that a module imports, and those that these import.
fn reachable<'a>(graph: &'a Graph, from: &str) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&String> = graph.get(from).into_iter().flatten().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(graph.get(module).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|(path, text)| Source::new(format!("crates/x/src/{path}"), (*text).into()))
            .collect();
        find(&sources).into_values().collect()
    }

    #[test]
    fn groups_of_imports_are_expanded() {
        assert_eq!(
            expand("crate::{a, b::{c, d}, e}"),
            ["crate::a", "crate::b::c", "crate::b::d", "crate::e"]
        );
    }

    #[test]
    fn a_cycle_through_a_re_export_is_found() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use b::B;\n");
        let cycle = found(&[
            lib,
            ("a.rs", "use crate::B;\npub struct A;\n"),
            ("b.rs", "use crate::a::A;\npub struct B;\n"),
        ]);
        assert_eq!(cycle, ["x::a: import cycle of a, b"]);
        assert!(found(&[lib, ("a.rs", "use crate::B;\n"), ("b.rs", "pub struct B;\n")]).is_empty());
    }

    #[test]
    fn a_cycle_through_a_path_in_code_is_found() {
        let cycle = found(&[
            ("a.rs", "use super::b::B;\npub fn f() {}\n"),
            ("b.rs", "pub fn g() {\n    super::a::f()\n}\n"),
        ]);
        assert_eq!(cycle, ["x::a: import cycle of a, b"]);
    }

    #[test]
    fn a_module_and_its_own_modules_are_one() {
        let files =
            [("lib.rs", "mod a;\n"), ("a/mod.rs", "use self::b::B;\n"), ("a/b.rs", "use super::A;\n")];
        assert!(found(&files).is_empty());
        let tests = [
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n"),
        ];
        assert!(found(&tests).is_empty());
    }
}
