//! A Rust file: its code without comments and strings, and the functions and traits in it. No full
//! parser: formatted code is assumed, as `cargo fmt --check` ensures.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context, Result};

/// A source file.
pub(super) struct Source {
    /// Path relative to the workspace.
    pub(super) path: String,
    /// Text as written.
    text: String,
    /// Text with comments and the contents of strings blanked, line by line.
    pub(super) code: String,
}

/// A function of a file.
pub(super) struct Function {
    pub(super) name: String,
    /// First line, from 1.
    pub(super) line: usize,
    pub(super) lines: usize,
    /// Comments and attributes directly above it.
    pub(super) comment: String,
}

impl Source {
    /// Reads the file at `path`, relative to the workspace.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(root: &Path, path: String) -> Result<Self> {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        Ok(Self::new(path, text))
    }

    /// A file of this text.
    pub(super) fn new(path: String, text: String) -> Self {
        let code = blank(&text);
        Self { path, text, code }
    }

    /// Reports whether the whole file is a test or a benchmark.
    pub(super) fn is_test(&self) -> bool {
        ["/tests/", "/benches/", "/tests.rs", "_tests.rs"].iter().any(|part| self.path.contains(part))
    }

    /// Lines before the file's own tests.
    pub(super) fn code_lines(&self) -> usize {
        let lines: Vec<&str> = self.code.lines().collect();
        let is_shared =
            |line: &str| line.starts_with("pub(") && line.contains(") mod ") && line.ends_with('{');
        let is_module = |line: &str| line.starts_with("mod ") || is_shared(line);
        let is_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && is_module(pair[1]);
        lines.windows(2).position(is_tests).unwrap_or(lines.len())
    }

    /// Code before the file's own tests.
    pub(super) fn code_without_tests(&self) -> String {
        self.code.lines().take(self.code_lines()).collect::<Vec<_>>().join("\n")
    }

    /// Number of `unsafe` blocks, functions, implementations and foreign blocks.
    pub(super) fn unsafe_uses(&self) -> usize {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        self.code.split(|c| !is_word(c)).filter(|word| *word == "unsafe").count()
    }

    /// Reasons for which the file allows unsafe code; an attribute without a reason gives "".
    pub(super) fn unsafe_reasons(&self) -> BTreeSet<&str> {
        let attributes = self.text.lines().filter_map(|line| {
            let attribute = line.trim_start().strip_prefix('#')?.trim_start_matches('!');
            attribute.strip_prefix("[allow(unsafe_code")
        });
        attributes.map(quoted_reason).collect()
    }

    /// Reports whether the file, a crate's root, forbids unsafe code.
    pub(super) fn forbids_unsafe(&self) -> bool {
        self.code.lines().any(|line| line == "#![forbid(unsafe_code)]")
    }

    /// Functions before the file's own tests.
    pub(super) fn functions(&self) -> Vec<Function> {
        let lines: Vec<&str> = self.code.lines().take(self.code_lines()).collect();
        let text: Vec<&str> = self.text.lines().collect();
        let mut found = Vec::new();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = function_name(line) else { continue };
            let indent = indent(line);
            let is_end = |line: &&str| indent == self::indent(line) && line.trim_start().starts_with('}');
            // one line, or a signature without a body
            let ends_at_once = |line: &str| line.ends_with(';') || line.ends_with('}');
            let length = if ends_at_once(line) {
                1
            } else {
                let rest = lines[at + 1..].iter();
                let last = rest.clone().position(is_end).map_or(1, |end| end + 2);
                let signature =
                    rest.take(last).position(|line| self::indent(line) == indent && line.ends_with(';'));
                signature.map_or(last, |end| end + 2)
            };
            let above = text[..at].iter().rev();
            let above = above.take_while(|line| line.trim_start().starts_with(['/', '#']));
            let comment = above.copied().collect::<Vec<_>>().join("\n");
            found.push(Function { name, line: at + 1, lines: length, comment });
        }
        found
    }

    /// Lines, from 1, of traits' methods that are `unreachable!` by default.
    pub(super) fn unreachable_defaults(&self) -> Vec<usize> {
        let mut found = Vec::new();
        let mut inside = None;
        for (at, line) in self.code.lines().enumerate() {
            let word = line.trim_start().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            match inside {
                None if word.starts_with("trait ") && line.ends_with('{') => inside = Some(indent(line)),
                Some(indent) if self::indent(line) == indent && line.trim_start().starts_with('}') => {
                    inside = None
                }
                Some(_) if line.contains("unreachable!") => found.push(at + 1),
                _ => {}
            }
        }
        found
    }
}

/// Reason that follows the name of an allowed lint, or "".
fn quoted_reason(rest: &str) -> &str {
    let text = rest.strip_prefix(", reason = \"").unwrap_or("");
    text.split_once('"').map_or("", |(reason, _)| reason)
}

/// Width of the blanks before a line's first character.
pub(super) fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Name of the function whose definition begins on a line.
fn function_name(line: &str) -> Option<String> {
    let mut words = line.trim_start().split(' ');
    loop {
        match words.next()? {
            "fn" => break,
            "pub" | "const" | "async" | "unsafe" | "extern" | "\"\"" => {}
            word if word.starts_with("pub(") || word.starts_with("in") => {}
            _ => return None,
        }
    }
    let name = words.next()?;
    Some(name.split(['(', '<']).next()?.to_owned())
}

/// Replaces comments and the contents of strings and characters by blanks.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = skip(text, at);
        if end > at {
            let delimited = bytes[at] != b'/';
            let skipped = text[at..end].chars().filter(|&c| c == '\n').collect::<String>();
            code.push_str(if delimited { "\"\"" } else { "" });
            code.push_str(&skipped);
            at = end;
        } else {
            let c = text[at..].chars().next().expect("the position is within the text");
            code.push(c);
            at += c.len_utf8();
        }
    }
    // a comment leaves blanks behind the code before it
    code.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// End of the comment, string or character that begins here, or `at` if none does.
pub(crate) fn skip(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let before = text[..at].chars().next_back();
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return at + rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return at + rest.find("*/").map_or(rest.len(), |end| end + 2);
    }
    if !in_word && (rest.starts_with("r\"") || rest.starts_with("r#") || rest.starts_with("br")) {
        let prefix = rest.trim_start_matches('b').strip_prefix('r').unwrap_or(rest);
        let hashes = prefix.len() - prefix.trim_start_matches('#').len();
        if prefix[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let start = rest.len() - prefix.len() + hashes + 1;
            return at + rest[start..].find(&close).map_or(rest.len(), |end| start + end + close.len());
        }
    }
    if let Some(text) = rest.strip_prefix('"') {
        let mut escaped = false;
        let end = text.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        return at + end.map_or(rest.len(), |end| end + 2);
    }
    if rest.starts_with("b'") && !in_word {
        return skip_character(text, at + 1).unwrap_or(at);
    }
    if rest.starts_with('\'') && !in_word {
        return skip_character(text, at).unwrap_or(at);
    }
    at
}

/// End of the character whose quote is here; `None` for a lifetime.
fn skip_character(text: &str, at: usize) -> Option<usize> {
    let rest = &text[at..];
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((next, escaped))) => {
            let from = next + escaped.len_utf8();
            rest[from..].find('\'').map(|end| at + from + end + 1)
        }
        (Some(_), Some((close, '\''))) => Some(at + close + 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blanked_and_lines_stay() {
        let text = "let a = \"b // \
            {\"; // c\nlet d = '{'; let e: &'static str = r#\"\n}\"#;\n/* f\n*/ g('\\'', b'\"')";
        assert_eq!(
            blank(text),
            "let a = \"\";\nlet d = \"\"; let e: &'static str = \"\"\n;\n\n g(\"\", \"\")"
        );
    }

    #[test]
    fn functions_and_their_lengths_are_found() {
        let text = "// long: a table\n#[inline]\npub fn a() {\n    if b {\n    }\n}\n\ntrait T \
            {\n    fn c(&self);\n    \
                    fn d(&self) {\n        unreachable!()\n    }\n}\n\n#[cfg(test)]\nmod tests \
                    {\n    fn e() {\n    }\n}\n";
        let source = Source::new("crates/x/src/lib.rs".into(), text.into());
        let found: Vec<_> = source.functions().into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        assert_eq!(found, [("a".to_owned(), 3, 4), ("c".to_owned(), 9, 1), ("d".to_owned(), 10, 3)]);
        assert!(source.functions()[0].comment.contains("// long: a table"));
        assert_eq!(source.unreachable_defaults(), [11]);
    }
}
