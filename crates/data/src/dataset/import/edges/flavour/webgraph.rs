//! Import of WebGraph's ASCII format (Boldi and Vigna, The WebGraph framework I, WWW 2004; class
//! `ASCIIGraph`): the first line is the number of nodes, followed by one line per node with its
//! successors, numbered from 0.

use std::path::Path;

use graphmill_core::{NodeId, Result};

use super::{
    super::{
        super::{ImportOptions, blocks::Blocks},
        chunks,
    },
    numbers::{Numbers, Token},
};
use crate::external::{Edges, Needs, Scratch};

/// Reads the edges from every node to its successors, and the number of nodes.
pub(in super::super) fn read(
    path: &Path,
    options: &ImportOptions,
    scratch: &Scratch,
) -> Result<(Edges, usize)> {
    let mut numbers = Numbers::open(path, b'#', scratch)?;
    let nodes = match (numbers.next()?, numbers.next()?) {
        (Token::Number(nodes), Token::LineEnd) => nodes,
        _ => return Err(numbers.at().error("a first line with the number of nodes alone expected")),
    };
    if nodes > u64::from(NodeId::MAX) {
        let message = format!("{nodes} nodes: too many for 32-bit ids");
        return Err(numbers.at_last_line().error(message));
    }
    let edges = scratch.edges(options.edge_options(false));
    let (text, whole) = chunks::peek(path)?;
    let numbers_of_text = text.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty()).count();
    let count = whole as f64 / text.len().max(1) as f64 * numbers_of_text as f64;
    scratch.expect(&Needs {
        nodes,
        edges: edges.directions().saturating_mul(count as u64),
        features: 0,
        weighted: false,
        estimated: true,
    })?;
    let mut edges = Blocks::new(edges);
    let mut v = 0u64;
    loop {
        match numbers.next()? {
            Token::Number(_) if v == nodes => {
                let message = format!("a line after the last of {nodes} nodes");
                return Err(numbers.at().error(message));
            }
            Token::Number(u) if u < nodes => {
                edges.push(v as NodeId, u as NodeId)?;
            }
            Token::Number(u) => {
                let message = format!("successor {u}: nodes are numbered from 0, and there are {nodes}");
                return Err(numbers.at().error(message));
            }
            Token::LineEnd => v = nodes.min(v + 1),
            Token::End if v < nodes => {
                let message = format!(
                    "the first line says {nodes} nodes, but the lines end after node {v}: is the file \
                     truncated?"
                );
                return Err(numbers.at_last_line().error(message));
            }
            Token::End => break,
        }
    }
    Ok((edges.finish()?, nodes as usize))
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{damage, edges, run, text},
        *,
    };

    #[test]
    fn successor_lines_become_edges() {
        let dataset = text("cnr.graph-txt", "4\n1 2 \n\n0 2\n", &ImportOptions::default());
        assert!(
            dataset
                .unwrap_err()
                .contains("line 4: the first line says 4 nodes, but the lines end after node 3")
        );
        for end in ["\n\n", "\n \n"] {
            let content = format!("4\n1 2 \n\n0 2{end}");
            let dataset = text("cnr.graph-txt", &content, &ImportOptions::default()).unwrap();
            assert_eq!((dataset.num_nodes(), dataset.name.as_str()), (4, "cnr"));
            assert_eq!(edges(&dataset), [(2, 0), (0, 1), (0, 2), (2, 2)]);
        }
        let none = text("a.graph-txt", "0\n", &ImportOptions::default()).unwrap();
        assert_eq!(none.num_nodes(), 0);
    }

    #[test]
    fn errors_contain_the_line() {
        let fails = |content: &str, why: &str| {
            let error = text("a.graph-txt", content, &ImportOptions::default()).unwrap_err();
            assert!(error.contains("a.graph-txt") && error.contains(why), "{content}: {error}");
        };
        fails("", "line 1: a first line with the number of nodes");
        fails("2 1\n", "line 1: a first line");
        fails("9999999999\n", "line 1: 9999999999 nodes");
        fails("2\n0 2\n1\n", "line 2: successor 2");
        fails("2\n0\n1\n0\n", "line 4: a line after the last of 2 nodes");
        fails("2\n0\n-1\n", "line 3: '-'");
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.graph-txt");
        std::fs::write(&path, "3\n1\n2 0\n1").unwrap();
        damage(&path, &path, false);
        assert!(run(&path, &ImportOptions::default()).is_ok());
    }
}
