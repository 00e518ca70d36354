//! SNAP edge lists (Leskovec and Krevl, SNAP datasets, 2014): a plain list that begins with
//! comments, one of which is `# Nodes: N Edges: M`. Each other line is an edge, and the nodes are
//! those that occur in an edge; the ids may leave gaps.

use std::{io::Read, path::Path};

use graphmill_core::{Result, location::Location};

use super::super::unpack::Unpacked;

/// Bytes at the beginning of the file that are searched for the comment.
const HEAD: u64 = 1 << 16;

/// Counts in the comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Header {
    pub(in super::super) nodes: usize,
    pub(in super::super) edges: u64,
}

/// Reads the counts in the comments at the beginning of `path`, if present.
///
/// # Errors
/// The file cannot be read.
pub(in super::super) fn header(path: &Path) -> Result<Option<Header>> {
    let mut head = Vec::new();
    let read = Unpacked::open(path, 1 << 12)?.take(HEAD).read_to_end(&mut head);
    read.map_err(|e| Location::new(path, "beginning").error(format!("cannot be read: {e}")))?;
    let comments = head.split(|&b| b == b'\n').take_while(|line| line.starts_with(b"#"));
    Ok(comments.filter_map(|line| counts(std::str::from_utf8(line).ok()?)).next())
}

/// `# Nodes: 18772 Edges: 396160`
fn counts(line: &str) -> Option<Header> {
    let after = |word: &str| line.split_once(word)?.1.split_ascii_whitespace().next()?.parse::<u64>().ok();
    Some(Header { nodes: after("Nodes:")?.try_into().ok()?, edges: after("Edges:")? })
}

impl Header {
    /// Checks that the number of edges matches the comment.
    pub(in super::super) fn check(self, lines: u64, path: &Path) -> Result<()> {
        if lines == self.edges {
            return Ok(());
        }
        Err(Location::new(path, "header").error(format!(
            "{} edges, but there are {lines} lines: the file is damaged or was changed; pass flavour plain \
             to skip this check",
            self.edges
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_counts_are_found_among_the_comments() {
        let found = |nodes, edges| Some(Header { nodes, edges });
        assert_eq!(counts("# Nodes: 18772 Edges: 396160"), found(18_772, 396_160));
        assert_eq!(counts("#Nodes:3\tEdges: 1 x\r"), found(3, 1));
        for line in ["# Nodes: Edges: 3", "# Nodes: 3", "# Edges: 3", "# Nodes: x Edges: 1", "#"] {
            assert_eq!(counts(line), None, "{line}");
        }
        assert!(header(Path::new("absent")).unwrap_err().to_string().contains("cannot open"));
    }
}
