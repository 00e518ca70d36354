//! Faults of a Rust file. Formatted code is assumed, as `cargo fmt --check` ensures.

use super::{Fault, MAX_COMMENT, is_exempt, words::Words};
use crate::house::source::skip;

/// First words that open a relative clause or a question instead of a noun phrase or a verb.
const OPENINGS: [&str; 9] =
    ["What", "Whatever", "Who", "Whoever", "Which", "Whether", "Where", "How", "When"];
/// Sections of the header of an algorithm's module.
const SECTIONS: [&str; 3] = ["# Algorithm", "# Source", "# Cost"];
/// Comment that says nothing about its item.
const POINTER: &str = "See the module's text.";

/// Finds all faults of a file whose code has at most `limit` columns.
pub(super) fn faults(text: &str, limit: usize, words: &Words) -> Vec<Fault> {
    let mut faults = comment_faults(text);
    faults.extend(section_faults(text));
    let raw = raw_lines(text);
    for (at, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > limit && !raw[at] && !line.trim_start().starts_with("//") {
            faults.push(Fault { line: at + 1, message: format!("length: {columns} columns, of {limit}") });
        }
        // Addresses and paths are not prose.
        if !line.contains("://") {
            faults.extend(words.in_text(line).into_iter().map(|message| Fault { line: at + 1, message }));
        }
    }
    faults.sort_by_key(|fault| fault.line);
    faults
}

/// Kind of a comment line and its text: `//!`, `///` or `//`.
fn comment(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let kind = ["//!", "///", "//"].into_iter().find(|kind| line.starts_with(kind))?;
    Some((kind, line[kind.len()..].trim()))
}

/// Faults of single comment lines: openings, length and pointers.
fn comment_faults(text: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    let (mut above, mut fenced) = (None, false);
    for (at, line) in text.lines().enumerate() {
        let mut add = |message| faults.push(Fault { line: at + 1, message });
        let here = comment(line);
        if let Some((kind, said)) = here {
            let is_fence = said.starts_with("```");
            fenced ^= is_fence;
            let columns = line.chars().count();
            if columns > MAX_COMMENT && !fenced && !is_fence && !is_exempt(said) {
                add(format!("length: {columns} columns, of {MAX_COMMENT}"));
            }
            let first = said.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            if kind != "//" && above != Some(kind) && OPENINGS.contains(&first) {
                add(format!("opening: a doc comment begins with {first}; begin with a noun or a verb"));
            }
            if said == POINTER {
                add(format!("pointer: '{POINTER}'; describe the item"));
            }
        } else {
            fenced = false;
        }
        above = here.map(|(kind, _)| kind);
    }
    faults
}

/// Missing sections of the header of an algorithm's module.
fn section_faults(text: &str) -> Vec<Fault> {
    let header: Vec<&str> =
        text.lines().map_while(comment).filter(|(kind, _)| *kind == "//!").map(|(_, said)| said).collect();
    if !header.contains(&SECTIONS[0]) && !cites_paper(&header.join(" ")) {
        return Vec::new();
    }
    let missing = SECTIONS.into_iter().filter(|section| !header.contains(section));
    missing
        .map(|section| Fault { line: 1, message: format!("sections: an algorithm without '{section}'") })
        .collect()
}

/// Returns true if a text has a title of several words in italics, followed by a year.
fn cites_paper(text: &str) -> bool {
    let parts: Vec<&str> = text.split('*').collect();
    let is_title =
        |part: &&str| part.matches(' ').count() >= 2 && !part.starts_with(' ') && !part.ends_with(' ');
    let has_year = |part: &str| {
        let numbers = part.split(|c: char| !c.is_ascii_digit());
        numbers.filter(|number| number.len() == 4).any(|year| ("1950".."2100").contains(&year))
    };
    let italics = parts.iter().enumerate().skip(1).step_by(2);
    italics
        .filter(|(_, part)| is_title(part))
        .any(|(at, _)| parts.get(at + 1).is_some_and(|after| has_year(after.get(..60).unwrap_or(after))))
}

/// Lines that are part of a raw string.
fn raw_lines(text: &str) -> Vec<bool> {
    let mut raw = vec![false; text.lines().count()];
    let (mut at, mut line) = (0, 0);
    while at < text.len() {
        let end = skip(text, at);
        let next = if end > at { end } else { at + text[at..].chars().next().map_or(1, char::len_utf8) };
        let lines = text[at..next].matches('\n').count();
        if end > at && (text[at..].starts_with('r') || text[at..].starts_with("br")) {
            let last = (line + lines).min(raw.len() - 1);
            raw[line..=last].fill(true);
        }
        line += lines;
        at = next;
    }
    raw
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn messages(text: &str) -> Vec<(usize, String)> {
        let words = BTreeMap::from([("told".to_owned(), "reported".to_owned())]);
        let none = BTreeMap::new();
        let found = faults(text, 110, &Words::new(&words, &none));
        found.into_iter().map(|fault| (fault.line, fault.message)).collect()
    }

    fn kinds(text: &str) -> Vec<(usize, String)> {
        let kind = |message: String| message.split(':').next().unwrap_or_default().to_owned();
        messages(text).into_iter().map(|(line, message)| (line, kind(message))).collect()
    }

    #[test]
    fn interrogative_openings_of_doc_comments_are_faults() {
        let text = "/// Who waits.\n/// What follows is no opening.\nfn a() {}\n/// Number of nodes.\n// \
            Where it is.\nfn b() {}\n";
        assert_eq!(kinds(text), [(1, "opening".into())]);
    }

    #[test]
    fn long_lines_are_faults_except_links_tables_fences_and_raw_strings() {
        let long = "a".repeat(100);
        let text = format!(
            "//! | {long} |\n/// ```\n/// {long}\n/// ```\n/// https://{long}\n/// {long}\n\
             let a = r\"{long}{long}\n{long}{long}\";\nlet b = \"{}\";\n",
            &long[20..]
        );
        assert_eq!(kinds(&text), [(6, "length".into())]);
        assert_eq!(kinds(&format!("let b = \"{long}{long}\";\n")), [(1, "length".into())]);
    }

    #[test]
    fn pointers_and_forbidden_words_are_faults() {
        let text =
            "/// See the module's text.\nstruct A;\nfn told() {\n    print(\"was told\"); // told\n}\n";
        assert_eq!(
            kinds(text),
            [(1, "pointer".into()), (3, "word".into()), (4, "word".into()), (4, "word".into())]
        );
        assert_eq!(messages(text)[1].1, "word: told; use reported");
    }

    #[test]
    fn algorithms_need_their_sections() {
        let cited = "//! Greedy (A and B, *A title of words*, KDD 2012).\n\nfn a() {}\n";
        assert_eq!(kinds(cited).len(), 3);
        let headed =
            "//! Greedy.\n//!\n//! # Algorithm\n//!\n//! # Source\n//!\n//! *A title of words*, KDD 2012.\n";
        assert_eq!(messages(headed), [(1, "sections: an algorithm without '# Cost'".to_owned())]);
        assert!(kinds(&format!("{headed}//!\n//! # Cost\n")).is_empty());
        assert!(kinds("//! Weights (`a * b * c`), from 2012.\n").is_empty());
    }
}
