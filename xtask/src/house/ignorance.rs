//! Words that the code of some modules must not contain, because the modules know nothing of what
//! the words name. Comments, texts and tests are free.

use super::Source;

/// Modules, words that their code must not contain, and the reason.
struct Rule {
    /// Beginnings of the paths of the modules' files.
    files: &'static [&'static str],
    words: &'static [&'static str],
    why: &'static str,
}

/// All rules.
const RULES: [Rule; 2] = [
    Rule {
        files: &["crates/loader/src/policy"],
        words: &["Feature", "Features", "FeatureData", "Host", "Matrix", "View", "TableType", "Extracted"],
        why: "a cache policy sees ids, and never a byte of a feature",
    },
    Rule {
        files: &["crates/loader/src/sampler", "crates/loader/src/subgraph"],
        words: &["thread", "spawn", "ThreadPool", "ThreadPoolBuilder", "Feature", "CachePolicy", "policy"],
        why: "a sampler starts no thread and knows no cache and no tier of features",
    },
];

/// Words in the code of modules that must not know them.
pub(super) fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for Rule { files, words, why } in RULES {
        let is_named = |source: &&Source| files.iter().any(|start| source.path.starts_with(start));
        let named: Vec<&Source> =
            sources.iter().filter(is_named).filter(|source| !source.is_test()).collect();
        if named.is_empty() {
            faults.push(format!("{}: no such files; their rule is: {why}", files.join(", ")));
        }
        for source in named {
            for (at, line) in source.code_without_tests().lines().enumerate() {
                let is_part = |c: char| c.is_alphanumeric() || c == '_';
                let found = line.split(|c| !is_part(c)).find(|word| words.contains(word));
                faults.extend(
                    found.map(|word| format!("{}:{}: names '{word}', but {why}", source.path, at + 1)),
                );
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_modules_must_not_know_are_found() {
        let found = |policy: &str, sampler: &str| {
            let file = |path: &str, text: &str| Source::new(format!("crates/loader/src/{path}"), text.into());
            let tests = "#[cfg(test)]\nmod tests {\n    use crate::Feature;\n}\n";
            faults(&[
                file(
                    "policy/fifo.rs",
                    &format!("//! Feature.\nuse graphmill_core::NodeId;\n{policy}{tests}"),
                ),
                file("sampler/mod.rs", &format!("mod device;\nuse rayon::prelude::*;\n{sampler}{tests}")),
                file("feature/mod.rs", "use crate::policy;\n"),
            ])
        };
        assert!(found("", "").is_empty());
        let one = found("use graphmill_core::Matrix;\n", "");
        assert_eq!(
            one,
            ["crates/loader/src/policy/fifo.rs:3: names 'Matrix', but a cache policy sees ids, and never \
                 a byte of a feature"]
        );
        assert_eq!(
            found("", "fn f() {\n    std::thread::scope(|_| ());\n}\nuse crate::policy::lru;\n").len(),
            2
        );
        // a rule without files checks nothing
        assert_eq!(faults(&[]).len(), 2);
    }
}
