//! Imports that end without any cleanup, as after a kill, and are started again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use graphmill_core::progress::Progress;

use super::{
    tests::{account_schema, accounts, contents},
    *,
};

/// Progress that ends the process's work at a check: a panic leaves the scratch as a kill does.
#[derive(Clone, Default)]
pub(super) struct Killer {
    checks: Arc<AtomicU64>,
    /// Number of the check that kills; 0 for none.
    at: u64,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Killer {
    /// Progress that kills at check number `at`; 0 for none.
    pub(super) fn new(at: u64) -> Self {
        Self { at, ..Self::default() }
    }

    /// Number of checks so far.
    pub(super) fn checks(&self) -> u64 {
        self.checks.load(Relaxed)
    }
}

impl Progress for Killer {
    fn note(&self, message: &str) {
        self.notes.lock().unwrap().push(message.into());
    }

    fn is_stopped(&self) -> bool {
        let count = self.checks.fetch_add(1, Relaxed) + 1;
        assert!(count != self.at, "killed at check {count} (expected in this test)");
        false
    }
}

pub(super) const SMALL: Budget = Budget { cache: 0, keys: 500, recorded: 0 };
pub(super) const LARGE: Budget = Budget { cache: usize::MAX, keys: u64::MAX, recorded: 0 };

/// Import of `schema` into `dst` that is killed at check `at`; returns the number of checks and the
/// notes, or `None` if it was killed.
pub(super) fn run(schema: &TableSchema, dst: &Path, budget: Budget, at: u64) -> Option<(u64, Vec<String>)> {
    let killer = Killer::new(at);
    let work = Work { memory: Some(1 << 26), replace: false, progress: Box::new(killer.clone()) };
    let done =
        catch_unwind(AssertUnwindSafe(|| import_within(schema, dst, Base::default(), work, Some(budget))));
    let imported = done.ok()?;
    drop(imported.unwrap());
    assert!(!atomic::suffixed(dst, ".importing").exists());
    Some((killer.checks.load(Relaxed), killer.notes.lock().unwrap().clone()))
}

/// Accounts with a second edge type without columns, which is sorted in another way, with keys that
/// only edges name, and with times of nodes, labels of edges and a table of targets.
fn source(dir: &Path) -> TableSchema {
    let (nodes, edges) = accounts(dir, 60);
    let mut schema = account_schema(&nodes, &edges);
    schema.edges.push(EdgeTable {
        kind: "knows".into(),
        time: None,
        features: Vec::new(),
        undirected: true,
        label: Names::One("amount".into()),
        task: Some(Target::Regression),
        ..schema.edges[0].clone()
    });
    schema.nodes[0].task = Some(Target::Classification);
    schema.nodes[0].time = Some("signup_date".into());
    schema.targets.push(TargetTable {
        files: schema.nodes[0].files.clone(),
        on: Some("node".into()),
        id: schema.nodes[0].id.clone(),
        time: Some("signup_date".into()),
        label: Names::One("country".into()),
        ..TargetTable::default()
    });
    schema.nodes.push(NodeTable {
        kind: "sum".into(),
        category_limit: CATEGORY_LIMIT,
        ..NodeTable::default()
    });
    schema.edges.iter_mut().for_each(|edges| {
        (edges.source, edges.destination) = (Some("node".into()), Some("node".into()));
    });
    schema.edges.push(EdgeTable {
        kind: "pays".into(),
        undirected: false,
        label: Names::None,
        task: None,
        destination: Some("sum".into()),
        dst: Names::One("amount".into()),
        ..schema.edges[1].clone()
    });
    schema
}

#[test]
fn imports_killed_anywhere_resume_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let schema = source(dir.path());
    let expected = dir.path().join("expected");
    run(&schema, &expected, Budget { recorded: u64::MAX, ..LARGE }, 0).unwrap();
    let expected = contents(&expected);
    for budget in [SMALL, LARGE] {
        let whole = dir.path().join("whole");
        let (checks, notes) = run(&schema, &whole, budget, 0).unwrap();
        assert!(notes.is_empty() && contents(&whole) == expected);
        fs_remove(&whole);
        for k in 1..=10 {
            let dst = dir.path().join(format!("killed-{k}"));
            assert!(run(&schema, &dst, budget, checks * k / 10).is_none() && !dst.exists(), "{k}");
            // Killed a second time, by then perhaps near the end.
            let again = run(&schema, &dst, budget, checks / 7);
            let notes = match again {
                Some((_, notes)) => notes,
                None => run(&schema, &dst, budget, 0).unwrap().1,
            };
            assert!(notes.iter().any(|note| note.contains("resuming the interrupted work")), "{notes:?}");
            assert!(contents(&dst) == expected, "killed at {k} tenths, {budget:?}");
            if k == 10 {
                for part in ["types-of-nodes-0", "nodes", "edges-2", "sorted-0"] {
                    let note = format!("taking over from the interrupted import: {part}");
                    assert!(notes.contains(&note), "{part} is not in {notes:?}");
                }
            }
            fs_remove(&dst);
        }
    }
}

fn fs_remove(path: &Path) {
    std::fs::remove_dir_all(path).unwrap();
}

#[test]
fn other_sources_and_damaged_files_do_not_count_as_the_interrupted_work() {
    let dir = tempfile::tempdir().unwrap();
    let schema = source(dir.path());
    let [expected, dst] = ["expected", "killed"].map(|name| dir.path().join(name));
    let (checks, _) = run(&schema, &expected, SMALL, 0).unwrap();
    // A record whose file is cut is read again.
    assert!(run(&schema, &dst, SMALL, checks - 1).is_none());
    let scratch = dir.path().join("killed.importing");
    let mut cut = 0;
    for entry in std::fs::read_dir(&scratch).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".npy") {
            std::fs::File::options().write(true).open(&path).unwrap().set_len(4097).unwrap();
            cut += 1;
        }
    }
    assert!(cut > 3);
    let (_, notes) = run(&schema, &dst, SMALL, 0).unwrap();
    assert!(!notes.iter().any(|note| note.ends_with(": nodes")), "{notes:?}");
    assert!(contents(&dst) == contents(&expected));
    // Another source starts again.
    let other = dir.path().join("other");
    assert!(run(&schema, &other, SMALL, checks - 1).is_none());
    let (nodes, edges) = accounts(dir.path(), 63);
    let mut schema = account_schema(&nodes, &edges);
    schema.name = Some("test".into());
    let (_, notes) = run(&schema, &other, SMALL, 0).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    fs_remove(&expected);
    run(&schema, &expected, LARGE, 0).unwrap();
    assert!(contents(&other) == contents(&expected));
}
