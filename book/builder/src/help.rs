//! Parsed help of a command (`graphmill COMMAND --help`), in the format of clap.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};

/// Columns before which a line of a list is a name, not a text.
const TEXT_COLUMN: usize = 10;

/// Help of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Help {
    /// Purpose of the command.
    pub(crate) about: String,
    /// Forms of the command, a line each.
    pub(crate) usage: Vec<String>,
    /// Lists: commands, arguments and options by heading.
    pub(crate) sections: Vec<Section>,
    /// Lines below the lists.
    pub(crate) notes: Vec<String>,
}

/// List with its heading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) items: Vec<Item>,
}

/// Option, argument or command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    /// Name with the placeholder of its value, such as `--fanout <K,K>`.
    pub(crate) name: String,
    /// Text without the default.
    pub(crate) text: String,
    pub(crate) default: Option<String>,
}

impl Item {
    /// Name without placeholder: `--fanout`. Of an example, which may have options, the program.
    pub(crate) fn flag(&self) -> &str {
        let start = self.name.find("--").filter(|_| self.name.starts_with('-')).unwrap_or(0);
        self.name[start..].split([' ', '[', '=']).next().unwrap_or(&self.name)
    }
}

/// Reads the help of a command; no words are those of the program itself.
///
/// # Errors
/// The program cannot be run, or its help has another format.
pub(crate) fn read(program: &Path, words: &[&str]) -> Result<Help> {
    let mut command = Command::new(program);
    command.args(words).arg("--help").env("COLUMNS", "100");
    let output = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    let help = parse(&String::from_utf8(output.stdout)?);
    if help.usage.is_empty() {
        bail!("the help of `graphmill {}` has no usage", words.join(" "));
    }
    Ok(help)
}

/// Parses a help text.
fn parse(text: &str) -> Help {
    let mut help = Help::default();
    let mut is_usage = false;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let word = line.trim();
        if let Some(usage) = line.strip_prefix("Usage: ") {
            help.usage.push(usage.to_owned());
            is_usage = true;
        } else if word.is_empty() {
            is_usage = false;
        } else if is_usage {
            help.usage.push(word.to_owned());
        } else if help.usage.is_empty() {
            append(&mut help.about, word);
        } else if indent == 0 && word.ends_with(':') {
            help.sections.push(Section { heading: word.trim_end_matches(':').to_owned(), items: Vec::new() });
        } else if indent == 0 {
            help.notes.push(word.to_owned());
        } else if let Some(section) = help.sections.last_mut() {
            add_line(section, indent, word);
        }
    }
    for item in help.sections.iter_mut().flat_map(|section| &mut section.items) {
        split_default(item);
    }
    help
}

/// Adds a line to a list: a name, perhaps with its text in a second column, or more text.
fn add_line(section: &mut Section, indent: usize, line: &str) {
    if indent < TEXT_COLUMN {
        let (name, text) = line.split_once("  ").unwrap_or((line, ""));
        let (name, text) = (name.to_owned(), text.trim().to_owned());
        section.items.push(Item { name, text, default: None });
    } else if let Some(item) = section.items.last_mut() {
        append(&mut item.text, line);
    }
}

fn append(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line);
}

/// Moves `[default: X]` out of the text.
fn split_default(item: &mut Item) {
    let Some((before, rest)) = item.text.split_once("[default: ") else { return };
    let Some((default, after)) = rest.split_once(']') else { return };
    item.default = Some(default.to_owned());
    item.text = [before.trim(), after.trim()].join(" ").trim().to_owned();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, text: &str, default: Option<&str>) -> Item {
        Item { name: name.into(), text: text.into(), default: default.map(Into::into) }
    }

    #[test]
    fn long_help_is_joined_and_defaults_are_split_off() {
        let text = [
            "Does it\n\nUsage: g x [OPTIONS] <RUN>\n       g x <COMMAND>\n",
            "Arguments:\n  <RUN>\n          Run\n",
            "Options:\n  -q, --quiet\n          No bars\n",
            "      --threads <N>\n          Threads; 0\n          for all\n\n          [default: 0]\n",
            "Data:\n      --metric[=<BOOL>]\n          Score [default: a\n          b]\n",
            "More: x\n",
        ];
        let help = parse(&text.join("\n"));
        assert_eq!((help.about.as_str(), help.notes), ("Does it", vec!["More: x".to_owned()]));
        assert_eq!(help.usage, ["g x [OPTIONS] <RUN>", "g x <COMMAND>"]);
        let options =
            [item("-q, --quiet", "No bars", None), item("--threads <N>", "Threads; 0 for all", Some("0"))];
        let sections = [
            ("Arguments", &[item("<RUN>", "Run", None)][..]),
            ("Options", &options),
            ("Data", &[item("--metric[=<BOOL>]", "Score", Some("a b"))]),
        ];
        let expected =
            sections.map(|(heading, items)| Section { heading: heading.into(), items: items.to_vec() });
        assert_eq!(help.sections, expected);
        assert_eq!([options[0].flag(), expected[2].items[0].flag()], ["--quiet", "--metric"]);
        assert_eq!(item("graphmill plan data --model tgn", "", None).flag(), "graphmill");
    }

    #[test]
    fn a_colon_at_the_end_of_a_line_of_the_purpose_is_not_a_heading() {
        let help =
            parse("Predicts at a time:\nrows have it\n\nUsage: g\n\nOptions:\n  -q, --quiet  No bars\n");
        assert_eq!(help.about, "Predicts at a time: rows have it");
        assert_eq!(help.sections.len(), 1);
    }

    #[test]
    fn short_help_has_two_columns() {
        let help =
            parse("A\n\nUsage: g\n\nCommands:\n  train     Train a\n            model\n  info      Show\n");
        assert_eq!(
            help.sections[0].items,
            [item("train", "Train a model", None), item("info", "Show", None)]
        );
    }
}
