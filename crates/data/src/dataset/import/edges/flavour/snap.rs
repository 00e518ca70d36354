//! SNAP edge lists (Leskovec and Krevl, SNAP datasets, 2014): a plain list that begins with comments, one of which counts
//! `# Nodes: N Edges: M`. The edges are the lines, and the nodes those that stand in one; the ids may leave gaps.

use std::{io::Read, path::Path};

use graphmill_core::{Result, place::At};

use super::super::unpack::Unpacked;

/// Comments are looked through so far.
const HEAD: u64 = 1 << 16;

/// What the comment counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Header {
    pub(in super::super) nodes: usize,
    pub(in super::super) edges: u64,
}

/// The counts in the comments that `path` begins with, where there are any.
///
/// # Errors
/// The file cannot be read.
pub(in super::super) fn header(path: &Path) -> Result<Option<Header>> {
    let mut head = Vec::new();
    let read = Unpacked::open(path, 1 << 12)?.take(HEAD).read_to_end(&mut head);
    read.map_err(|e| At::new(path, "beginning").error(format!("cannot be read: {e}")))?;
    let comments = head.split(|&b| b == b'\n').take_while(|line| line.starts_with(b"#"));
    Ok(comments.filter_map(|line| counts(std::str::from_utf8(line).ok()?)).next())
}

/// `# Nodes: 18772 Edges: 396160`
fn counts(line: &str) -> Option<Header> {
    let after = |word: &str| line.split_once(word)?.1.split_ascii_whitespace().next()?.parse::<u64>().ok();
    Some(Header { nodes: after("Nodes:")?.try_into().ok()?, edges: after("Edges:")? })
}

impl Header {
    /// That there are as many edges as the comment says.
    pub(in super::super) fn check(self, lines: u64, path: &Path) -> Result<()> {
        if lines == self.edges {
            return Ok(());
        }
        Err(At::new(path, "header").error(format!(
            "{} edges, but there are {lines} lines: the file is damaged or was changed; flavour plain reads it all the same",
            self.edges
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_among_the_comments() {
        let found = |nodes, edges| Some(Header { nodes, edges });
        assert_eq!(counts("# Nodes: 18772 Edges: 396160"), found(18_772, 396_160));
        assert_eq!(counts("#Nodes:3\tEdges: 1 x\r"), found(3, 1));
        for line in ["# Nodes: Edges: 3", "# Nodes: 3", "# Edges: 3", "# Nodes: x Edges: 1", "#"] {
            assert_eq!(counts(line), None, "{line}");
        }
        assert!(header(Path::new("absent")).unwrap_err().to_string().contains("cannot open"));
    }
}
