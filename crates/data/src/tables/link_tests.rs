//! Tests of tables of links at times.

use std::fs;

use super::{
    tests::{error_of, import_into},
    *,
};
use crate::typed::{EdgeType, Seeds, TaskKind, TaskOn};

const USERS: &str = "name,age\nann,30\nbob,40\ncid,50\n";
const FILMS: &str = "number,length,added\n10,90,1\n20,95,1\n30,100,6\n";

const NODES: &str = r#"
[[nodes]]
type = "user"
files = "users.csv"
id = "name"

[[nodes]]
type = "film"
files = "films.csv"
id = "number"
time = "added"
"#;

const LINKS: &str = r#"
[[links]]
name = "watches"
files = "watches.csv"
source = "user"
src = "who"
destination = "film"
dst = "what"
time = "day"
metric = "map@3"
"#;

/// Import of the tables in `dir` by the schema `text`, with this table of links.
fn import(dir: &Path, text: &str, watches: &str) -> ImportedTables {
    for (name, text) in [("users.csv", USERS), ("films.csv", FILMS), ("watches.csv", watches)] {
        fs::write(dir.join(name), text).unwrap();
    }
    let mut schema = TableSchema::parse(text, Path::new("schema.toml")).unwrap();
    schema.base = dir.to_path_buf();
    import_into(&schema, &dir.join("out"), None).unwrap()
}

/// Seeds, times and split of the task of the table `watches`, which `links` describes.
fn imported(links: &str, watches: &str) -> (Vec<u32>, Vec<i64>, [Vec<u32>; 3], TargetReport) {
    let dir = tempfile::tempdir().unwrap();
    let ImportedTables { dataset, report } = import(dir.path(), &format!("{NODES}{links}"), watches);
    let task = dataset.task("watches").unwrap();
    assert_eq!(task.kind(), Some(TaskKind::LinkPrediction));
    assert_eq!(task.on, TaskOn::Edges(EdgeType::new("user", "watches", "film")));
    assert_eq!(task.metric.as_deref(), Some("map@3"));
    assert!(dataset.edges.is_empty(), "pairs are no edges");
    let Some(Seeds::Pairs(pairs)) = &task.seeds else { panic!("pairs") };
    let split = task.split.parts().map(|(_, rows)| rows.to_vec());
    (pairs.to_vec(), task.time.as_ref().unwrap().to_vec(), split, report.targets[0].clone())
}

#[test]
fn rows_become_pairs_at_times_and_equal_times_stay_together() {
    let watches = "who,what,day\nann,10,7\nann,20,7\nbob,30,8\ncid,10,9\nbob,20,9\n";
    let (pairs, times, split, report) = imported(LINKS, watches);
    assert_eq!(pairs, [0, 0, 0, 1, 1, 2, 2, 0, 1, 1]);
    assert_eq!(times, [7, 7, 8, 9, 9]);
    assert_eq!(split, [vec![0, 1, 2], vec![], vec![3, 4]]);
    assert_eq!(report.labels.split_rule, "time:day:60,20,20 (the default)");
    let halves = LINKS.replace("metric", "split = \"time:day:40,20,40\"\nmetric");
    assert_eq!(imported(&halves, watches).2, [vec![0, 1], vec![2], vec![3, 4]]);
}

#[test]
fn a_list_is_a_pair_for_each_destination() {
    let watches = "who,what,day\nann,\"[10, 20]\",7\nbob,[],7\ncid,[30],8\n";
    let (pairs, times, _, report) = imported(LINKS, watches);
    assert_eq!(pairs, [0, 0, 0, 1, 2, 2]);
    assert_eq!((times, report.targets), (vec![7, 7, 8], 3));
    assert_eq!(report.labels.split_without_label, 1, "a row without destinations is left out");
}

#[test]
fn rows_without_a_node_or_before_it_are_dropped_if_asked() {
    let watches = "who,what,day\nann,10,7\neve,10,7\nbob,99,7\ncid,30,5\n,10,7\n";
    let dir = tempfile::tempdir().unwrap();
    let done = import(dir.path(), &format!("dangling = \"drop\"\n{NODES}{LINKS}"), watches);
    assert_eq!(done.dataset.rows_of(done.dataset.task("watches").unwrap()), 1);
    let report = &done.report.targets[0];
    assert_eq!((report.targets, report.dangling, report.early), (1, 3, 1));

    // films that do not exist yet are left out in any case
    let later = imported(LINKS, "who,what,day\nann,10,7\nann,30,5\n");
    assert_eq!((later.0, later.3.early), (vec![0, 0], 1));
    let early = LINKS.replace("source = \"user\"", "source = \"film\"").replace("\"who\"", "\"from\"");
    let text = "from,what,day\n30,30,5\n";
    let files = [("users.csv", USERS), ("films.csv", FILMS), ("watches.csv", text)];
    let error = error_of(&files, &format!("{NODES}{early}"));
    let part = "1 row with a time before that from which its source exists: line 2";
    assert!(error.contains(part), "{error}");
    let files = [("users.csv", USERS), ("films.csv", FILMS), ("watches.csv", watches)];
    let error = error_of(&files, &format!("{NODES}{LINKS}"));
    for part in [
        "1 row with a node that is not in the table of 'user': line 3 'eve'",
        "1 row with a node that is not in the table of 'film': line 4 '99'",
        "1 row without the key of a source: line 6",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn unusable_tables_of_links_are_refused_with_a_remedy() {
    let watches = "who,what,day\nann,10,7\n";
    let files = [("users.csv", USERS), ("films.csv", FILMS), ("watches.csv", watches)];
    let error = |change: &dyn Fn(String) -> String| error_of(&files, &change(format!("{NODES}{LINKS}")));
    for (from, to, expected) in [
        ("source = \"user\"", "source = \"userr\"", "links 'watches': 'userr' is not a node type"),
        ("destination = \"film\"\n", "", "links 'watches': destination is missing: name one of user, film"),
        ("files = \"watches.csv\"", "test = \"watches.csv\"", "links 'watches': train is missing"),
        ("metric", "split = \"random:60,20,20\"\nmetric", "links are split by the times of their rows"),
        ("dst = \"what\"", "dst = \"which\"", "'which'"),
    ] {
        let message = error(&|text| text.replace(from, to));
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let texts = [files[0], files[1], ("watches.csv", "who,what,day\nann,[10],7\nbob,[1.5],7\n")];
    let message = error_of(&texts, &format!("{NODES}{LINKS}"));
    assert!(message.contains("column 'what': 1.5 is not an integer below 2^53"), "{message}");
}
