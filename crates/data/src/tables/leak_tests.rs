//! Tests of columns that determine the label of a table of targets.

use std::fmt::Write as _;

use super::{
    tests::{contents, import_into},
    *,
};

const NODES: usize = 120;

/// Class of a node, in no order.
fn class(v: usize) -> usize {
    (graphmill_core::keyed::key(&[v as u64]) % 2) as usize
}

/// Report of nodes of the columns `header`, and of `rows` targets of each node with the columns
/// `id;asked;` and `targets`, of which `label` is the label.
fn import(
    (header, node): (&str, &dyn Fn(usize) -> String),
    (targets, rows, target): (&str, usize, &dyn Fn(usize, usize) -> String),
    lines: &str,
    budget: Option<Budget>,
) -> (TableReport, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let mut nodes = format!("id;{header}\n");
    (0..NODES).for_each(|v| writeln!(nodes, "n{v};{}", node(v)).unwrap());
    let mut all = format!("id;asked;{targets}\n");
    // the rows of a node are not next to each other
    for i in 0..rows {
        (0..NODES).rev().for_each(|v| writeln!(all, "n{v};2024-0{}-15;{}", i + 1, target(v, i)).unwrap());
    }
    fs::write(dir.path().join("nodes.csv"), nodes).unwrap();
    fs::write(dir.path().join("targets.csv"), all).unwrap();
    let text = format!(
        "[[nodes]]\ntype = \"user\"\nfiles = \"nodes.csv\"\nid = \"id\"\n{lines}\n[[targets]]\nfiles = \
         \"targets.csv\"\nid = \"id\"\ntime = \"asked\"\nlabel = \"left\"\n"
    );
    let schema =
        TableSchema { base: dir.path().into(), ..TableSchema::parse(&text, Path::new("s")).unwrap() };
    let report = import_into(&schema, &dir.path().join("out"), budget).unwrap().report;
    (report, dir)
}

/// Warnings of targets, without those of nodes.
fn warnings(report: &TableReport) -> Vec<String> {
    assert!(report.nodes.iter().all(|nodes| nodes.labels.leaks.is_empty()));
    report.targets[0].labels.leaks.iter().map(Leak::to_string).collect()
}

/// Warnings about columns of nodes for a label that `left` gives by node and month.
fn of_nodes(
    header: &str,
    node: &dyn Fn(usize) -> String,
    left: &dyn Fn(usize, usize) -> String,
) -> Vec<String> {
    warnings(&import((header, node), ("left", 2, left), "", None).0)
}

#[test]
fn columns_of_nodes_that_determine_a_target_are_pointed_out() {
    let left = |v: usize, _: usize| class(v).to_string();
    let of = |node: &dyn Fn(usize) -> String| of_nodes("x", node, &left);
    let rows =
        (0..NODES).filter(|&v| class(v) == 1).count().min((0..NODES).filter(|&v| class(v) == 0).count());
    let rarest = 2 * rows;
    let out = "; if a prediction does not know it, leave it out of nodes 'user' (column x=ignore)";
    assert_eq!(
        of(&|v| format!("c{}", class(v))),
        [format!(
            "column 'x' determines the label 'left': its values imply it in 100 % of 240 labelled rows, \
             each value by at least {rarest} rows{out}"
        )]
    );
    let day = |v: usize| format!("2024-01-{:02}", v % 5 + 1);
    assert_eq!(
        of(&|v| if class(v) == 1 { day(v) } else { String::new() }),
        [format!(
            "column 'x' determines the label 'left': whether it has a value implies it in 100 % of 240 \
             labelled rows, {rarest} of them of the rarest class{out}"
        )]
    );
    let found = of(&|v| (500 * class(v) + v).to_string());
    assert!(found[0].contains("the ranges of its numbers do not overlap between the classes"), "{found:?}");
    // numbers
    let found = of_nodes("x", &|v| (v * v % 97).to_string(), &|v, _| format!("{}.5", v * v % 97 * 100));
    assert!(found[0].contains("a linear function of it gives 100 % of the variance, of 240"), "{found:?}");
    let found = of_nodes("x", &|v| format!("k{}", v % 4), &|v, _| format!("{}.5", v % 4));
    assert!(found[0].contains("its values imply it in 100 % of 240 labelled rows"), "{found:?}");
    // a date that is known only after the targets, of a label that it does not determine
    let found =
        of_nodes("x", &|v| format!("2024-02-{:02}", v % 9 + 1), &|v, i| class(v + 999 * i).to_string());
    assert_eq!(
        found,
        [format!(
            "column 'x' may be known only after the label 'left': 50 % of its dates are after the time of \
             their row, 120 of 240 labelled rows{out}"
        )]
    );
}

#[test]
fn many_targets_of_few_nodes_point_out_nothing() {
    // a code of five nodes and a date of one: nine rows of each node
    let left = |v: usize, _: usize| class(v).to_string();
    let of = |node: &dyn Fn(usize) -> String, lines: &str| {
        warnings(&import(("x", node), ("left", 9, &left), lines, None).0)
    };
    let rule = "columns = { x = \"category\" }";
    assert!(of(&|v| format!("p{}", v / 10 * 2 + class(v)), rule).is_empty());
    let day = |v: usize| format!("19{:02}-{:02}-01", 50 + v / 12, v % 12 + 1);
    assert!(of(&day, "").is_empty());
    // columns of which nodes have both classes, and ignored ones
    assert!(of_nodes("x", &|v| format!("c{}", class(v)), &|v, i| ((v + i) % 2).to_string()).is_empty());
    let code = |v: usize| format!("c{}", class(v));
    assert!(warnings(&import(("x", &code), ("left", 2, &left), "ignore = [\"x\"]", None).0).is_empty());
    // a number that is far away, of one node with a target that is
    let far = |v: usize| if v == 9 { "1000000".into() } else { (v * 31 % 97).to_string() };
    let found = of_nodes("x", &far, &|v, _| if v == 9 { "1e6".into() } else { format!("{}.5", v * v % 89) });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn columns_of_the_targets_that_determine_the_label_are_pointed_out() {
    let of = |header: &str, target: &dyn Fn(usize, usize) -> String| {
        warnings(&import(("age", &|v| (v % 7).to_string()), (header, 3, target), "", None).0)
    };
    let out = "keep it out of the features (this import ignores it)";
    let found = of("left;reason", &|v, i| format!("{};r{}", class(v + 7 * i), class(v + 7 * i)));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("column 'reason' determines the label 'left': its values imply it"),
        "{found:?}"
    );
    assert!(found[0].ends_with(out), "{found:?}");
    // the class changes with the time of the row
    let found = of("left", &|_, i| (i % 2).to_string());
    assert!(found[0].contains("column 'asked' determines the label 'left'"), "{found:?}");
    assert!(found[0].ends_with("take rows of all labels at each time"), "{found:?}");
    // a date that the row gives of later, which nothing reads, and noise
    assert!(of("left;closed", &|v, i| format!("{};2025-01-{:02}", class(v + 7 * i), v % 28 + 1)).is_empty());
    assert!(of("left;x", &|v, i| format!("{};{}", class(v + 7 * i), v % 5)).is_empty());
}

#[test]
fn leaks_of_targets_do_not_depend_on_the_memory_and_stay_out_of_other_datasets() {
    let left = |v: usize, _: usize| class(v).to_string();
    let code = |v: usize| format!("c{}", class(v));
    let with = |budget| import(("x", &code), ("left", 2, &left), "", budget);
    let (report, dir) = with(None);
    let (small, other) = with(Some(Budget { cache: 0, keys: 0, recorded: 0 }));
    assert_eq!(report, small);
    assert!(contents(&dir.path().join("out")) == contents(&other.path().join("out")));
    // another dataset has chosen the columns
    let like = Preprocessing::read(&dir.path().join("out")).unwrap();
    let text = "[[nodes]]\ntype = \"user\"\nfiles = \"nodes.csv\"\nid = \"id\"\n[[targets]]\nfiles = \
                \"targets.csv\"\nid = \"id\"\ntime = \"asked\"\nlabel = \"left\"\n";
    let schema = TableSchema { base: dir.path().into(), ..TableSchema::parse(text, Path::new("s")).unwrap() };
    let work = Work { memory: Some(1 << 26), ..Work::default() };
    let report = import_tables(&schema, dir.path().join("second"), Some(&like), work).unwrap().report;
    assert!(warnings(&report).is_empty());
}
