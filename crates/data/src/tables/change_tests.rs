//! Tests of rows that change nodes, and of nodes and edges that end. The reference is an import of
//! the final tables, in which a node that ended is a row without a label, edges and targets.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    panic::AssertUnwindSafe,
};

use proptest::{prelude::*, sample::Index};

use super::{
    append_tests::{
        Rows, User, arrays, cell, first, more, one, rows, schema, second, user_line, user_rows, work,
    },
    resume_tests::{Killer, LARGE, SMALL},
    tests::contents,
    *,
};

/// A dataset, and rows that extend, change and end it.
#[derive(Clone, Debug, Default)]
struct Case {
    base: Rows,
    added: Rows,
    /// New columns of users, by number.
    users: BTreeMap<usize, User>,
    /// New owners of items.
    items: BTreeMap<usize, Option<usize>>,
    ended_users: BTreeSet<usize>,
    ended_items: BTreeSet<usize>,
    /// Pairs of friends in `base`.
    ended_friends: BTreeSet<(usize, usize)>,
    /// Users and items of visits in `base`.
    ended_visits: BTreeSet<(usize, usize)>,
}

fn user(u: usize) -> String {
    format!("u{:02}", 99 - u)
}

impl Case {
    /// Rows of the base without those that end, and with the changed ones.
    fn changed_base(&self) -> Rows {
        let mut rows = self.base.clone();
        for &u in &self.ended_users {
            (rows.users[u].2, rows.users[u].3) = (None, 3);
        }
        for (i, owner) in rows.items.iter_mut().enumerate() {
            let is_ended = self.ended_items.contains(&i);
            *owner = owner.filter(|u| !is_ended && !self.ended_users.contains(u));
        }
        let is_user = |u: &usize| !self.ended_users.contains(u);
        let is_pair =
            |u: usize, v: usize| self.ended_friends.contains(&(u, v)) || self.ended_friends.contains(&(v, u));
        rows.friends.retain(|(u, v, _)| is_user(u) && is_user(v) && !is_pair(*u, *v));
        let is_visit = |u: usize, v: usize| !self.ended_visits.contains(&(u, v));
        rows.visits.retain(|(u, v, ..)| is_user(u) && !self.ended_items.contains(v) && is_visit(*u, *v));
        for (&u, &(age, country, label, part, since)) in &self.users {
            let (_, _, old_label, old_part, _) = rows.users[u];
            let part = match (label, old_label) {
                (Some(_), _) if part != 3 => part,
                (_, Some(_)) => old_part,
                _ => 3,
            };
            rows.users[u] = (age, country, label.or(old_label), part, since);
        }
        self.items.iter().for_each(|(&i, &owner)| rows.items[i] = owner);
        rows
    }

    /// Writes the base, the tables that extend it, and the final tables; imports the first and the
    /// last.
    fn write(&self, dir: &Path) {
        self.base.write(&dir.join("old"), [0; 3]);
        import_tables(&schema(&dir.join("old")), dir.join("base"), None, work(1 << 26)).unwrap();
        let known = Preprocessing::read(&dir.join("base")).unwrap();

        let new = dir.join("new");
        let numbers = [self.base.users.len(), self.base.items.len(), self.base.targets.len()];
        self.added.write(&new, numbers);
        let put_first = |file: &str, lines: String, last: String| {
            let text = fs::read_to_string(new.join(file)).unwrap();
            let (head, rest) = text.split_once('\n').unwrap();
            fs::write(new.join(file), format!("{head}\n{lines}{rest}{last}")).unwrap();
        };
        let lines = self.users.iter().map(|(&u, columns)| user_line(u, columns)).collect();
        // a second row of a changed user counts as repeated
        let last = self.users.keys().next().map_or(String::new(), |&u| user_line(u, &(None, 0, None, 3, 0)));
        put_first("users.csv", lines, last);
        let owned = |(i, owner): (&usize, &Option<usize>)| format!("{},{}\n", 700 + i, cell(owner.map(user)));
        put_first("items.csv", self.items.iter().map(owned).collect(), String::new());
        let write = |file: &str, head: &str, lines: Vec<String>| {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            fs::write(new.join(file), format!("{head}\n{lines}")).unwrap();
        };
        write("ended-users.csv", "id", self.ended_users.iter().map(|&u| user(u)).collect());
        write("ended-items.csv", "id", self.ended_items.iter().map(|i| format!("{}", 700 + i)).collect());
        let pair = |&(u, v): &(usize, usize)| format!("{},{}", user(u), user(v));
        write("ended-friends.csv", "a,b", self.ended_friends.iter().map(pair).collect());
        let pair = |&(u, v): &(usize, usize)| format!("{},{}", user(u), 700 + v);
        write("ended-visits.csv", "user,item", self.ended_visits.iter().map(pair).collect());

        let all = dir.join("all");
        self.changed_base().and(&self.added).write(&all, [0; 3]);
        // the rows of targets keep their times
        let text = fs::read_to_string(all.join("targets.csv")).unwrap();
        let mut left = String::new();
        for (i, line) in text.lines().enumerate() {
            let of_base = i.checked_sub(1).and_then(|i| self.base.targets.get(i));
            if of_base.is_none_or(|(u, _)| !self.ended_users.contains(u)) {
                writeln!(left, "{line}").unwrap();
            }
        }
        fs::write(all.join("targets.csv"), left).unwrap();
        import_tables(&schema(&all), dir.join("whole"), Some(&known), work(1 << 26)).unwrap();
    }

    /// Tables that extend the base.
    fn tables(&self, dir: &Path) -> MoreTables {
        let many = |names: &[&str]| Names::Many(names.iter().map(|name| name.to_string()).collect());
        MoreTables {
            changed: Changed::Replace,
            end_nodes: many(&["user=ended-users.csv", "item=ended-items.csv"]),
            end_edges: many(&["friend=ended-friends.csv", "user__visit__item=ended-visits.csv"]),
            ..more(&dir.join("new"))
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let some = |count: usize| prop::collection::vec(any::<Index>(), 0..count);
    let users = prop::collection::vec((any::<Index>(), user_rows()), 0..5);
    let items = prop::collection::vec((any::<Index>(), prop::option::of(any::<Index>())), 0..4);
    let changes = (users, items);
    (rows(), 0usize..11, changes, (some(3), some(3), some(4), some(4))).prop_map(
        |(rows, share, (users, items), ended)| {
            let [base, added] = first().and(&rows).halves(share);
            let all_users = base.users.len() + added.users.len();
            let pick = |list: &[Index], count: usize| list.iter().map(|i| i.index(count)).collect();
            let of = |list: &[Index], pairs: Vec<(usize, usize)>| match pairs.is_empty() {
                true => BTreeSet::new(),
                false => list.iter().map(|i| *i.get(&pairs)).collect(),
            };
            Case {
                users: users.iter().map(|(i, columns)| (i.index(base.users.len()), *columns)).collect(),
                items: items
                    .iter()
                    .map(|(i, owner)| (i.index(base.items.len()), owner.map(|u| u.index(all_users))))
                    .collect(),
                ended_users: pick(&ended.0, base.users.len()),
                ended_items: pick(&ended.1, base.items.len()),
                ended_friends: of(&ended.2, base.friends.iter().map(|&(u, v, _)| (u, v)).collect()),
                ended_visits: of(&ended.3, base.visits.iter().map(|&(u, v, ..)| (u, v)).collect()),
                base,
                added,
            }
        },
    )
}

/// Changes and ends of [`first`], with rows of [`second`].
fn case() -> Case {
    Case {
        base: first(),
        added: second(),
        users: [(0, (Some(70), 2, Some(1), 1, 3)), (3, (None, 1, None, 0, 1))].into(),
        items: [(2, Some(3)), (0, None)].into(),
        ended_users: [1].into(),
        ended_items: [3].into(),
        ended_friends: [(2, 2), (0, 3)].into(),
        ended_visits: [(0, 1)].into(),
    }
}

fn assert_same(found: &Path, expected: &Path) {
    let (found, expected) = (arrays(found), arrays(expected));
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        assert!(found == expected, "{name} differs");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("GRAPHMILL_SOAK").map_or(16, |_| 300)
    ))]
    #[test]
    fn changed_and_ended_rows_are_those_of_an_import_of_the_final_tables(
        case in cases(), small in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        case.write(dir);
        let before = contents(&dir.join("base"));
        let (budget, memory) = if small { (SMALL, 1 << 12) } else { (LARGE, 1 << 26) };
        let longer = dir.join("longer");
        let (made, appended) =
            append_within(&dir.join("base"), &case.tables(dir), &longer, work(memory), Some(budget)).unwrap();
        prop_assert!(contents(&dir.join("base")) == before, "the base is never changed");
        assert_same(&longer, &dir.join("whole"));
        type Counts = BTreeMap<String, u64>;
        let count = |counts: &Counts, kind: &str| counts.get(kind).copied().unwrap_or(0) as usize;
        prop_assert_eq!(count(&appended.changed, "user"), case.users.len());
        prop_assert_eq!(count(&appended.changed, "item"), case.items.len());
        prop_assert_eq!(count(&appended.ended_nodes, "user"), case.ended_users.len());
        prop_assert_eq!(count(&appended.ended_nodes, "item"), case.ended_items.len());
        let users = [&case.base, &case.added].map(|rows| rows.users.len() as u64);
        prop_assert_eq!(appended.nodes["user"], users);
        let users = &made.report.nodes[0];
        prop_assert_eq!(users.changed as usize, case.users.len());
        prop_assert_eq!(users.repeated_keys as usize, case.users.len().min(1));
    }
}

#[test]
fn killed_changes_resume_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let case = case();
    case.write(dir);
    let (base, tables) = (dir.join("base"), case.tables(dir));
    let run = |name: &str, at: u64| {
        let killer = Killer::new(at);
        let work = Work { memory: Some(1 << 26), replace: false, progress: Box::new(killer.clone()) };
        let append = || append_within(&base, &tables, &dir.join(name), work, Some(SMALL));
        let done = std::panic::catch_unwind(AssertUnwindSafe(append));
        done.ok().map(|done| done.map(|_| killer.checks()).unwrap())
    };
    let checks = run("whole-run", 0).unwrap();
    let expected = contents(&dir.join("whole-run"));
    assert_same(&dir.join("whole-run"), &dir.join("whole"));
    for at in (1..=checks).step_by(7) {
        let name = format!("killed-{at}");
        assert!(run(&name, at).is_none(), "killed at check {at}");
        assert!(!dir.join(&name).exists(), "nothing is half-written");
        run(&name, 0).unwrap();
        assert!(contents(&dir.join(&name)) == expected, "killed at check {at} of {checks}");
    }
}

#[test]
fn ended_nodes_keep_their_numbers_and_are_named_by_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    case().write(dir);
    fs::write(dir.join("new/ended.csv"), "id\nu98\nu96\n").unwrap();
    let tables =
        MoreTables { end_nodes: one("user=ended.csv"), base: dir.join("new"), ..MoreTables::default() };
    append_tables(dir.join("base"), &tables, dir.join("less"), work(1 << 26)).unwrap();
    let [before, data] = ["base", "less"].map(|name| typed::open(dir.join(name), Verify::All).unwrap());
    assert_eq!(data.num_nodes(), before.num_nodes());
    assert_eq!(data.nodes[0].keys.as_ref().unwrap().get(1).to_string(), "u98");
    for edges in &data.edges {
        let is_user = |name: &str| name == "user";
        for (&u, v) in edges.indices.iter().zip(edges.destinations()) {
            let [u, v] = [
                is_user(&edges.edge_type.source) && [1, 3].contains(&u),
                is_user(&edges.edge_type.destination) && [1, 3].contains(&v),
            ];
            assert!(!u && !v, "{}", edges.edge_type);
        }
    }
    for task in &data.tasks {
        let rows = data.rows_of(task) as u32;
        assert!(task.split.parts().iter().all(|(_, part)| part.iter().all(|&row| row < rows)));
        if let Some(typed::Seeds::Nodes(ids)) = &task.seeds {
            assert!(ids.iter().all(|v| ![1, 3].contains(v)));
        }
    }
    let info = typed::info(&data).to_string();
    assert!(info.contains("user 2 ended") && info.contains("friend:user 4 ended"), "{info}");
}

#[test]
fn nodes_without_a_table_end_by_a_table_of_one_column() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write("edges.csv", "src,dst\n5,3\n3,1\n1,5\n");
    write("ended.csv", "any\n3\n");
    write("wide.csv", "any,other\n3,1\n");
    let schema = TableSchema {
        nodes: vec![NodeTable { kind: "node".into(), ..NodeTable::default() }],
        edges: vec![EdgeTable {
            kind: "edge".into(),
            files: one("edges.csv"),
            src: one("src"),
            dst: one("dst"),
            ..EdgeTable::default()
        }],
        base: dir.to_path_buf(),
        ..TableSchema::default()
    };
    import_tables(&schema, dir.join("base"), None, work(1 << 26)).unwrap();
    let append = |file: &str, to: &str| {
        let tables = MoreTables { end_nodes: one(file), base: dir.to_path_buf(), ..MoreTables::default() };
        append_tables(dir.join("base"), &tables, dir.join(to), work(1 << 26))
    };
    let data = append("ended.csv", "less").unwrap().0.dataset;
    // 1 -> 5 is left
    assert_eq!((data.num_nodes(), data.num_edges()), (3, 1));
    assert_eq!(data.edges[0].in_neighbors(2), [0]);
    let found = append("wide.csv", "failed").unwrap_err().to_string();
    assert!(found.contains("has 2 columns; leave one, of the keys"), "{found}");
}

#[test]
fn unknown_ends_are_refused_or_dropped_and_known_nodes_kept() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    case().write(dir);
    let write = |name: &str, text: &str| fs::write(dir.join("new").join(name), text).unwrap();
    write("nodes.csv", "id\nzoe\nu99\nbob\n");
    write("edges.csv", "a,b\nu99,u97\nu98,u99\n");
    write("owners.csv", "id,owner\n700,u99\n");
    let ends = |nodes: &str, edges: &str, dangling| MoreTables {
        end_nodes: if nodes.is_empty() { Names::None } else { one(nodes) },
        end_edges: if edges.is_empty() { Names::None } else { one(edges) },
        base: dir.join("new"),
        dangling,
        ..MoreTables::default()
    };
    let error = |tables: &MoreTables, parts: &[&str]| {
        let found = append_tables(dir.join("base"), tables, dir.join("failed"), work(1 << 26));
        let found = found.unwrap_err().to_string();
        assert!(parts.iter().all(|part| found.contains(part)), "{found}");
        assert!(!dir.join("failed").exists() && !dir.join("failed.importing").exists());
    };
    let nodes = ["2 rows with a key that the dataset does not have: line 2 'zoe'", "dangling = drop"];
    error(&ends("user=nodes.csv", "", Dangling::Error), &nodes);
    error(&ends("user=nodes.csv", "", Dangling::Add), &nodes);
    let edges = ["1 row with an edge that the dataset does not have: line 2 'u99' -> 'u97'"];
    error(&ends("", "friend=edges.csv", Dangling::Error), &edges);
    error(&ends("", "of=owners.csv", Dangling::Error), &["come from a column of the nodes 'item'"]);
    error(&ends("user=edges.csv", "", Dangling::Error), &["there is no column 'id'"]);

    let tables = ends("user=nodes.csv", "friend=edges.csv", Dangling::Drop);
    let (made, appended) = append_tables(dir.join("base"), &tables, dir.join("less"), work(1 << 26)).unwrap();
    let counts: Vec<_> = made.report.ends.iter().map(|of| (of.rows, of.ended, of.unknown)).collect();
    assert_eq!(counts, [(3, 1, 2), (2, 1, 1)]);
    assert_eq!(appended.ended_nodes, [("user".to_string(), 1)].into());

    let of = |changed| MoreTables {
        changed,
        base: dir.join("new"),
        nodes: one("user=known.csv"),
        ..MoreTables::default()
    };
    write("known.csv", "id,age,country,label,part,since\nu99,1,c2,yes,test,7\n");
    let append = |changed, name: &str| {
        append_tables(dir.join("base"), &of(changed), dir.join(name), work(1 << 26)).unwrap().0
    };
    let kept = append(Changed::Keep, "kept");
    assert_same(&dir.join("kept"), &dir.join("base"));
    assert_eq!((kept.report.nodes[0].unchanged, kept.report.nodes[0].changed), (1, 0));
    // rows that are left out have no edges: their owners are not looked up
    write("items.csv", "id,owner\n700,zoe\n");
    let items = MoreTables { nodes: one("item=items.csv"), ..of(Changed::Keep) };
    for (dangling, name) in [(Dangling::Error, "as-it-is"), (Dangling::Add, "as-it-is-too")] {
        let tables = MoreTables { dangling, ..items.clone() };
        append_tables(dir.join("base"), &tables, dir.join(name), work(1 << 26)).unwrap();
        assert_same(&dir.join(name), &dir.join("base"));
    }
    let replaced = append(Changed::Replace, "replaced");
    assert_eq!(replaced.report.nodes[0].changed, 1);
    let data = typed::open(dir.join("replaced"), Verify::All).unwrap();
    assert_eq!(data.nodes[0].time.as_ref().unwrap()[0], 7);
    let task = data.task("label").unwrap();
    assert!(!task.split.train.contains(&0) && task.split.test.contains(&0), "the row names its part");
    // the row of a target is at time 300
    write("late.csv", "id,age,country,label,part,since\nu99,1,c2,yes,test,301\n");
    let late = MoreTables { nodes: one("user=late.csv"), ..of(Changed::Replace) };
    error(&late, &["1 row of the task 'spent'", "correct the times of the changed nodes"]);
    let unused = MoreTables { nodes: Names::None, edges: one("friend=edges.csv"), ..of(Changed::Keep) };
    error(&unused, &["changed has no effect without tables of nodes"]);
    error(&of(Changed::Fail), &["1 row with a key that the dataset has: line 2 'u99'", "changed = replace"]);
}

#[test]
fn labels_of_rows_that_are_left_out_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    case().write(dir);
    let append = |new: &str, changed, name: &str| {
        // the label and the part of the split of the known node are no words of the dataset
        let rows = format!("id,age,country,label,part,since\nu99,1,c2,maybe,best,7\n{new}");
        fs::write(dir.join("new/faulty.csv"), rows).unwrap();
        let tables = MoreTables {
            changed,
            base: dir.join("new"),
            nodes: one("user=faulty.csv"),
            ..MoreTables::default()
        };
        append_tables(dir.join("base"), &tables, dir.join(name), work(1 << 26))
    };
    let (made, _) = append("new,1,c2,no,train,7\n", Changed::Keep, "kept").unwrap();
    assert_eq!(made.report.nodes[0].unchanged, 1);
    let error = |new: &str, changed, parts: &[&str]| {
        let found = append(new, changed, "failed").unwrap_err().to_string();
        assert!(parts.iter().all(|part| found.contains(part)), "{found}");
    };
    let labels = "column 'label': 'maybe' is not one of the classes";
    error("new,1,c2,no,train,7\n", Changed::Replace, &[labels]);
    let new = "line 3: column 'label': 'perhaps' is not one of the classes";
    error("new,1,c2,perhaps,train,7\n", Changed::Keep, &["the tables have 1 fault:", new]);
}
