//! A page: its links, anchors and blocks of commands.

use std::{collections::HashSet, fmt, fs, ops::Range, path::Path};

use anyhow::{Context, Result};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Fault of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Path of the page and number of the line, from 1.
    place: String,
    message: String,
}

impl Fault {
    /// Fault at a line, from 1, of the file at this path from the root.
    pub(crate) fn new(path: &str, line: usize, message: String) -> Self {
        Self { place: format!("{path}:{line}"), message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// Link or image.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Target as written: a path, an address, an anchor.
    pub(crate) target: String,
}

/// Fenced block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Line of the opening fence, from 1.
    pub(crate) line: usize,
    /// Language after the fence, which may be empty.
    pub(crate) language: String,
    pub(crate) text: String,
    /// Text of the HTML comment directly above the block, if there is one.
    pub(crate) comment: Option<String>,
}

/// Parsed page.
pub(crate) struct Page {
    /// Path from the root of the repository, with slashes.
    pub(crate) path: String,
    pub(crate) links: Vec<Link>,
    /// Anchors: ids of headings and of HTML elements.
    pub(crate) anchors: HashSet<String>,
    pub(crate) blocks: Vec<Block>,
}

impl Page {
    /// Reads a page.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(root: &Path, path: String) -> Result<Self> {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
        Ok(Self::parse(path, &text))
    }

    /// Parses the text of a page as mdbook does.
    pub(crate) fn parse(path: String, text: &str) -> Self {
        let lines = LineNumbers::new(text);
        let mut page = Self { path, links: Vec::new(), anchors: HashSet::new(), blocks: Vec::new() };
        let mut heading: Option<(Option<String>, String)> = None;
        let mut block: Option<Block> = None;
        let mut comment: Option<(Range<usize>, String)> = None;
        for (event, range) in Parser::new_ext(text, options()).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { id, .. }) => {
                    heading = Some((id.map(|id| id.to_string()), String::new()))
                }
                Event::End(TagEnd::Heading(_)) => {
                    if let Some((id, content)) = heading.take() {
                        page.add_anchor(id.unwrap_or_else(|| anchor(&content)));
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Link { line: lines.of(range.start), target: dest_url.to_string() });
                }
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let above = comment.take().filter(|(of, _)| text[of.end..range.start].trim().is_empty());
                    let language = info.split([',', ' ']).next().unwrap_or_default().to_owned();
                    let line = lines.of(range.start);
                    block = Some(Block {
                        line,
                        language,
                        text: String::new(),
                        comment: above.map(|(_, text)| text),
                    });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Text(part) => match (&mut block, &mut heading) {
                    (Some(block), _) => block.text.push_str(&part),
                    (None, Some((_, content))) => content.push_str(&part),
                    (None, None) => {}
                },
                Event::Code(part) => {
                    if let Some((_, content)) = &mut heading {
                        content.push_str(&part);
                    }
                }
                Event::Html(part) | Event::InlineHtml(part) => {
                    let ids = part.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next());
                    page.anchors.extend(ids.map(str::to_owned));
                    let inside = part.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
                    comment = inside.map(|inside| (range, inside.trim().to_owned()));
                }
                _ => {}
            }
        }
        page
    }

    /// Fault in this page.
    pub(crate) fn fault(&self, line: usize, message: String) -> Fault {
        Fault::new(&self.path, line, message)
    }

    /// Adds the anchor of a heading; a repeated one gets a number, as in mdbook and on GitHub.
    fn add_anchor(&mut self, id: String) {
        if self.anchors.insert(id.clone()) {
            return;
        }
        let numbered = (1..).map(|number| format!("{id}-{number}"));
        let free = numbered.into_iter().find(|id| !self.anchors.contains(id));
        self.anchors.extend(free);
    }
}

/// Extensions of Markdown that mdbook enables with `smart-punctuation = false`.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_HEADING_ATTRIBUTES
        | Options::ENABLE_DEFINITION_LIST
        | Options::ENABLE_GFM
}

/// Anchor of a heading with this text, as mdbook and GitHub form it.
fn anchor(content: &str) -> String {
    let kept = |ch: char| match ch {
        ch if ch.is_alphanumeric() || ch == '_' || ch == '-' => Some(ch),
        ch if ch.is_whitespace() => Some('-'),
        _ => None,
    };
    content.trim().to_lowercase().chars().filter_map(kept).collect()
}

/// Line numbers by byte offset.
struct LineNumbers(Vec<usize>);

impl LineNumbers {
    fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(at, _)| at).collect())
    }

    /// Line of a byte, from 1.
    fn of(&self, offset: usize) -> usize {
        self.0.partition_point(|&end| end < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_anchors_and_blocks_are_found_with_their_lines() {
        let text = "# A `b-c` d's\n\n[x](y.md#z) ![i](i.svg)\n\n# A `b-c` d's\n<a id=\"own\"></a>\n\n\
                    <!-- not run: it takes hours -->\n```console\n$ true\n```\n\n```sh\nfalse\n```\n";
        let page = Page::parse("p.md".into(), text);
        let targets: Vec<_> = page.links.iter().map(|link| (link.line, link.target.as_str())).collect();
        assert_eq!(targets, [(3, "y.md#z"), (3, "i.svg")]);
        let mut anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        anchors.sort_unstable();
        assert_eq!(anchors, ["a-b-c-ds", "a-b-c-ds-1", "own"]);
        let [first, second] = &page.blocks[..] else { panic!("{:?}", page.blocks) };
        assert_eq!((first.line, first.language.as_str(), first.text.as_str()), (9, "console", "$ true\n"));
        assert_eq!(first.comment.as_deref(), Some("not run: it takes hours"));
        assert_eq!((second.line, second.language.as_str()), (13, "sh"));
        assert_eq!(second.comment, None);
    }

    #[test]
    fn links_in_code_are_not_links() {
        assert!(Page::parse("p.md".into(), "`[x](y)`\n\n```text\n[x](y)\n```\n").links.is_empty());
    }
}
