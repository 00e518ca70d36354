//! Tests of columns that mix numbers or dates with texts, and of texts that stand for missing
//! values.

use super::{
    tests::{contents, error_of, fails, import_into},
    *,
};

/// Schema of nodes with these lines.
fn nodes(lines: &str) -> String {
    format!("[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n{lines}\n")
}

/// Table of `count` nodes, of which `x` gives the value by number.
fn table(count: usize, x: impl Fn(usize) -> String) -> String {
    let rows: String = (0..count).map(|i| format!("n{i};{};{}\n", x(i), i % 2)).collect();
    format!("id;x;y\n{rows}")
}

/// Report of an import, and the dataset.
fn import(text: &str, schema: &str) -> (String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nodes.csv"), text).unwrap();
    let schema = TableSchema {
        base: dir.path().into(),
        ..TableSchema::parse(schema, Path::new("schema.toml")).unwrap()
    };
    let report = import_into(&schema, &dir.path().join("out"), None).unwrap().report;
    (report.to_string(), dir)
}

/// Features of the nodes of a dataset.
fn features(dir: &tempfile::TempDir) -> Vec<u8> {
    let files = contents(&dir.path().join("out"));
    files.into_iter().find(|(name, _)| name.starts_with("nodes") && name.contains("features")).unwrap().1
}

#[test]
fn few_texts_among_numbers_are_refused_with_their_counts_and_the_way_out() {
    // beyond the number of different values that are counted
    for count in [400, 20_000] {
        let x = |i: usize| match i {
            7 | 300 => "unknown".into(),
            9 => "<5".into(),
            i => (i * 3).to_string(),
        };
        let wrong = format!(
            "nodes.csv: column 'x': 3 of {count} values are not a number: line 9 'unknown', line 11 '<5', \
             line 302 'unknown', in all 'unknown' (2), '<5' (1); fix them, declare these missing (null \
             x=unknown, null x=<5), or import the column as a category (column x=category) or ignore it"
        );
        fails(&[("nodes.csv", &table(count, x))], &nodes(""), &[&wrong]);
        let stated = nodes("nulls = { x = [\"unknown\", \"<5\"] }");
        let (report, dir) = import(&table(count, x), &stated);
        assert!(report.contains("x   number, standardized (3 missing)"), "{report}");
        let empty = |i: usize| if matches!(i, 7 | 9 | 300) { String::new() } else { x(i) };
        assert_eq!(features(&dir), features(&import(&table(count, empty), &nodes("")).1));
    }
    // known words for missing values are missing, and counted
    let (report, _dir) =
        import(&table(5000, |i| if i < 3 { "n/a".into() } else { i.to_string() }), &nodes(""));
    assert!(report.contains("x   number, standardized (3 missing)"), "{report}");
    // many different texts, or numbers in another form, are no missing values
    for odd in [|i: usize| format!("u{i}"), |i: usize| format!("{i},5")] {
        let text = table(400, |i| if i % 50 == 0 { odd(i) } else { i.to_string() });
        let error = error_of(&[("nodes.csv", &text)], &nodes(""));
        assert!(error.contains("8 of 400 values are not a number"), "{error}");
        assert!(!error.contains("missing"), "{error}");
    }
}

#[test]
fn few_texts_among_dates_and_formatted_numbers_are_refused_with_the_way_out() {
    let dates = |i: usize| if i % 40 == 7 { "open".into() } else { format!("2024-01-{:02}", i % 28 + 1) };
    let way_out = "in all 'open' (10); fix them, declare these missing (null x=open), or import";
    fails(&[("nodes.csv", &table(400, dates))], &nodes(""), &["10 of 400 values are not a date:", way_out]);
    let comma = |i: usize| if i % 40 == 7 { "open".into() } else { format!("{i},5") };
    let what = "10 of 400 values are not a number with a decimal comma (decimal-comma):";
    fails(&[("nodes.csv", &table(400, comma))], &nodes(""), &[what, way_out]);
    let stated = nodes("formats = { x = \"decimal-comma\" }");
    let what = "line 9: column 'x': 'open' is not a number with a decimal comma (decimal-comma); correct it, \
                declare it missing (null x=open), or state another format";
    fails(&[("nodes.csv", &table(400, comma))], &stated, &[what]);
    // the format is found once the texts are out of the way
    let (report, _dir) = import(&table(400, comma), &nodes("nulls = { x = \"open\" }"));
    assert!(report.contains("x   number, standardized, written as decimal-comma (10 missing)"), "{report}");
    // times and weights
    let way_out = "; declare these missing (null x=open)";
    fails(&[("nodes.csv", &table(400, dates))], &nodes("time = \"x\""), &["dates or numbers", way_out]);
    let mixed = |i: usize| if i.is_multiple_of(4) { "open".into() } else { i.to_string() };
    let text = table(400, mixed);
    fails(
        &[("nodes.csv", &text)],
        &nodes("columns = { x = \"number\" }"),
        &["not every value is a number: line 2 'open'; declare these missing (null x=open), or choose \
             another kind"],
    );
}

#[test]
fn columns_of_mostly_numbers_do_not_become_categories_in_silence() {
    let mixed = |kinds: usize| {
        move |i: usize| if i.is_multiple_of(10) { "unknown".into() } else { (i % kinds).to_string() }
    };
    let what = "360 of 400 values are numbers, the others 'unknown' (40)";
    let way_out = "if these are missing values, declare them so (null x=unknown)";
    // few different values: a category, with a warning
    let (report, _dir) = import(&table(400, mixed(30)), &nodes(""));
    assert!(report.contains("x   category of 28 values"), "{report}");
    let warning = format!("  warning: column 'x': {what}, so that it became a category; {way_out}\n");
    assert!(report.contains(&warning), "{report}");
    let (report, _dir) = import(&table(400, mixed(30)), &nodes("columns = { x = \"category\" }"));
    assert!(report.contains("x   category of 28 values") && !report.contains("warning"), "{report}");
    // many: left out, whatever the limit of categories is
    for limit in ["", "category_limit = 1000"] {
        let (report, _dir) = import(&table(400, mixed(100)), &nodes(limit));
        let line = format!("x   ignored: {what}; {way_out}; or column x=category\n");
        assert!(report.contains(&line), "{report}");
    }
    // categories of texts and few numbers say nothing
    let few = |i: usize| if i.is_multiple_of(3) { (i % 7).to_string() } else { format!("k{}", i % 2) };
    assert!(!import(&table(400, few), &nodes("")).0.contains("warning"));
    // features of edges: 4096 categories are no way to read numbers
    let edges: String = (0..400).map(|i| format!("n{},n{},{}\n", i % 9, i % 7, mixed(100)(i))).collect();
    let schema =
        "[[nodes]]\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\nfeatures = [\"x\"]\n";
    let why = format!("edges.csv: column 'x' is named as a feature, but is ignored: {what}; {way_out}");
    fails(&[("edges.csv", &format!("a,b,x\n{edges}"))], schema, &[&why]);
}

#[test]
fn labels_of_mostly_numbers_name_the_other_values() {
    let label = |i: usize| if i.is_multiple_of(10) { "unknown".into() } else { (i % 2).to_string() };
    let what = "360 of 400 values are numbers, the others 'unknown' (40); if these are missing values, \
                declare them so (null x=unknown)";
    let (report, _dir) = import(&table(400, label), &nodes("label = \"x\""));
    assert!(report.contains(&format!("x   label: 3 classes; {what}")), "{report}");
    let (report, _dir) = import(&table(400, label), &nodes("label = \"x\"\nnulls = { x = \"unknown\" }"));
    assert!(report.contains("x   label: 2 classes (40 missing)"), "{report}");
    let value = |i: usize| if i.is_multiple_of(10) { "unknown".into() } else { format!("{i}.5") };
    let text = table(400, value);
    for (task, why) in
        [("", "361 classes in 400 labels"), ("task = \"regression\"", "but the column holds texts")]
    {
        fails(&[("nodes.csv", &text)], &nodes(&format!("label = \"x\"\n{task}")), &[why, what]);
    }
}

#[test]
fn texts_that_stand_for_missing_values_are_stored_and_read_by_later_imports() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    let x = |i: usize| if i.is_multiple_of(10) { "-999".into() } else { i.to_string() };
    write("nodes.csv", &table(100, x));
    write("edges.csv", "a;b;w\nn1;n2;1\nn2;none;2\nn3;n4;?\n");
    write("targets.csv", "who;left\nn1;yes\nn2;no\nn3;not asked\n");
    let edges = "[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\nfeatures = [\"w\"]\nnulls = { \
                 b = \"none\", w = \"?\" }\n";
    let targets = "[[targets]]\nfiles = \"targets.csv\"\nid = \"who\"\nlabel = \"left\"\nnulls = { \
                   left = \"not asked\" }\n";
    let text = format!("dangling = \"drop\"\n{}{edges}{targets}", nodes("nulls = { x = \"-999\" }"));
    let schema =
        TableSchema { base: dir.path().into(), ..TableSchema::parse(&text, Path::new("s")).unwrap() };
    assert_eq!(TableSchema::parse(&schema.to_string(), Path::new("s")).unwrap().nodes, schema.nodes);
    let base = dir.path().join("base");
    let report = import_into(&schema, &base, None).unwrap().report.to_string();
    for part in [
        "x   number, standardized (10 missing)",
        "1 row dropped, because a key is missing",
        "w  number, standardized (1 missing)",
        "left  label: 2 classes (1 missing)",
    ] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
    write("more.csv", "id;x;y\nm1;-999;0\nm2;5;1\n");
    write("more-edges.csv", "a;b;w\nm1;n2;?\n");
    write("more-targets.csv", "who;left\nm1;not asked\nm2;yes\n");
    let one = |name: &str| Names::One(name.into());
    let tables = MoreTables {
        nodes: one("more.csv"),
        edges: one("more-edges.csv"),
        targets: one("more-targets.csv"),
        base: dir.path().into(),
        ..MoreTables::default()
    };
    let work = || Work { memory: Some(1 << 26), ..Work::default() };
    let data = append_tables(&base, &tables, dir.path().join("longer"), work()).unwrap().0.dataset;
    let typed::TableData::Dense(typed::Values::F32(values)) = &data.nodes[0].features.as_ref().unwrap().data
    else {
        panic!("no features")
    };
    // a missing value is the mean, and -999 would be far away
    assert!(values[100 * 2].abs() < 1e-6 && values[101 * 2] < -1.0, "{:?}", &values[200..]);
    // new rows to predict
    let known = Preprocessing::read(&base).unwrap();
    assert!(known.edge_table("node:edge:node").unwrap().nulls.contains_key("b"));
    // unknown columns are faults
    let wrong = nodes("nulls = { age = \"?\" }");
    fails(&[("nodes.csv", &table(5, |i| i.to_string()))], &wrong, &["nodes.csv: there is no column 'age'"]);
    let without =
        "[[nodes]]\nnulls = { x = \"?\" }\n[[edges]]\nfiles = \"e.csv\"\nsrc = \"a\"\ndst = \"b\"\n";
    fails(&[("e.csv", "a,b\n1,2\n")], without, &["without files there are no columns"]);
}
