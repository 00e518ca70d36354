//! Import of METIS graph files (Karypis and Kumar, METIS manual, section 4.5.1): a header `n m [fmt
//! [ncon]]`, then one line per node with its neighbours, numbered from 1; lines beginning with `%`
//! are comments, an empty line is a node without neighbours. `fmt` has three digits: nodes have
//! sizes, nodes have `ncon` weights, edges have weights. Edge weights are read; sizes and weights
//! of nodes are skipped.
//!
//! Each of the `m` edges is listed at both of its ends. If `u` is listed at `v` but not `v` at `u`,
//! the import fails unless `undirected` is set. The check sums a hash of the edge over all entries,
//! added at its smaller end and subtracted at its larger, which is zero exactly for symmetric lists
//! (up to one in 2^64).

use std::{cmp::Ordering, path::Path};

use graphmill_core::{NodeId, Result, keyed::key, location::Location};

use super::{
    super::super::{ImportOptions, ImportReport, WeightColumn, blocks::Blocks},
    numbers::{Numbers, Token},
};
use crate::external::{Edges, Needs, Scratch};

/// Contents of the header.
struct Header {
    nodes: usize,
    edges: u64,
    /// Numbers before the neighbours of a line.
    before: u64,
    edge_weights: bool,
}

/// Converter of neighbour lines to edges.
struct Lines<'h> {
    header: &'h Header,
    /// True to keep edge weights.
    weighted: bool,
    edges: Blocks,
    /// Sum over all entries of a hash of the edge, with the sign of its direction: zero for
    /// symmetric lists.
    balance: u64,
}

impl Lines<'_> {
    /// Reads the line of node `v`.
    fn read_node(&mut self, v: usize, numbers: &mut Numbers) -> Result<()> {
        let header = self.header;
        let mut place = 0;
        let mut neighbor = None;
        loop {
            let x = match numbers.next()? {
                Token::Number(x) => x,
                Token::LineEnd => break,
                Token::End => {
                    let message = format!(
                        "the header says {} nodes, but the lines end after node {v}: is the file truncated?",
                        header.nodes
                    );
                    return Err(numbers.at_last_line().error(message));
                }
            };
            place += 1;
            if place <= header.before {
                continue;
            }
            if header.edge_weights && (place - header.before).is_multiple_of(2) {
                if let Some(u) = neighbor.take().filter(|_| self.weighted) {
                    self.edges.push_weighted(v as NodeId, u, Some(x as f32))?;
                }
                continue;
            }
            if x == 0 || x > header.nodes as u64 {
                let message = format!("neighbour {x}: nodes are numbered from 1 to {}", header.nodes);
                return Err(numbers.at().error(message));
            }
            let u = (x - 1) as NodeId;
            self.weigh(v as NodeId, u);
            neighbor = Some(u);
            if !self.weighted {
                self.edges.push(v as NodeId, u)?;
            }
        }
        if (place > 0 || header.before > 0) && place < header.before {
            let message = format!("{place} numbers, but sizes and weights of a node take {}", header.before);
            return Err(numbers.at_last_line().error(message));
        }
        if header.edge_weights && !(place - header.before.min(place)).is_multiple_of(2) {
            return Err(numbers.at_last_line().error("the last neighbour has no weight"));
        }
        Ok(())
    }

    /// Adds the entry `u` of node `v` to the balance.
    fn weigh(&mut self, v: NodeId, u: NodeId) {
        let hash = key(&[u64::from(u.min(v)), u64::from(u.max(v))]);
        match u.cmp(&v) {
            Ordering::Less => self.balance = self.balance.wrapping_add(hash),
            Ordering::Equal => {}
            Ordering::Greater => self.balance = self.balance.wrapping_sub(hash),
        }
    }
}

/// Reads the edges, in both directions, and the number of nodes.
pub(in super::super) fn read(
    path: &Path,
    options: &ImportOptions,
    scratch: &Scratch,
    report: &mut ImportReport,
) -> Result<(Edges, usize)> {
    let mut numbers = Numbers::open(path, b'%', scratch)?;
    let header = read_header(&mut numbers)?;
    if header.before > 0 {
        report.ignore("sizes and weights of nodes");
    }
    let weighted = header.edge_weights && options.weights != WeightColumn::None;
    let edges = scratch.maybe_weighted_edges(options.edge_options(false), weighted);
    scratch.expect(&Needs {
        nodes: header.nodes as u64,
        edges: header.edges.saturating_mul(2),
        weighted,
        ..Needs::default()
    })?;
    let mut lines = Lines { header: &header, weighted, edges: Blocks::new(edges), balance: 0 };
    for v in 0..header.nodes {
        lines.read_node(v, &mut numbers)?;
    }
    let Lines { edges, balance, .. } = lines;
    let edges = edges.finish()?;
    loop {
        match numbers.next()? {
            Token::End => break,
            Token::LineEnd => {}
            Token::Number(_) => {
                let message = format!("a line after the last of the header's {} nodes", header.nodes);
                return Err(numbers.at().error(message));
            }
        }
    }
    if !options.undirected {
        if Some(edges.len()) != header.edges.checked_mul(2) {
            return Err(Location::new(path, "header").error(format!(
                "{} edges, each at both ends, but the lines hold {} neighbours; undirected accepts them \
                 unchanged",
                header.edges,
                edges.len()
            )));
        }
        if balance != 0 {
            return Err(Location::new(path, "contents").error(
                "some edge is listed at only one of its ends: the file is damaged, or is not a METIS graph; \
                 undirected adds the missing directions",
            ));
        }
    }
    Ok((edges, header.nodes))
}

/// Reads the first line that is neither empty nor a comment.
fn read_header(numbers: &mut Numbers) -> Result<Header> {
    let mut found = Vec::new();
    loop {
        match numbers.next()? {
            Token::Number(x) if found.len() < 4 => found.push(x),
            Token::Number(_) => {
                return Err(numbers
                    .at()
                    .error("a header of more than four numbers: n m [fmt [ncon]] expected"));
            }
            Token::LineEnd if found.is_empty() => {}
            Token::LineEnd | Token::End => break,
        }
    }
    let at = numbers.at_last_line();
    let (&nodes, &edges) = match &found[..] {
        [nodes, edges, ..] => (nodes, edges),
        _ => return Err(at.error("a header of the numbers of nodes and edges expected")),
    };
    let nodes = match NodeId::try_from(nodes) {
        Ok(nodes) => nodes as usize,
        Err(_) => return Err(at.error(format!("{nodes} nodes: too many for 32-bit ids"))),
    };
    let fmt = found.get(2).copied().unwrap_or(0);
    let digits = [fmt / 100, fmt / 10 % 10, fmt % 10];
    if digits.iter().any(|&digit| digit > 1) {
        return Err(at.error(format!(
            "fmt {fmt}: three digits of 0 and 1 expected (sizes, node weights, edge weights)"
        )));
    }
    let ncon = found.get(3).copied().unwrap_or(1);
    let before = match digits[1].checked_mul(ncon) {
        Some(weights) if weights <= 1 << 20 => digits[0] + weights,
        _ => return Err(at.error(format!("{ncon} weights per node"))),
    };
    Ok(Header { nodes, edges, before, edge_weights: digits[2] == 1 })
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{damage, edges, run, text},
        *,
    };

    /// Figure 2 of the manual, with an additional isolated node.
    const PLAIN: &str = "% manual\n8 11\n5 3 2\n1 3 4\n5 4 2 1\n2 3 6 7\n1 3 6\n% inside\n5 4 7\n6 4\n\n";

    fn plain() -> Vec<(u32, u32)> {
        edges(&text("a.graph", PLAIN, &ImportOptions::default()).unwrap())
    }

    #[test]
    fn neighbours_become_edges_both_ways() {
        let dataset = text("a.graph", PLAIN, &ImportOptions::default()).unwrap();
        assert_eq!((dataset.num_nodes(), dataset.graph.num_edges(), dataset.name.as_str()), (8, 22, "a"));
        assert_eq!(dataset.graph.in_neighbors(3), [1, 2, 5, 6]);
        assert_eq!(dataset.graph.in_degree(7), 0);
        let lone = text("a.graph", "3 0\n\n\n\n\n", &ImportOptions::default()).unwrap();
        assert_eq!((lone.num_nodes(), lone.graph.num_edges()), (3, 0));
    }

    #[test]
    fn edge_weights_are_read_and_node_weights_skipped() {
        for weighted in [
            "8 11 001\n5 1 3 2 2 1\n1 1 3 2 4 1\n5 3 4 2 2 2 1 2\n2 1 3 2 6 2 7 5\n1 1 3 3 6 2\n5 2 4 2 7 \
             6\n6 6 4 5\n\n",
            "8 11 011\n4 5 1 3 2 2 1\n2 1 1 3 2 4 1\n5 5 3 4 2 2 2 1 2\n3 2 1 3 2 6 2 7 5\n1 1 1 3 3 6 2\n6 \
             5 2 4 2 7 6\n2 6 6 4 5\n9\n",
            "8 11 10 3\n1 2 0 5 3 2\n0 2 2 1 3 4\n4 1 1 5 4 2 1\n2 2 3 2 3 6 7\n1 1 1 1 3 6\n2 2 1 5 4 7\n1 \
             2 1 6 4\n1 1 1\n",
            "8 11 110\n7 1 5 3 2\n7 1 1 3 4\n7 1 5 4 2 1\n7 1 2 3 6 7\n7 1 1 3 6\n7 1 5 4 7\n7 1 6 4\n7 1\n",
        ] {
            let dataset = text("a.graph", weighted, &ImportOptions::default()).unwrap();
            assert_eq!(edges(&dataset), plain(), "{weighted}");
            let of_edges = weighted.starts_with("8 11 0");
            let row = dataset.graph.edge_weight().map(|weights| &weights[3..6]);
            assert_eq!(row, of_edges.then_some(&[1.0, 2.0, 1.0][..]));
        }
    }

    #[test]
    fn options_and_other_files_combine_with_metis() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("a.txt"), "2 1\n2\n1\n").unwrap();
        std::fs::write(path("l"), "1\n0\n").unwrap();
        std::fs::write(path("t"), "2\n").unwrap();
        let options = ImportOptions {
            flavour: "metis".parse().unwrap(),
            labels: Some(path("l")),
            train: Some(path("t")),
            first_id: 1,
            ..Default::default()
        };
        let dataset = run(&path("a.txt"), &options).unwrap();
        assert_eq!((dataset.labels.classes(), dataset.split.train[0]), (2, 1));
        std::fs::write(path("l"), "1\n0\n2\n").unwrap();
        assert!(run(&path("a.txt"), &options).unwrap_err().contains("a.txt: rows: 2 nodes, but"));
    }

    #[test]
    fn errors_contain_the_line() {
        let fails = |content: &str, why: &str| {
            let error = text("a.graph", content, &ImportOptions::default()).unwrap_err();
            assert!(error.contains("a.graph") && error.contains(why), "{content}: {error}");
        };
        fails("", "line 1: a header of the numbers");
        fails("3\n", "line 1: a header of the numbers");
        fails("2 1 0 1 5\n", "line 1: a header of more");
        fails("2 1 7\n2\n1\n", "line 1: fmt 7");
        fails("2 1 10 99999999999\n", "line 1: 99999999999 weights");
        fails("4294967295000 1\n", "line 1: 4294967295000 nodes");
        fails(
            "4294967294 1\n2\n1\n",
            "line 3: the header says 4294967294 nodes, but the lines end after node 2",
        );
        fails("2 1\n2\n", "line 2: the header says 2 nodes, but the lines end after node 1");
        fails("2 1\n2\n0\n", "line 3: neighbour 0: nodes are numbered from 1 to 2");
        fails("2 1\n3\n1\n", "line 2: neighbour 3");
        fails("2 1\nx\n1\n", "line 2: 'x'");
        fails("2 1\n2\n1\n\n1\n", "line 5: a line after the last");
        fails("2 2\n2\n1\n", "header: 2 edges, each at both ends, but the lines hold 2 neighbours");
        fails("3 1\n2\n\n2\n", "contents: some edge is listed at only one");
        fails("2 1 1\n2 1\n1\n", "line 3: the last neighbour has no weight");
        fails("2 1 10 2\n1 1 2\n1\n", "line 3: 1 numbers, but sizes and weights of a node take 2");
        let undirected = ImportOptions { undirected: true, ..Default::default() };
        assert_eq!(edges(&text("a.graph", "3 1\n2\n\n2\n", &undirected).unwrap()).len(), 4);
        let compact = ImportOptions { compact_ids: true, ..Default::default() };
        assert!(text("a.graph", PLAIN, &compact).unwrap_err().contains("compact-ids"));
    }

    #[test]
    fn damage_is_an_error_or_harmless() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.graph");
        std::fs::write(&path, PLAIN.trim_end_matches('\n').to_string() + "\n8\n").unwrap();
        assert!(run(&path, &ImportOptions::default()).is_err(), "a self-loop makes an odd count");
        std::fs::write(&path, "3 2 1\n2 5\n1 5 3 1\n2 1").unwrap();
        damage(&path, &path, false);
    }
}
