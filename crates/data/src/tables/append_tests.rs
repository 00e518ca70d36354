//! Tests of rows that extend a dataset. The reference is an import of all rows at once.

use std::{fmt::Write as _, panic::AssertUnwindSafe, path::PathBuf};

use proptest::prelude::*;

use super::{
    resume_tests::{Killer, LARGE, SMALL},
    tests::contents,
    *,
};

/// Age, country, label, part of the split, and time of a user.
pub(super) type User = (Option<u8>, u8, Option<u8>, u8, u8);

/// Rows of tables of two node types, with edges of three kinds, a foreign key and targets.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub(super) users: Vec<User>,
    /// Owner of each item, if it has one.
    pub(super) items: Vec<Option<usize>>,
    /// Friends, with a weight.
    pub(super) friends: Vec<(usize, usize, u8)>,
    /// User, item, time, amount, label and part of the split of each visit.
    pub(super) visits: Vec<(usize, usize, u8, u8, Option<u8>, u8)>,
    /// User and value of each target, whose time is its number.
    pub(super) targets: Vec<(usize, u8)>,
}

pub(super) fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

const PARTS: [&str; 4] = ["train", "valid", "test", ""];

/// Line of the user number `u`.
pub(super) fn user_line(u: usize, (age, country, label, part, since): &User) -> String {
    let (age, label) = (cell(*age), cell(label.map(|label| ["no", "yes"][label as usize])));
    format!("u{:02},{age},c{country},{label},{},{since}\n", 99 - u, PARTS[*part as usize])
}

impl Rows {
    /// Splits the rows: those of nodes at a share, of which the first part names only nodes of its
    /// own.
    pub(super) fn halves(&self, share: usize) -> [Self; 2] {
        let at = |count: usize| (count * share / 10).max(4).min(count);
        let (users, items) = (at(self.users.len()), at(self.items.len()));
        let is_first = |u: usize, v: usize| u < users && v < items;
        fn parts<T: Clone>(rows: &[T], is_first: impl Fn(&T) -> bool) -> [Vec<T>; 2] {
            // the rows after the first one that needs the second part are in it, too
            let at = rows.iter().position(|row| !is_first(row)).unwrap_or(rows.len() * 2 / 3);
            [rows[..at].to_vec(), rows[at..].to_vec()]
        }
        let [friends, more_friends] = parts(&self.friends, |&(u, v, _)| u < users && v < users);
        let [visits, more_visits] = parts(&self.visits, |&(u, v, ..)| is_first(u, v));
        let [targets, more_targets] = parts(&self.targets, |&(u, _)| u < users);
        let owned = self.items[..items].iter().map(|owner| owner.filter(|&u| u < users)).collect();
        let first = Self { users: self.users[..users].to_vec(), items: owned, friends, visits, targets };
        let second = Self {
            users: self.users[users..].to_vec(),
            items: self.items[items..].to_vec(),
            friends: more_friends,
            visits: more_visits,
            targets: more_targets,
        };
        [first, second]
    }

    pub(super) fn and(&self, more: &Self) -> Self {
        Self {
            users: [&self.users[..], &more.users].concat(),
            items: [&self.items[..], &more.items].concat(),
            friends: [&self.friends[..], &more.friends].concat(),
            visits: [&self.visits[..], &more.visits].concat(),
            targets: [&self.targets[..], &more.targets].concat(),
        }
    }

    /// Writes the tables to `dir`, whose first rows have these numbers: users, items and targets.
    pub(super) fn write(&self, dir: &Path, [users, items, targets]: [usize; 3]) {
        fs::create_dir_all(dir).unwrap();
        let mut text = "id,age,country,label,part,since\n".to_string();
        for (i, row) in self.users.iter().enumerate() {
            text += &user_line(users + i, row);
        }
        fs::write(dir.join("users.csv"), text).unwrap();
        let mut text = "id,owner\n".to_string();
        for (i, owner) in self.items.iter().enumerate() {
            writeln!(text, "{},{}", 700 + items + i, cell(owner.map(|u| format!("u{:02}", 99 - u)))).unwrap();
        }
        fs::write(dir.join("items.csv"), text).unwrap();
        let mut text = "a,b,weight\n".to_string();
        for (u, v, weight) in &self.friends {
            writeln!(text, "u{:02},u{:02},{weight}", 99 - u, 99 - v).unwrap();
        }
        fs::write(dir.join("friends.csv"), text).unwrap();
        let mut text = "user,item,day,amount,fraud,part\n".to_string();
        for (u, v, day, amount, fraud, part) in &self.visits {
            let part = PARTS[*part as usize];
            writeln!(text, "u{:02},{},{day},{amount},{},{part}", 99 - u, 700 + v, cell(*fraud)).unwrap();
        }
        fs::write(dir.join("visits.csv"), text).unwrap();
        let mut text = "user,day,spent,part\n".to_string();
        for (i, (u, spent)) in self.targets.iter().enumerate() {
            writeln!(text, "u{:02},{},{spent}.5,{}", 99 - u, 300 + targets + i, PARTS[(targets + i) % 3])
                .unwrap();
        }
        fs::write(dir.join("targets.csv"), text).unwrap();
    }
}

pub(super) fn one(name: &str) -> Names {
    Names::One(name.into())
}

pub(super) fn schema(dir: &Path) -> TableSchema {
    let text = r#"
        name = "shop"
        [[nodes]]
        type = "user"
        files = "users.csv"
        id = "id"
        label = "label"
        split = "column:part"
        time = "since"
        columns = { age = "number, indicator", country = "category" }
        [[nodes]]
        type = "item"
        files = "items.csv"
        id = "id"
        foreign_keys = [{ column = "owner", to = "user", type = "of", reverse = "owns" }]
        [[edges]]
        type = "friend"
        files = "friends.csv"
        source = "user"
        destination = "user"
        src = "a"
        dst = "b"
        weight = "weight"
        undirected = true
        [[edges]]
        type = "visit"
        files = "visits.csv"
        source = "user"
        destination = "item"
        src = "user"
        dst = "item"
        time = "day"
        label = "fraud"
        split = "column:part"
        features = ["amount"]
        reverse = "visited"
        [[targets]]
        name = "spent"
        files = "targets.csv"
        on = "user"
        id = "user"
        time = "day"
        label = "spent"
        split = "column:part"
    "#;
    let schema = TableSchema::parse(text, Path::new("schema.toml")).unwrap();
    TableSchema { base: dir.to_path_buf(), ..schema }
}

/// All tables of a directory.
pub(super) fn more(dir: &Path) -> MoreTables {
    let many = |names: &[&str]| Names::Many(names.iter().map(|name| name.to_string()).collect());
    MoreTables {
        nodes: many(&["user=users.csv", "item=items.csv"]),
        edges: many(&["friend=friends.csv", "user__visit__item=visits.csv"]),
        targets: one("targets.csv"),
        base: dir.to_path_buf(),
        ..MoreTables::default()
    }
}

/// First rows, with all classes and categories.
pub(super) fn first() -> Rows {
    Rows {
        users: vec![
            (Some(20), 0, Some(0), 0, 1),
            (None, 1, Some(1), 1, 2),
            (Some(40), 2, Some(1), 2, 3),
            (Some(41), 0, None, 3, 4),
        ],
        items: vec![Some(0), None, Some(2), Some(2)],
        friends: vec![(0, 1, 1), (1, 0, 2), (2, 2, 3), (0, 3, 4)],
        visits: vec![(0, 1, 5, 6, Some(0), 0), (1, 1, 4, 2, Some(1), 1), (3, 0, 9, 2, None, 3)],
        targets: vec![(0, 3), (3, 4)],
    }
}

/// Columns of a user.
pub(super) fn user_rows() -> impl Strategy<Value = User> + Clone {
    (prop::option::of(0u8..90), 0u8..3, prop::option::of(0u8..2), 0u8..4, 0u8..9)
}

pub(super) fn rows() -> impl Strategy<Value = Rows> {
    let users = user_rows();
    let of = |count: usize| any::<prop::sample::Index>().prop_map(move |index| index.index(count));
    (0usize..8, 0usize..8).prop_flat_map(move |(n, m)| {
        (
            prop::collection::vec(users.clone(), n),
            prop::collection::vec(prop::option::of(of(4 + n)), m),
            prop::collection::vec((of(4 + n), of(4 + n), 0u8..9), 0..20),
            prop::collection::vec(
                (of(4 + n), of(4 + m), 0u8..9, 0u8..9, prop::option::of(0u8..2), 0u8..4),
                0..20,
            ),
            prop::collection::vec((of(4 + n), 0u8..9), 0..6),
        )
            .prop_map(|(users, items, friends, visits, targets)| Rows {
                users,
                items,
                friends,
                visits,
                targets,
            })
    })
}

pub(super) fn work(memory: u64) -> Work {
    Work { memory: Some(memory), ..Work::default() }
}

/// Files of a dataset without those that record its origin.
pub(super) fn arrays(dir: &Path) -> Vec<(String, Vec<u8>)> {
    contents(dir).into_iter().filter(|(name, _)| name.ends_with(".npy")).collect()
}

/// Writes the rows as a base, further rows, and all; imports the base and all.
fn imported(dir: &Path, halves: &[Rows; 2]) -> PathBuf {
    let [base, added] = halves;
    base.write(&dir.join("old"), [0; 3]);
    added.write(&dir.join("new"), [base.users.len(), base.items.len(), base.targets.len()]);
    base.and(added).write(&dir.join("all"), [0; 3]);
    import_tables(&schema(&dir.join("old")), dir.join("base"), None, work(1 << 26)).unwrap();
    let known = Preprocessing::read(&dir.join("base")).unwrap();
    import_tables(&schema(&dir.join("all")), dir.join("whole"), Some(&known), work(1 << 26)).unwrap();
    dir.join("base")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("GRAPHMILL_SOAK").map_or(16, |_| 300)
    ))]
    #[test]
    fn appended_rows_are_those_of_an_import_of_all_rows(
        rows in rows(), share in 0usize..11, small in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let halves = first().and(&rows).halves(share);
        let base = imported(dir, &halves);
        let before = contents(&base);
        let (budget, memory) = if small { (SMALL, 1 << 12) } else { (LARGE, 1 << 26) };
        let longer = dir.join("longer");
        let (made, appended) =
            append_within(&base, &more(&dir.join("new")), &longer, work(memory), Some(budget)).unwrap();
        prop_assert!(contents(&base) == before, "the base is never changed");
        let (found, expected) = (arrays(&longer), arrays(&dir.join("whole")));
        prop_assert_eq!(
            found.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            expected.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            prop_assert!(found == expected, "{} differs", name);
        }
        let [known, whole] = [&longer, &dir.join("whole")].map(|dir| Preprocessing::read(dir).unwrap());
        prop_assert_eq!(&known.appended, std::slice::from_ref(&appended));
        prop_assert_eq!(Preprocessing { appended: Vec::new(), ..known }, whole);
        let users = [0, 1].map(|half| halves[half].users.len() as u64);
        prop_assert_eq!(appended.nodes["user"], users);
        prop_assert_eq!(made.dataset.nodes[0].count, halves[0].and(&halves[1]).users.len());
        // the result can be extended, too
        let again = MoreTables { nodes: one("user=users.csv"), ..MoreTables::default() };
        let again = MoreTables { base: dir.join("none"), ..again };
        Rows::default().write(&dir.join("none"), [0; 3]);
        append_tables(&longer, &again, dir.join("again"), work(1 << 26)).unwrap();
        prop_assert!(arrays(&dir.join("again")) == found, "nothing was appended");
    }
}

/// Rows beside those of [`first`].
pub(super) fn second() -> Rows {
    Rows {
        users: vec![(Some(7), 1, Some(0), 0, 8), (None, 2, Some(1), 2, 9)],
        items: vec![Some(5), Some(0)],
        friends: vec![(4, 1, 1), (1, 0, 5), (5, 4, 2)],
        visits: vec![(4, 5, 9, 3, Some(1), 0), (0, 4, 10, 4, Some(0), 2)],
        targets: vec![(5, 1)],
    }
}

#[test]
fn killed_appends_resume_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let base = imported(dir, &[first(), second()]);
    let tables = more(&dir.join("new"));
    let run = |name: &str, at: u64| {
        let killer = Killer::new(at);
        let work = Work { memory: Some(1 << 26), replace: false, progress: Box::new(killer.clone()) };
        let append = || append_within(&base, &tables, &dir.join(name), work, Some(SMALL));
        let done = std::panic::catch_unwind(AssertUnwindSafe(append));
        done.ok().map(|done| done.map(|_| killer.checks()).unwrap())
    };
    let checks = run("whole-run", 0).unwrap();
    let expected = contents(&dir.join("whole-run"));
    for at in (1..=checks).step_by(7) {
        let name = format!("killed-{at}");
        assert!(run(&name, at).is_none(), "killed at check {at}");
        assert!(!dir.join(&name).exists(), "nothing is half-written");
        run(&name, 0).unwrap();
        let found = contents(&dir.join(&name));
        assert!(found == expected, "killed at check {at} of {checks}");
    }
}

/// Message of a failed append of the tables in `new`, of which one is replaced.
fn error(dir: &Path, change: impl FnOnce(&mut MoreTables)) -> String {
    let mut tables = more(&dir.join("new"));
    change(&mut tables);
    let message = append_tables(dir.join("base"), &tables, dir.join("failed"), work(1 << 26)).unwrap_err();
    assert!(!dir.join("failed").exists() && !dir.join("failed.importing").exists());
    message.to_string()
}

#[test]
fn faults_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    imported(dir, &[first(), second()]);
    let write = |name: &str, text: &str| fs::write(dir.join("new").join(name), text).unwrap();
    let only = |nodes: &str| {
        let nodes = one(nodes);
        move |tables: &mut MoreTables| {
            *tables = MoreTables { nodes, base: tables.base.clone(), ..MoreTables::default() };
        }
    };
    let with_edges = |edges: &str| {
        let edges = one(edges);
        move |tables: &mut MoreTables| {
            *tables = MoreTables { edges, base: tables.base.clone(), ..MoreTables::default() };
        }
    };
    let expect = |found: String, parts: &[&str]| {
        assert!(parts.iter().all(|part| found.contains(part)), "{found}");
    };
    let head = "id,age,country,label,part,since\n";
    write("known.csv", &format!("{head}u99,1,c0,no,train,1\nu10,1,c0,no,train,1\n"));
    let known = ["1 row with a key that the dataset has: line 2 'u99'", "remove these rows"];
    expect(error(dir, only("user=known.csv")), &known);
    write("class.csv", &format!("{head}u10,1,c0,maybe,train,1\n"));
    expect(error(dir, only("user=class.csv")), &["'maybe' is not one of the classes no, yes"]);
    write("time.csv", "id,age,country\nu10,1,c0\n");
    expect(error(dir, only("user=time.csv")), &["since"]);
    write("ends.csv", "a,b,weight\nu99,u11,1\n");
    expect(error(dir, with_edges("friend=ends.csv")), &["'u11'", "add the rows, or choose dangling"]);
    expect(error(dir, only("users.csv")), &["shop has several node types", "user, item"]);
    expect(error(dir, with_edges("user:owns:item=ends.csv")), &["reverse of 'of'"]);
    expect(error(dir, with_edges("of=ends.csv")), &["come from a column of the nodes 'item'"]);
    expect(error(dir, |tables| tables.splits = vec!["spend=random:1,0,0".into()]), &["'spend'", "spent"]);
    expect(error(dir, |tables| *tables = MoreTables::default()), &["there are no tables"]);
    write("twice.csv", "user,day,spent,part\nu99,300,1.0,train\n");
    expect(error(dir, |tables| tables.targets = one("twice.csv")), &["node and time of an earlier row"]);

    let of = |base: &str, to: &str| {
        let made = append_tables(dir.join(base), &more(&dir.join("new")), dir.join(to), work(1 << 26));
        made.unwrap_err().to_string()
    };
    expect(of("base", "base"), &["name another directory"]);
    let stored = typed::open(dir.join("base"), Verify::Once).unwrap();
    let mut other = stored.clone();
    other.nodes[0].original_ids = Some((0..4).rev().collect::<Vec<u32>>().into());
    other.save(dir.join("reordered")).unwrap();
    expect(of("reordered", "out"), &["append to the dataset that was reordered"]);
    let mut other = stored.clone();
    other.nodes[0].features = None;
    other.save(dir.join("changed")).unwrap();
    expect(of("changed", "out"), &["the columns of nodes 'user'", "import all tables again"]);
    let mut other = stored;
    other.preprocessing = None;
    other.save(dir.join("plain")).unwrap();
    expect(of("plain", "out"), &["was not imported from tables"]);
}

#[test]
fn rows_without_labels_and_unknown_values_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    imported(dir, &[first(), second()]);
    let write = |name: &str, text: &str| fs::write(dir.join("new").join(name), text).unwrap();
    write("plain.csv", "id,age,country,since\nu10,1,c9,3\nu11,2,c1,3\n");
    write("friends.csv", "a,b,weight\nu10,zoe,1\n");
    let tables = MoreTables {
        nodes: one("user=plain.csv"),
        edges: one("friend=friends.csv"),
        dangling: Dangling::Add,
        base: dir.join("new"),
        name: Some("longer".into()),
        ..MoreTables::default()
    };
    let (made, appended) =
        append_tables(dir.join("base"), &tables, dir.join("longer"), work(1 << 26)).unwrap();
    let users = &made.report.nodes[0];
    assert_eq!((users.rows, users.nodes, users.added), (2, 7, 1));
    assert_eq!(users.unknown_values, [("country".to_string(), 1)]);
    assert_eq!(appended.nodes["user"], [4, 3]);
    assert_eq!(appended.edges["user:friend:user"], [5, 2]);
    assert_eq!(appended.tasks["label"], [3, 0]);
    let data = typed::open(dir.join("longer"), Verify::All).unwrap();
    let keys = data.nodes[0].keys.as_ref().unwrap();
    assert_eq!((keys.get(0).to_string(), keys.get(6).to_string()), ("u99".into(), "zoe".into()));
    assert_eq!(data.nodes[0].time.as_ref().unwrap()[3..], [4, 3, 3, i64::MIN]);
    assert_eq!((&data.name[..], data.tasks[0].split.train.len()), ("longer", 1));
    let info = typed::info(&data).to_string();
    assert!(info.contains("appended") && info.contains("to shop (") && info.contains("user +3"), "{info}");
}

#[test]
fn nodes_that_only_edges_name_grow_with_the_edges() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write("old.csv", "src,dst\n5,3\n3,1\n");
    write("new.csv", "src,dst\n2,5\n5,3\n7,2\n");
    let schema = TableSchema {
        nodes: vec![NodeTable { kind: "node".into(), ..NodeTable::default() }],
        edges: vec![EdgeTable {
            kind: "edge".into(),
            files: one("old.csv"),
            src: one("src"),
            dst: one("dst"),
            ..EdgeTable::default()
        }],
        base: dir.to_path_buf(),
        ..TableSchema::default()
    };
    import_tables(&schema, dir.join("base"), None, work(1 << 26)).unwrap();
    let tables = MoreTables { edges: one("new.csv"), base: dir.to_path_buf(), ..MoreTables::default() };
    let (made, _) = append_tables(dir.join("base"), &tables, dir.join("longer"), work(1 << 26)).unwrap();
    let data = made.dataset;
    let keys: Vec<_> = (0..5).map(|v| data.nodes[0].keys.as_ref().unwrap().get(v).to_string()).collect();
    assert_eq!(keys, ["1", "3", "5", "2", "7"], "old nodes keep their ids");
    assert_eq!(data.edges[0].in_neighbors(1), [2], "the edge from 5 to 3 occurs twice");
    assert_eq!(data.edges[0].in_neighbors(2), [3]);
    assert_eq!(data.edges[0].in_neighbors(3), [4]);
}
