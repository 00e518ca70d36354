//! Tests of tables as databases have them: rows without a key, times of foreign keys, and splits of
//! targets by files.

use std::{fmt::Write as _, fs};

use super::{
    resume_tests::{LARGE, SMALL, run},
    tests::{contents, error_of, fails, import_into},
    *,
};
use crate::typed::{EdgeType, Keys};

/// 1 March 2024 in seconds since 1970.
const MARCH: i64 = 1_709_251_200;
const DAY: i64 = 86_400;
const RESULTS: usize = 12;

const DRIVERS: &str = "[[nodes]]\ntype = \"driver\"\nfiles = \"drivers.csv\"\nid = \"code\"\n";
const RACES: &str = "[[nodes]]\ntype = \"race\"\nfiles = \"races.csv\"\nid = \"id\"\ntime = \"date\"\n";
const TARGETS: &str = "[[targets]]\nname = \"top3\"\non = \"driver\"\nid = \"who\"\ntime = \"day\"\nlabel = \
                       \"won\"\n";

/// Table of results, with further lines.
fn results(lines: &str) -> String {
    format!(
        "[[nodes]]\ntype = \"result\"\ntime = \"date\"\nfiles = \"results.csv\"\n{lines}\nforeign_keys = \
         [\n{{ column = \"driver\", to = \"driver\", time = \"date\", reverse = \"rev_driver\" }},\n{{ \
         column = \"race\", to = \"race\", reverse = \"rev_race\" }},\n]\n"
    )
}

/// Schema of results without a key, and of targets by files.
fn schema() -> String {
    let parts = "train = \"train.csv\"\nvalid = \"valid.csv\"\ntest = [\"test.csv\", \"masked.csv\"]\n";
    ["name = \"f1\"\n", DRIVERS, RACES, &results(""), TARGETS, parts].concat()
}

/// Rows of results from number `first` on: driver, race, day and points.
fn result_rows(first: usize, count: usize) -> String {
    let mut rows = String::from("driver,race,date,points\n");
    for i in first..first + count {
        // a result without a driver has no edge to one
        let driver = ["ham", "ver", "", "alo"][i % 4];
        writeln!(rows, "{driver},{},2024-03-{:02},{}.5", i % 5, 1 + i, i * i % 7).unwrap();
    }
    rows
}

/// Rows of targets: each driver on some days.
fn target_rows(days: std::ops::Range<usize>) -> impl Iterator<Item = (&'static str, usize, &'static str)> {
    days.flat_map(|day| ["ham", "ver", "alo"].map(|who| (who, day, ["no", "yes"][(day + who.len()) % 2])))
}

fn write_tables(dir: &Path) {
    let mut races = String::from("id,date,laps\n");
    (0..5).for_each(|i| writeln!(races, "{i},2024-03-{:02},{}", 1 + i, 50 + i).unwrap());
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write("drivers.csv", "code,born\nham,1985\nver,1997\nalo,1981\n");
    write("races.csv", &races);
    write("results.csv", &result_rows(0, RESULTS));
    let keyed = result_rows(0, RESULTS).lines().enumerate().fold(String::new(), |mut text, (i, line)| {
        let key = i.checked_sub(1).map_or("number".to_string(), |i| i.to_string());
        writeln!(text, "{key},{line}").unwrap();
        text
    });
    write("keyed.csv", &keyed);
    let mut all = String::from("who,day,won,fold\n");
    for (name, fold, days) in [("train", "train", 6..8), ("valid", "valid", 8..9), ("test", "test", 9..10)] {
        let mut text = String::from("who,day,won\n");
        for (who, day, won) in target_rows(days) {
            writeln!(text, "{who},2024-03-{day:02},{won}").unwrap();
            writeln!(all, "{who},2024-03-{day:02},{won},{fold}").unwrap();
        }
        write(&format!("{name}.csv"), &text);
    }
    // the label is masked
    let mut masked = String::from("day,who\n");
    for (who, day, _) in target_rows(10..11) {
        writeln!(masked, "2024-03-{day:02},{who}").unwrap();
        writeln!(all, "{who},2024-03-{day:02},,test").unwrap();
    }
    write("masked.csv", &masked);
    write("all.csv", &all);
}

fn schema_in(dir: &Path, text: &str) -> TableSchema {
    let mut schema = TableSchema::parse(text, Path::new("schema.toml")).unwrap();
    schema.base = dir.to_path_buf();
    schema
}

/// Arrays of a dataset, by path.
fn arrays(dir: &Path) -> Vec<(String, Vec<u8>)> {
    contents(dir).into_iter().filter(|(name, _)| name.ends_with(".npy")).collect()
}

fn assert_same(found: &[(String, Vec<u8>)], expected: &[(String, Vec<u8>)]) {
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        assert!(found == expected, "{name} differs");
    }
}

#[test]
fn rows_without_a_key_and_files_of_a_split_are_those_of_a_key_and_a_column() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let [plain, keyed, small] = ["plain", "keyed", "small"].map(|name| dir.path().join(name));
    let schema = schema_in(dir.path(), &schema());
    let done = import_into(&schema, &plain, None).unwrap();
    let with_keys = results("id = \"number\"").replace("results.csv", "keyed.csv");
    let by_column = "files = \"all.csv\"\nsplit = \"column:fold\"\n";
    let other = ["name = \"f1\"\n", DRIVERS, RACES, &with_keys, TARGETS, by_column].concat();
    import_into(&schema_in(dir.path(), &other), &keyed, None).unwrap();
    assert_same(&arrays(&plain), &arrays(&keyed));
    import_into(&schema, &small, Some(Budget { cache: 0, keys: 0, recorded: 0 })).unwrap();
    assert_same(&arrays(&small), &arrays(&plain));

    let data = &done.dataset;
    let of = |source: &str, name: &str, to: &str| data.edge_type(&EdgeType::new(source, name, to)).unwrap();
    let Some(Keys::Integers(keys)) = &data.node_type("result").unwrap().keys else { unreachable!() };
    assert_eq!(keys[..], (0..RESULTS as i64).collect::<Vec<_>>()[..]);
    // a quarter of the results names no driver
    let driven = of("result", "driver", "driver");
    assert_eq!(driven.num_edges(), RESULTS * 3 / 4);
    assert_eq!(driven.in_neighbors(1), [1, 5, 9], "results of the second driver");
    let days = |days: &[i64]| days.iter().map(|day| MARCH + day * DAY).collect::<Vec<_>>();
    assert_eq!(driven.time.as_ref().unwrap()[driven.row(1)], days(&[1, 5, 9])[..]);
    let back = of("driver", "rev_driver", "result");
    assert_eq!(back.time.as_ref().unwrap()[back.row(5)], days(&[5])[..]);
    assert!(back.in_neighbors(2).is_empty());
    let of_race = of("result", "race", "race");
    assert!(of_race.time.is_none() && of_race.num_edges() == RESULTS);
    let task = data.task("top3").unwrap();
    let split = &task.split;
    assert_eq!([split.train.len(), split.valid.len(), split.test.len()], [6, 3, 3]);
    assert_eq!((data.rows_of(task), &split.test[..]), (15, &[9, 10, 11][..]));
    let text = done.report.to_string();
    for part in [
        "nodes 'result': 12 nodes, 1 feature",
        "split files: 6 train, 3 validate, 3 test",
        "3 rows without a label, which are predicted",
        "3 rows of the split left out, because the label is missing",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let planned = plan(&schema, None).unwrap().schema;
    let again = TableSchema::parse(&planned.to_string(), Path::new("schema.toml")).unwrap();
    assert_eq!(again.targets, schema.targets);
    assert_eq!(again.nodes[2].foreign_keys, schema.nodes[2].foreign_keys);
}

#[test]
fn killed_imports_of_databases_resume_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let schema = schema_in(dir.path(), &schema());
    let whole = dir.path().join("whole");
    let (checks, _) = run(&schema, &whole, SMALL, 0).unwrap();
    for budget in [SMALL, LARGE] {
        for k in 1..=5 {
            let dst = dir.path().join(format!("killed-{k}"));
            let at = (checks * k / 6).max(1);
            if run(&schema, &dst, budget, at).is_none() {
                run(&schema, &dst, budget, 0).unwrap();
            }
            assert!(contents(&dst) == contents(&whole), "killed at {at} of {checks}, {budget:?}");
            fs::remove_dir_all(&dst).unwrap();
        }
    }
}

#[test]
fn rows_without_a_key_and_targets_of_files_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write_tables(dir);
    let work = || Work { memory: Some(1 << 26), ..Work::default() };
    let schema = schema_in(dir, &schema());
    import_tables(&schema, dir.join("base"), None, work()).unwrap();
    let known = Preprocessing::read(&dir.join("base")).unwrap();
    fs::write(dir.join("more.csv"), result_rows(RESULTS, 4)).unwrap();
    fs::write(dir.join("asked.csv"), "who,day,won\nham,2024-03-20,yes\n").unwrap();
    let one = |name: &str| Names::One(name.into());
    let mut more = MoreTables { nodes: one("result=more.csv"), base: dir.into(), ..MoreTables::default() };
    append_tables(dir.join("base"), &more, dir.join("longer"), work()).unwrap();
    fs::write(dir.join("results.csv"), result_rows(0, RESULTS + 4)).unwrap();
    import_tables(&schema, dir.join("all"), Some(&known), work()).unwrap();
    assert_same(&arrays(&dir.join("longer")), &arrays(&dir.join("all")));
    // no rule divides rows of the task
    more.targets = one("top3=asked.csv");
    let error = append_tables(dir.join("base"), &more, dir.join("none"), work()).unwrap_err().to_string();
    assert!(error.contains("name one, as in --split top3=random:60,20,20"), "{error}");
    more.splits = vec!["top3=random:100,0,0".into()];
    let (made, appended) = append_tables(dir.join("base"), &more, dir.join("asked"), work()).unwrap();
    assert_eq!((appended.nodes["result"], appended.tasks["top3"]), ([12, 4], [12, 1]));
    assert!(made.dataset.task("top3").unwrap().split.train[6..] == [15]);
}

#[test]
fn targets_from_before_their_node_exists_are_dropped_on_request() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let targets = "[[targets]]\nname = \"laps\"\non = \"race\"\nid = \"race\"\ntime = \"day\"\nlabel = \
                   \"long\"\ntrain = \"a.csv\"\ntest = \"b.csv\"\n";
    let text = format!("dangling = \"drop\"\n{RACES}{targets}");
    let a = "race,day,long\n0,2024-03-01,yes\n4,2024-03-01,no\n1,2024-03-02,no\n";
    let b = "race,day,long\n9,2024-03-09,no\n3,2024-03-01,no\n4,2024-03-05,yes\n";
    for (name, text) in [("a.csv", a), ("b.csv", b)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    for budget in [None, Some(SMALL)] {
        let out = dir.path().join(format!("out-{}", budget.is_some()));
        let done = import_into(&schema_in(dir.path(), &text), &out, budget).unwrap();
        let task = done.dataset.task("laps").unwrap();
        assert_eq!((done.dataset.rows_of(task), &task.split.train[..]), (3, &[0, 1][..]));
        assert_eq!((&task.split.test[..], task.split.valid.len()), (&[2][..], 0));
        let place = |name: &str, line| format!("{}: line {line}", dir.path().join(name).display());
        let report = done.report.to_string();
        let (early, gone) = ([place("a.csv", 3), place("b.csv", 3)].join(", "), place("b.csv", 2));
        for part in [
            format!("2 rows dropped, because the node exists only later: {early}"),
            format!("1 row dropped, because the node has no row: {gone} '9'"),
        ] {
            assert!(report.contains(&part), "{part} is not in\n{report}");
        }
    }
    let races = fs::read_to_string(dir.path().join("races.csv")).unwrap();
    let known = b.replace("9,2024-03-09,no\n", "");
    let files = [("races.csv", &races[..]), ("a.csv", a), ("b.csv", &known[..])];
    let error = error_of(&files, &text.replace("dangling = \"drop\"\n", ""));
    let part = "2 rows with a time before that from which the node exists: a.csv: line 3, b.csv: line 2; \
                remove these rows, correct the time of the node, or choose dangling = drop";
    assert!(error.contains(part), "{error}");
}

#[test]
fn tables_in_memory_are_the_parts_of_a_split() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let [files, memory] = ["files", "memory"].map(|name| dir.path().join(name));
    let parts = "train = \"train.csv\"\nvalid = \"valid.csv\"\ntest = \"masked.csv\"\n";
    let text = format!("name = \"f1\"\n{DRIVERS}{TARGETS}{parts}");
    let mut schema = schema_in(dir.path(), &text);
    import_into(&schema, &files, None).unwrap();
    for name in ["train.csv", "valid.csv", "masked.csv"] {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        let mut lines = text.lines().map(|line| line.split(','));
        let names: Vec<&str> = lines.next().unwrap().collect();
        let object = |cells: std::str::Split<'_, char>| {
            names.iter().zip(cells).map(|(name, cell)| (name.to_string(), cell.into())).collect()
        };
        let rows: Vec<serde_json::Map<String, serde_json::Value>> = lines.map(object).collect();
        schema.memory.insert(name.into(), MemoryTable::of_objects(&rows).unwrap());
    }
    import_into(&schema, &memory, None).unwrap();
    assert_same(&arrays(&memory), &arrays(&files));
    schema.memory.remove("valid.csv");
    let error = import_into(&schema, &dir.path().join("mixed"), None).unwrap_err().to_string();
    assert!(error.contains("pass all of them in one way"), "{error}");
}

#[test]
fn schemas_of_databases_are_checked() {
    let files = [
        ("drivers.csv", "code\nham\nver\n"),
        ("results.csv", "driver,date,when\nham,1,soon\n,2,late\n"),
        ("a.csv", "who,won\nham,no\nver,yes\n"),
        ("b.csv", "won\nno\nyes\n"),
    ];
    let foreign = |lines: &str| {
        format!(
            "{DRIVERS}[[nodes]]\ntype = \"result\"\nfiles = \"results.csv\"\nforeign_keys = [{{ column = \
             \"driver\", to = \"driver\"{lines} }}]\n"
        )
    };
    let keyless = DRIVERS.replace("id = \"code\"\n", "");
    let wrong =
        "nodes 'driver': id is missing: name the column of the key, by which foreign keys of 'result'";
    fails(&files, &foreign("").replace(DRIVERS, &keyless), &[wrong]);
    let own = "[[edges]]\nfiles = \"a.csv\"\nsrc = \"who\"\ndst = \"who\"\n";
    fails(&files, &format!("{keyless}{own}"), &["by which edges 'edge' name the nodes"]);
    fails(&files, &foreign(", time = \"day\""), &["results.csv: there is no column 'day'"]);
    fails(&files, &foreign(", time = \"when\""), &["results.csv: column 'when': not every value is one of"]);
    let targets =
        |lines: &str| format!("{DRIVERS}[[targets]]\nname = \"t\"\nid = \"who\"\nlabel = \"won\"\n{lines}\n");
    fails(&files, &targets(""), &["targets 't': files is missing: name the table, or the tables train"]);
    fails(&files, &targets("test = \"a.csv\""), &["targets 't': train is missing"]);
    let both = "train = \"a.csv\"\nfiles = \"a.csv\"\nsplit = \"random:60,20,20\"";
    let wrong = ["files stands beside train, valid and test", "are the split already; leave the rule out"];
    fails(&files, &targets(both), &wrong);
    let wrong = "b.csv: columns: the columns differ from those of a.csv: missing: 'who'; added: none";
    fails(&files, &targets("train = \"a.csv\"\ntest = \"b.csv\""), &[wrong]);
}
