//! Code for one system: names of Unix stand in items under a `cfg` that names a system, so that the
//! crates build on others.

use std::collections::BTreeMap;

use super::source::{Source, indent};

/// Names that do not exist on every system.
const NAMES: [&str; 4] = ["os::unix::", "os::linux::", "rustix::", "libc::"];
/// Words of a `cfg` that name a system.
const SYSTEMS: [&str; 2] = ["unix", "target_os"];
/// Beginnings of lines that continue the item of a line above.
const CONTINUATIONS: [char; 6] = ['}', ')', ']', '.', '&', '|'];

/// Files of the crates with lines that name Unix outside of such items.
pub(super) fn faults(sources: &[Source]) -> BTreeMap<String, String> {
    let files: BTreeMap<&str, &Source> =
        sources.iter().map(|source| (source.path.as_str(), source)).collect();
    let mut found = BTreeMap::new();
    let is_of_crate = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    for (path, source) in files.iter().filter(|(path, source)| is_of_crate(path) && !source.is_test()) {
        let code = source.code_without_tests();
        let lines: Vec<&str> = code.lines().collect();
        let is_bare = |at: &usize| names_unix(lines[*at]) && !is_guarded(&lines, *at);
        if let Some(at) = (0..lines.len()).find(is_bare).filter(|_| !is_guarded_module(path, &files)) {
            let fault = format!("{path}:{}: name a system above this: #[cfg(unix)]", at + 1);
            found.insert((*path).to_owned(), fault);
        }
    }
    found
}

/// Reports whether a line has one of [`NAMES`] as a whole word.
fn names_unix(line: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let begins = |at: usize| !line[..at].ends_with(is_word);
    NAMES.iter().any(|name| line.match_indices(name).any(|(at, _)| begins(at)))
}

/// Reports whether a line of formatted code, or an item or block around it, is under a `cfg` that
/// names a system.
fn is_guarded(lines: &[&str], mut at: usize) -> bool {
    loop {
        let level = indent(lines[at]);
        let above = lines[..at].iter().rev();
        let mut attributes = above.take_while(|line| line.is_empty() || line.trim_start().starts_with("#["));
        if attributes.any(|line| names_system(line)) {
            return true;
        }
        let continues = lines[at].trim_start().starts_with(CONTINUATIONS);
        let is_outside = |line: &&str| !line.is_empty() && indent(line) < level + usize::from(continues);
        match lines[..at].iter().rposition(is_outside) {
            Some(outer) => at = outer,
            None => return false,
        }
    }
}

/// Reports whether an attribute restricts its item to a system.
fn names_system(attribute: &str) -> bool {
    let names = |of: &&str| attribute.replace(&format!("not({of}"), "").contains(*of);
    attribute.contains("cfg(") && SYSTEMS.iter().any(names)
}

/// Reports whether the module of a file, or one around it, is declared under such a `cfg`.
fn is_guarded_module(path: &str, files: &BTreeMap<&str, &Source>) -> bool {
    let Some((directory, file)) = path.rsplit_once('/') else { return false };
    let (directory, name) = match (file, directory.rsplit_once('/')) {
        ("mod.rs", Some((outer, name))) => (outer, name),
        _ => (directory, file.trim_end_matches(".rs")),
    };
    let parents = ["/lib.rs", "/main.rs", "/mod.rs", ".rs"].map(|end| format!("{directory}{end}"));
    parents.iter().filter(|parent| *parent != path).any(|parent| {
        files.get(parent.as_str()).is_some_and(|source| {
            let lines: Vec<&str> = source.code.lines().collect();
            let declaration =
                lines.iter().position(|line| line.trim_end().ends_with(&format!("mod {name};")));
            declaration.is_some_and(|at| is_guarded(&lines, at) || is_guarded_module(parent, files))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(files: &[(&str, &str)]) -> usize {
        let sources: Vec<Source> =
            files.iter().map(|(path, text)| Source::new((*path).into(), (*text).into())).collect();
        faults(&sources).len()
    }

    #[test]
    fn names_of_unix_stand_below_a_cfg() {
        let bare = [
            "use std::os::unix::fs::MetadataExt;\n",
            "fn f() {\n    libc::pause();\n}\n",
            "#[cfg(unix)]\nfn f() {}\n\nfn g() {\n    rustix::a();\n}\n",
            "#[cfg(feature = \"x\")]\nuse rustix::fs;\n",
            "#[cfg(test)]\nuse a;\nuse rustix::fs;\n",
            "#[cfg(not(unix))]\nuse rustix::fs;\n",
            "use std::{\n    fs,\n    os::unix::fs::FileExt,\n};\n",
            "fn f() {\n    #[cfg(unix)]\n    a();\n    rustix::b();\n}\n",
        ];
        for text in bare {
            assert_eq!(count(&[("crates/a/src/b.rs", text)]), 1, "{text}");
        }
        let guarded = [
            "#[cfg(unix)]\nuse rustix::{\n    fs,\n    io,\n};\n",
            "#[cfg(unix)]\n// why\n#[inline]\nfn f() {\n    if a {\n        rustix::b();\n    }\n}\n",
            "#[cfg(target_os = \"linux\")]\nfn f(\n    a: u8,\n) -> u8 {\n    libc::b()\n}\n",
            "fn f() {\n    #[cfg(unix)]\n    if a {\n        b();\n    } else {\n        libc::c()\n    }\n}",
            "fn f() {\n    #[cfg(all(unix, not(miri)))]\n    let x = a\n        .b(rustix::c);\n}\n",
            "// rustix::fs\nfn f() {\n    mylibc::g(\"libc::a\");\n}\n",
            "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use std::os::unix::fs::symlink;\n}\n",
        ];
        for text in guarded {
            assert_eq!(count(&[("crates/a/src/b.rs", text)]), 0, "{text}");
        }
    }

    #[test]
    fn modules_may_be_declared_below_a_cfg() {
        let (file, text) = ("crates/a/src/b/c.rs", "use rustix::fs;\n");
        let [lib, outer] = ["crates/a/src/lib.rs", "crates/a/src/b/mod.rs"];
        let guarded = "mod a;\n#[cfg(unix)]\n";
        let with = |first: &str, second: &str| {
            let (first, second) = (format!("{first}mod b;\n"), format!("{second}pub(crate) mod c;\n"));
            count(&[(lib, &first), (outer, &second), (file, text)])
        };
        assert_eq!([with(guarded, ""), with("", guarded), with("", "")], [0, 0, 1]);
        let beside = format!("{guarded}mod c;\n");
        assert_eq!(count(&[("crates/a/src/b.rs", &beside), (file, text)]), 0);
    }
}
