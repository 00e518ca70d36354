//! Cache file of the alias tables of a graph's stored edge weights, in the dataset's directory.
//!
//! ```text
//! edge_alias.bin    192-byte text header: format and version, checksums of the graph's row starts and weights
//!                   and of the cells; then one cell per edge, in the order of the graph's edges:
//!                   its threshold (u32) and its alternative outcome (u32), little endian
//! ```
//!
//! No manifest lists the file, because its contents can be recomputed at any time. The first
//! process that needs the tables writes it. A file that belongs to other weights or another
//! version, or is damaged or truncated, is ignored and replaced. If the file cannot be written (a
//! full disk, a read-only directory), every run rebuilds the tables. Reading takes one pass over
//! the weights and one over the cells.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use graphmill_core::{
    Buffer, Result,
    alias::{Cell, RowAlias, TableStore},
};

use crate::{
    atomic::{self, Disk, Real},
    checksum::checksum,
};

/// File name of the cache.
const FILE_NAME: &str = "edge_alias.bin";
/// Bytes of the header: a multiple of the cells' alignment.
const HEAD: usize = 192;
/// Smallest number of edges worth caching: the tables of fewer are built in the time a write takes.
const MIN_EDGES: usize = 1 << 20;

/// Returns true if `name` is the name of the cache, finished or temporary.
pub(crate) fn is_alias_file(name: &str) -> bool {
    name.strip_prefix(FILE_NAME).is_some_and(|rest| ["", atomic::TEMPORARY_SUFFIX].contains(&rest))
}

/// Alias tables cached beside a dataset.
#[derive(Debug)]
pub struct AliasCache {
    dir: PathBuf,
}

impl AliasCache {
    /// Creates the cache of the dataset in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }
}

impl TableStore for AliasCache {
    /// Maps the tables from the file if it matches, and otherwise builds them and, if there are
    /// many, stores them. The tables are identical either way. A file that cannot be read or
    /// written is not an error.
    fn tables(&self, indptr: &[u64], weights: &[f32]) -> Result<RowAlias> {
        if weights.len() < MIN_EDGES {
            return RowAlias::new(indptr, weights);
        }
        Kept { dir: &self.dir, indptr, weights }.open_or_make()
    }
}

/// Cache of one directory.
struct Kept<'a> {
    dir: &'a Path,
    indptr: &'a [u64],
    weights: &'a [f32],
}

impl Kept<'_> {
    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    fn open_or_make(&self) -> Result<RowAlias> {
        let made_of =
            [checksum(bytemuck::cast_slice(self.indptr)), checksum(bytemuck::cast_slice(self.weights))];
        if let Some(found) = self.open(&made_of) {
            return Ok(found);
        }
        let made = RowAlias::new(self.indptr, self.weights)?;
        // One process writes, others skip the write: a lock ends with its process, so a killed
        // writer does not block others, and the next one overwrites its file.
        let lock = File::open(self.dir).ok().filter(|dir| dir.try_lock().is_ok());
        if lock.is_some() {
            // A failure only costs the next run the time to build the tables.
            let _ = self.store(&mut Real, &made_of, made.cells());
        }
        Ok(made)
    }

    /// Opens the tables in the file if they match `made_of`, are complete, and are valid for
    /// drawing.
    fn open(&self, made_of: &[String; 2]) -> Option<RowAlias> {
        let path = self.path();
        let mut file = File::open(&path).ok()?;
        let bytes = self.weights.len().checked_mul(size_of::<Cell>())?.checked_add(HEAD)?;
        if file.metadata().ok()?.len() != bytes as u64 {
            return None;
        }
        let mut found = [0; HEAD];
        file.read_exact(&mut found).ok()?;
        let cells = Buffer::map(&file, &path, HEAD, self.weights.len()).ok()?;
        if found != head(made_of, &cells) {
            return None;
        }
        RowAlias::of_cells(self.indptr, self.weights, cells)
    }

    /// Writes the file atomically.
    fn store(&self, disk: &mut impl Disk, made_of: &[String; 2], cells: &[Cell]) -> Result<()> {
        let head = head(made_of, cells);
        atomic::replace_by(disk, &self.path(), |file| {
            file.write_all(&head)?;
            file.write_all(bytemuck::cast_slice(cells))
        })
    }
}

/// Builds the header.
fn head([indptr, weights]: &[String; 2], cells: &[Cell]) -> [u8; HEAD] {
    let cells = checksum(bytemuck::cast_slice(cells));
    let text =
        format!("graphmill alias tables, version 1\nindptr {indptr}\nedge_weight {weights}\ncells {cells}\n");
    let mut head = [b' '; HEAD];
    head[..text.len()].copy_from_slice(text.as_bytes());
    head[HEAD - 1] = b'\n';
    head
}

/// Entry points of the fuzzer (feature `fuzz`).
#[cfg(feature = "fuzz")]
pub mod fuzz {
    use std::path::Path;

    use graphmill_core::{Error, Graph, Result, alias::RowAlias};

    use super::Kept;

    /// Opens the tables in `dir` of a graph with any number of edges, or builds and stores them.
    ///
    /// # Errors
    /// The graph has no weights, or weights that cannot be drawn by.
    pub fn tables(dir: &Path, graph: &Graph) -> Result<RowAlias> {
        let weights = graph.edge_weight().ok_or_else(|| Error::invalid("the graph has no edge weights"))?;
        Kept { dir, indptr: graph.indptr(), weights }.open_or_make()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use graphmill_core::{Graph, alias::NOTHING, keyed::Stream};

    use super::*;
    use crate::atomic::CrashingDisk;

    /// Graph of 300 nodes with 0 to 9 neighbours, some of weight zero; every 50th node has only
    /// those.
    fn graph(seed: u64) -> Graph {
        let mut stream = Stream::new(seed);
        let (mut indptr, mut weights) = (vec![0], Vec::new());
        for v in 0..300 {
            for _ in 0..v % 10 {
                let nothing = v % 50 == 9 || stream.below(5) == 0;
                weights.push(if nothing { 0.0 } else { stream.uniform() as f32 });
            }
            indptr.push(weights.len() as u64);
        }
        let graph = Graph::new(indptr.into(), vec![0; weights.len()].into()).unwrap();
        graph.with_edge_weight(weights.into()).unwrap()
    }

    fn kept<'a>(dir: &'a Path, graph: &'a Graph) -> Kept<'a> {
        Kept { dir, indptr: graph.indptr(), weights: graph.edge_weight().unwrap() }
    }

    fn built(graph: &Graph) -> RowAlias {
        RowAlias::new(graph.indptr(), graph.edge_weight().unwrap()).unwrap()
    }

    #[test]
    fn the_second_open_maps_identical_tables() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1);
        let first = kept(dir.path(), &graph).open_or_make().unwrap();
        let second = kept(dir.path(), &graph).open_or_make().unwrap();
        assert!(!first.is_mapped() && second.is_mapped() && first == second && second == built(&graph));
        let draws = |table: &RowAlias| {
            let mut stream = Stream::new(5);
            let nodes = (0..20).flat_map(|_| 0..300);
            nodes.map(|v| table.rows().draw(graph.indptr(), v, &mut stream)).collect::<Vec<_>>()
        };
        assert_eq!(draws(&first), draws(&second));
        assert!(
            fs::read_dir(dir.path())
                .unwrap()
                .all(|f| is_alias_file(f.unwrap().file_name().to_str().unwrap()))
        );
    }

    #[test]
    fn tables_of_another_graph_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let one = graph(1);
        kept(dir.path(), &one).open_or_make().unwrap();
        // As many edges with other weights; then the same weights in other rows.
        let weights = one.edge_weight().unwrap();
        let rows: Vec<u64> = (0..=300).map(|v| (v * 5).min(weights.len() as u64)).collect();
        let reassigned = Graph::new(rows.into(), one.indices().to_vec().into()).unwrap();
        for other in [graph(2), reassigned.with_edge_weight(weights.to_vec().into()).unwrap()] {
            for mapped in [false, true] {
                let table = kept(dir.path(), &other).open_or_make().unwrap();
                assert_eq!(table.is_mapped(), mapped);
                assert!(table == built(&other));
            }
        }
    }

    #[test]
    fn damage_anywhere_is_detected_and_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1);
        let kept = kept(dir.path(), &graph);
        kept.open_or_make().unwrap();
        let good = fs::read(kept.path()).unwrap();
        let check = |bad: &[u8], what: &str| {
            fs::write(kept.path(), bad).unwrap();
            let table = kept.open_or_make().unwrap();
            assert!(!table.is_mapped() && table == built(&graph), "{what}");
            assert!(fs::read(kept.path()).unwrap() == good, "{what}");
        };
        for length in [0, 1, HEAD - 1, HEAD, HEAD + 8, good.len() - 1] {
            check(&good[..length], &format!("cut to {length}"));
        }
        check(&[&good[..], &[0]].concat(), "longer");
        for bit in (0..good.len() * 8).step_by(397) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            check(&bad, &format!("bit {bit}"));
        }
        // Invalid cells with a correct checksum.
        for (at, other) in [(2, NOTHING), (2, 2), (0, NOTHING)] {
            let mut cells = built(&graph).cells().to_vec();
            cells[at].other = other;
            let made_of = [
                checksum(bytemuck::cast_slice(graph.indptr())),
                checksum(bytemuck::cast_slice(kept.weights)),
            ];
            kept.store(&mut Real, &made_of, &cells).unwrap();
            check(&fs::read(kept.path()).unwrap(), &format!("cell {at} to {other}"));
        }
    }

    #[test]
    fn a_crash_at_any_step_leaves_complete_tables_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1);
        let kept = kept(dir.path(), &graph);
        let made = built(&graph);
        let made_of = [String::new(), String::new()];
        for steps in 0.. {
            let done = kept.store(&mut CrashingDisk(steps), &made_of, made.cells()).is_ok();
            let found = kept.open(&made_of);
            assert!(
                found.as_ref().is_none_or(|found| *found == made) && (found.is_some() || !done),
                "{steps}"
            );
            for file in fs::read_dir(dir.path()).unwrap() {
                assert!(is_alias_file(file.unwrap().file_name().to_str().unwrap()));
            }
            if done {
                break;
            }
            let _ = fs::remove_file(kept.path());
        }
    }

    #[test]
    fn unwritable_directories_rebuild_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1);
        // A path that is not a directory, and a directory that another process is writing to.
        let none = dir.path().join("none");
        assert!(kept(&none, &graph).open_or_make().unwrap() == built(&graph));
        let lock = File::open(dir.path()).unwrap();
        lock.lock().unwrap();
        assert!(kept(dir.path(), &graph).open_or_make().unwrap() == built(&graph));
        // A directory of that name exists.
        lock.unlock().unwrap();
        fs::create_dir(kept(dir.path(), &graph).path()).unwrap();
        assert!(kept(dir.path(), &graph).open_or_make().unwrap() == built(&graph));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn small_graphs_write_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1).with_table_store(Arc::new(AliasCache::new(dir.path())));
        assert!(graph.alias_tables().unwrap() == built(&graph));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let bare = Graph::new(vec![0, 1].into(), vec![0].into()).unwrap();
        assert!(bare.alias_tables().unwrap_err().to_string().contains("no edge weights"));
    }
}
