//! The tables of a graph's stored weights, kept in a file of the dataset's directory.
//!
//! ```text
//! edge_alias.bin    a head of text, 192 bytes: format and version, checksums of the graph's row starts and weights and of all that follows;
//!                   then a cell per edge, in the order of the graph's edges: its threshold (u32) and its other outcome (u32), little endian
//! ```
//!
//! The file belongs to no manifest: it is a note of what can be computed at any time. It is written by whoever needs the tables first, and one
//! that does not fit, of other weights, of another version, damaged or cut off, is as good as none and is replaced. Where it cannot be
//! written, on a full disk or in a directory that may only be read, every run builds the tables anew. Reading it takes one pass over the
//! weights and one over the cells.

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
    dataset::checksum::checksum,
};

/// The file's name.
const FILE_NAME: &str = "edge_alias.bin";
/// Bytes before the cells: a multiple of what they are to be aligned by.
const HEAD: usize = 192;
/// Fewer edges are not worth a file: their tables are built in the time that it takes to write them.
const WORTH_STORING: usize = 1 << 20;

/// Whether a file of that name in a dataset's directory is this one, finished or not.
pub(crate) fn is_file_of_tables(name: &str) -> bool {
    name.strip_prefix(FILE_NAME).is_some_and(|rest| ["", atomic::BESIDE].contains(&rest))
}

/// Keeps the tables of a dataset's weights in the directory of the dataset.
#[derive(Debug)]
pub struct Beside {
    dir: PathBuf,
}

impl Beside {
    /// For the dataset in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }
}

impl TableStore for Beside {
    /// Mapped from the file, if it fits, and otherwise built, and stored for the next time if there are many. The same tables
    /// either way. That the file cannot be read or written is no error.
    fn tables(&self, indptr: &[u64], weights: &[f32]) -> Result<RowAlias> {
        if weights.len() < WORTH_STORING {
            return RowAlias::new(indptr, weights);
        }
        Kept { dir: &self.dir, indptr, weights }.open_or_make()
    }
}

/// The tables in a directory.
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
        // One process writes, others do without: a lock ends with its process, so one that is killed is in nobody's way, and the next
        // one writes over what it left.
        let lock = File::open(self.dir).ok().filter(|dir| dir.try_lock().is_ok());
        if lock.is_some() {
            let _ = self.store(&mut Real, &made_of, made.cells()); // costs the next run the time to build them
        }
        Ok(made)
    }

    /// The tables in the file, if they are those of `made_of`, whole, and such as can be drawn from.
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

    /// Writes the file, whole or not at all.
    fn store(&self, disk: &mut impl Disk, made_of: &[String; 2], cells: &[Cell]) -> Result<()> {
        let head = head(made_of, cells);
        atomic::replace_by(disk, &self.path(), |file| {
            file.write_all(&head)?;
            file.write_all(bytemuck::cast_slice(cells))
        })
    }
}

/// What the file begins with.
fn head([indptr, weights]: &[String; 2], cells: &[Cell]) -> [u8; HEAD] {
    let cells = checksum(bytemuck::cast_slice(cells));
    let text =
        format!("graphmill alias tables, version 1\nindptr {indptr}\nedge_weight {weights}\ncells {cells}\n");
    let mut head = [b' '; HEAD];
    head[..text.len()].copy_from_slice(text.as_bytes());
    head[HEAD - 1] = b'\n';
    head
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use graphmill_core::{Graph, alias::NOTHING, keyed::Stream};

    use super::*;
    use crate::atomic::Mortal;

    /// 300 nodes of 0 to 9 neighbours, some of which weigh nothing; every 50th has none but such.
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
    fn the_second_time_they_are_mapped_and_the_same() {
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
                .all(|f| is_file_of_tables(f.unwrap().file_name().to_str().unwrap()))
        );
    }

    #[test]
    fn tables_of_another_graph_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let one = graph(1);
        kept(dir.path(), &one).open_or_make().unwrap();
        // as many edges, other weights; then the same weights, dealt to other rows
        let weights = one.edge_weight().unwrap();
        let rows: Vec<u64> = (0..=300).map(|v| (v * 5).min(weights.len() as u64)).collect();
        let dealt = Graph::new(rows.into(), one.indices().to_vec().into()).unwrap();
        for other in [graph(2), dealt.with_edge_weight(weights.to_vec().into()).unwrap()] {
            for mapped in [false, true] {
                let table = kept(dir.path(), &other).open_or_make().unwrap();
                assert_eq!(table.is_mapped(), mapped);
                assert!(table == built(&other));
            }
        }
    }

    #[test]
    fn damage_anywhere_is_found_and_mended() {
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
        // whoever wrote these, their checksum is right
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
    fn killed_at_any_step_it_leaves_whole_tables_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1);
        let kept = kept(dir.path(), &graph);
        let made = built(&graph);
        let made_of = [String::new(), String::new()];
        for steps in 0.. {
            let done = kept.store(&mut Mortal(steps), &made_of, made.cells()).is_ok();
            let found = kept.open(&made_of);
            assert!(
                found.as_ref().is_none_or(|found| *found == made) && (found.is_some() || !done),
                "{steps}"
            );
            for file in fs::read_dir(dir.path()).unwrap() {
                assert!(is_file_of_tables(file.unwrap().file_name().to_str().unwrap()));
            }
            if done {
                break;
            }
            let _ = fs::remove_file(kept.path());
        }
    }

    #[test]
    fn where_nothing_can_be_written_they_are_built_every_time() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1);
        // a directory that is none, and one in which somebody else is writing
        let none = dir.path().join("none");
        assert!(kept(&none, &graph).open_or_make().unwrap() == built(&graph));
        let lock = File::open(dir.path()).unwrap();
        lock.lock().unwrap();
        assert!(kept(dir.path(), &graph).open_or_make().unwrap() == built(&graph));
        // a directory of that name is in the way
        lock.unlock().unwrap();
        fs::create_dir(kept(dir.path(), &graph).path()).unwrap();
        assert!(kept(dir.path(), &graph).open_or_make().unwrap() == built(&graph));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn few_edges_get_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let graph = graph(1).with_table_store(Arc::new(Beside::new(dir.path())));
        assert!(graph.alias_tables().unwrap() == built(&graph));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let bare = Graph::new(vec![0, 1].into(), vec![0].into()).unwrap();
        assert!(bare.alias_tables().unwrap_err().to_string().contains("no edge weights"));
    }
}
