//! Forbidden words in text and in identifiers.

use std::collections::BTreeMap;

/// List of forbidden words and names of constants.
pub(super) struct Words<'a> {
    words: &'a BTreeMap<String, String>,
    constants: &'a BTreeMap<String, String>,
}

impl<'a> Words<'a> {
    pub(super) fn new(words: &'a BTreeMap<String, String>, constants: &'a BTreeMap<String, String>) -> Self {
        Self { words, constants }
    }

    /// Faults of a text: a comment, a string or code. The words of an identifier are compared
    /// separately, so that `fn room_of` and `RoomSize` contain "room".
    pub(super) fn in_text(&self, text: &str) -> Vec<String> {
        let mut found = Vec::new();
        for name in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if let Some(better) = self.constant(name) {
                found.push(format!("word: {name}; use {better}"));
            }
            for word in split(name) {
                if let Some(better) = self.words.get(&word) {
                    found.push(format!("word: {word}; use {better}"));
                }
            }
        }
        found
    }

    /// Replacement of a forbidden name.
    fn constant(&self, name: &str) -> Option<&str> {
        let matches = |pattern: &str| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        self.constants.iter().find(|(pattern, _)| matches(pattern)).map(|(_, better)| better.as_str())
    }
}

/// Words of an identifier in lower case, split at underscores and capitals.
fn split(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("a word was pushed").extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase();
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_prose_and_in_identifiers() {
        let words = BTreeMap::from([("room".to_owned(), "scratch".to_owned())]);
        let constants = BTreeMap::from([("MOST_*".to_owned(), "MAX_*".to_owned())]);
        let list = Words::new(&words, &constants);
        for text in ["no Room left", "struct RoomSize", "fn room_of()", "const ROOM: u8"] {
            assert_eq!(list.in_text(text), ["word: room; use scratch"], "{text}");
        }
        assert_eq!(list.in_text("const MOST_DOTS: usize"), ["word: MOST_DOTS; use MAX_*"]);
        assert!(list.in_text("broom rooms almost MOST").is_empty());
    }
}
