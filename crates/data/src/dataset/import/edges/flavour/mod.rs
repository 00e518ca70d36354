//! Layouts of edge lists, and their detection.

pub(super) mod gnnlab;
pub(super) mod metis;
mod numbers;
pub(super) mod snap;
#[cfg(test)]
mod testing;
pub(super) mod webgraph;

use std::{fmt, path::Path, str::FromStr};

use graphmill_core::{Error, Result};

/// Layout of an edge list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Detects the layout. A directory with `meta.txt` and `indptr.bin` or `indptr64.bin` is
    /// GNNLab's; a file ending in `.graph` or `.metis` is METIS, in `.graph-txt` WebGraph (each
    /// also with `.gz`); a file beginning with a comment `# Nodes: N Edges: M` is SNAP; all others
    /// are plain.
    #[default]
    Auto,
    /// One line `from to` per edge, or a `.npy` array, without checks against a header.
    Plain,
    /// Plain list whose comment `# Nodes: N Edges: M` must be correct.
    Snap,
    /// METIS: a header `n m`, then line i lists the neighbours of node i.
    Metis,
    /// WebGraph's ASCII format: a line n, then a line of successors per node.
    WebGraph,
    /// GNNLab's directory of raw arrays.
    GnnLab,
}

impl Flavour {
    /// All flavours, with their names on the command line.
    pub const ALL: [(&'static str, Self); 6] = [
        ("auto", Self::Auto),
        ("plain", Self::Plain),
        ("snap", Self::Snap),
        ("metis", Self::Metis),
        ("webgraph", Self::WebGraph),
        ("gnnlab", Self::GnnLab),
    ];

    /// Returns true if `src` is read as a GNNLab directory.
    pub(super) fn is_gnnlab(self, src: &Path) -> bool {
        let there = |name: &str| src.join(name).is_file();
        self == Self::GnnLab
            || (self == Self::Auto && there("meta.txt") && (there("indptr.bin") || there("indptr64.bin")))
    }

    /// Resolves the flavour of the edge file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn of_file(self, path: &Path) -> Result<Self> {
        if self != Self::Auto {
            return Ok(self);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        Ok(match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("graph" | "metis") => Self::Metis,
            Some("graph-txt") => Self::WebGraph,
            Some("npy") => Self::Plain,
            _ if snap::header(path)?.is_some() => Self::Snap,
            _ => Self::Plain,
        })
    }
}

impl FromStr for Flavour {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text);
        known.map(|(_, flavour)| *flavour).ok_or_else(|| Error::Unknown {
            axis: "flavour",
            name: text.into(),
            known: Self::ALL.map(|(name, _)| name).join(", "),
        })
    }
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = Self::ALL.iter().find(|(_, flavour)| flavour == self).expect("all are listed");
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavour_names_round_trip() {
        for (name, flavour) in Flavour::ALL {
            assert_eq!((name.parse::<Flavour>().unwrap(), flavour.to_string().as_str()), (flavour, name));
        }
        assert!("adj".parse::<Flavour>().unwrap_err().to_string().contains("auto, plain, snap"));
    }

    #[test]
    fn files_are_recognized_by_ending_and_contents() {
        let dir = tempfile::tempdir().unwrap();
        let auto = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            Flavour::Auto.of_file(&path).unwrap()
        };
        assert_eq!(auto("a.graph", ""), Flavour::Metis);
        assert_eq!(auto("a.metis", ""), Flavour::Metis);
        assert_eq!(auto("a.graph.gz", ""), Flavour::Metis);
        assert_eq!(auto("a.graph-txt.gz", ""), Flavour::WebGraph);
        assert_eq!(auto("a.txt", "# x\n# Nodes: 3 Edges: 1\n0\t1\n"), Flavour::Snap);
        assert_eq!(auto("a.txt", "# x\n0\t1\n# Nodes: 3 Edges: 1\n"), Flavour::Plain);
        assert_eq!(auto("graph", "0 1\n"), Flavour::Plain);
        assert_eq!(Flavour::Plain.of_file(Path::new("absent.graph")).unwrap(), Flavour::Plain);
        assert!(!Flavour::Auto.is_gnnlab(dir.path()) && Flavour::GnnLab.is_gnnlab(dir.path()));
        auto("meta.txt", "");
        assert!(!Flavour::Auto.is_gnnlab(dir.path()));
        auto("indptr64.bin", "");
        assert!(Flavour::Auto.is_gnnlab(dir.path()) && !Flavour::Plain.is_gnnlab(dir.path()));
    }
}
