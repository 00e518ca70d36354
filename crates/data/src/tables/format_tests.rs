//! Tests of formats of numbers and dates, and of columns that determine the label.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::{
    tests::{contents, error_of, fails, import_into},
    *,
};

const SCHEMA: &str = r#"
name = "test"

[[nodes]]
files = "nodes.csv"
id = "id"
label = "value"

[[edges]]
files = "edges.csv"
src = "a"
dst = "b"
time = "day"
weight = "weight"
features = ["part"]
keep_duplicates = true

[[targets]]
files = "targets.csv"
id = "id"
time = "asked"
label = "left"
"#;

/// Amount in hundredths, minute since 2024, and share in thousandths of a row.
type Row = (i64, u32, i64);

/// `1.234,56` or `1234.56` of hundredths.
fn hundredths(x: i64, [group, decimal]: [&str; 2]) -> String {
    let (sign, x) = (if x < 0 { "-" } else { "" }, x.abs());
    let (whole, digits) = (x / 100, x % 100);
    let whole =
        if whole >= 1000 { format!("{}{group}{:03}", whole / 1000, whole % 1000) } else { whole.to_string() };
    format!("{sign}{whole}{decimal}{digits:02}")
}

/// A time by a pattern of strftime.
fn minute(minutes: u32, pattern: &str) -> String {
    let start = chrono::DateTime::from_timestamp(1_704_067_200, 0).unwrap();
    (start + chrono::Duration::minutes(minutes.into())).format(pattern).to_string()
}

/// Writes the tables: in local formats, or as every program reads them.
fn write(dir: &Path, rows: &[Row], is_local: bool) {
    let [point, comma] = if is_local { [[".", ","], ["'", "."]] } else { [["", "."]; 2] };
    let [iso, german, american] = if is_local {
        ["%d %B %Y", "%d.%m.%Y %H:%M", "%m/%d/%Y, %I:%M:%S %p"]
    } else {
        ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
    };
    let unit = |sign: &'static str| if is_local { sign } else { "" };
    let (mut nodes, mut edges) =
        ("id;amount;price;opened;value\n".to_string(), "a;b;day;weight;part\n".to_string());
    let mut targets = "id;asked;left\n".to_string();
    for (v, &(amount, minutes, share)) in rows.iter().enumerate() {
        let price = hundredths(amount, comma);
        let (opened, value) = (minute(minutes, german), hundredths(share, point));
        let amount = hundredths(amount, point);
        writeln!(nodes, "n{v};{amount};{}{price};{opened};{value}", unit("$")).unwrap();
        let (day, weight) = (minute(minutes, american), hundredths(share.abs() * 1000, comma));
        writeln!(edges, "n{v};n0;{day};{weight};{value}{}", unit(" %")).unwrap();
        writeln!(targets, "n{v};{};{}", minute(minutes + 1440, iso), v % 2).unwrap();
    }
    for (name, text) in [("nodes", nodes), ("edges", edges), ("targets", targets)] {
        fs::write(dir.join(format!("{name}.csv")), text).unwrap();
    }
}

/// Rows of which every format is certain: a value with groups, and a day after the twelfth.
fn rows() -> Vec<Row> {
    let row = |v: i64| (v * 7919 - 90_000, 20_000 + v as u32 * 1500, v * 37 - 200);
    (0..60).map(row).collect()
}

fn schema_in(dir: &Path) -> TableSchema {
    fs::write(dir.join("schema.toml"), SCHEMA).unwrap();
    TableSchema::read(&dir.join("schema.toml")).unwrap()
}

/// Arrays of a dataset.
fn arrays(dir: &Path) -> Vec<(String, Vec<u8>)> {
    contents(dir).into_iter().filter(|(name, _)| name.ends_with(".npy")).collect()
}

/// Text of the report of an import of node tables, and the dataset.
fn import_nodes(text: &str, lines: &str) -> (String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nodes.csv"), text).unwrap();
    let schema = format!("[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n{lines}\n");
    fs::write(dir.path().join("schema.toml"), schema).unwrap();
    let schema = TableSchema::read(&dir.path().join("schema.toml")).unwrap();
    let report = import_into(&schema, &dir.path().join("out"), None).unwrap().report;
    (report.to_string(), dir)
}

#[test]
fn local_formats_give_the_arrays_of_plain_tables() {
    let (local, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(local.path(), &rows(), true);
    write(plain.path(), &rows(), false);
    let schema = schema_in(local.path());
    let report = import_into(&schema, &local.path().join("out"), None).unwrap().report.to_string();
    let of_plain = import_into(&schema_in(plain.path()), &plain.path().join("out"), None).unwrap().report;
    assert!(!of_plain.to_string().contains("written as"), "{of_plain}");
    assert_eq!(arrays(&local.path().join("out")), arrays(&plain.path().join("out")));
    for line in [
        "amount  number, standardized, written as decimal-comma\n",
        "price   number, standardized, written as decimal-point $\n",
        "opened  date: age, written as %d.%m.%Y %H:%M\n",
        "value   target of a regression, written as decimal-comma\n",
        "day     time, seconds since 1970, written as %m/%d/%Y, %I:%M:%S%.f %p\n",
        "weight  weight, written as decimal-point\n",
        "part    number, standardized, written as decimal-comma %\n",
        "asked  time, seconds since 1970, written as %d %B %Y\n",
    ] {
        assert!(report.contains(line), "{line} is not in {report}");
    }
    // the schema of a plan states them, and gives the same dataset, in any memory
    let stated = plan(&schema, None).unwrap().schema;
    assert_eq!(stated.nodes[0].formats["opened"].to_string(), "%d.%m.%Y %H:%M");
    assert_eq!(stated.targets[0].formats["asked"].to_string(), "%d %B %Y");
    let again = TableSchema {
        base: schema.base.clone(),
        ..TableSchema::parse(&stated.to_string(), Path::new("s")).unwrap()
    };
    import_into(&again, &local.path().join("stated"), None).unwrap();
    let tiny = Some(Budget { cache: 0, keys: 1 << 10, recorded: u64::MAX });
    import_into(&schema, &local.path().join("tiny"), tiny).unwrap();
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    for threads in [1, 3] {
        let dst = local.path().join(format!("threads-{threads}"));
        pool(threads).install(|| import_into(&schema, &dst, None)).unwrap();
        assert_eq!(contents(&dst), contents(&local.path().join("out")));
    }
    for other in ["stated", "tiny"] {
        assert_eq!(contents(&local.path().join(other)), contents(&local.path().join("out")), "{other}");
    }
}

#[test]
fn typed_tables_keep_their_values() {
    let of = |column: arrow_array::ArrayRef| {
        let id: arrow_array::ArrayRef =
            std::sync::Arc::new(arrow_array::StringArray::from(vec!["a", "b", "c"]));
        let batch = arrow_array::RecordBatch::try_from_iter([("id", id), ("x", column)]).unwrap();
        let mut table = MemoryTable::new(vec!["id".into(), "x".into()]).unwrap();
        table.push(&batch).unwrap();
        table
    };
    let import = |column: arrow_array::ArrayRef, format: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        let formats = format.map(|format| ("x".to_string(), format.parse().unwrap())).into_iter().collect();
        let nodes = NodeTable {
            kind: "node".into(),
            files: Names::One("t".into()),
            id: Names::One("id".into()),
            formats,
            ..NodeTable::default()
        };
        let memory = [("t".to_string(), of(column))].into();
        let schema = TableSchema { nodes: vec![nodes], memory, ..TableSchema::default() };
        import_into(&schema, &dir.path().join("out"), None).map(|_| arrays(&dir.path().join("out")))
    };
    let seconds = vec![1_704_067_200i64, 1_710_000_000, 1_720_000_000];
    let typed =
        import(std::sync::Arc::new(arrow_array::TimestampSecondArray::from(seconds.clone())), None).unwrap();
    let millis = seconds.iter().map(|x| x * 1000).collect::<Vec<_>>();
    let unix = import(std::sync::Arc::new(arrow_array::Int64Array::from(millis)), Some("unix-ms")).unwrap();
    assert_eq!(typed, unix);
    let stated = std::sync::Arc::new(arrow_array::TimestampSecondArray::from(seconds));
    assert_eq!(import(stated, Some("%d.%m.%Y")).unwrap(), typed);
    let floats = || std::sync::Arc::new(arrow_array::Float64Array::from(vec![0.5, 1.25, 1000.0]));
    assert_eq!(import(floats(), Some("decimal-comma")).unwrap(), import(floats(), None).unwrap());
    let bools = std::sync::Arc::new(arrow_array::BooleanArray::from(vec![true, false, true]));
    let error = import(bools, Some("decimal-comma")).unwrap_err().to_string();
    assert!(error.contains("row 1: column 'x': 'true' is not a number with a decimal comma"), "{error}");
}

#[test]
fn ambiguous_columns_are_left_out_or_asked_for() {
    let text: String = (0..30).map(|i| format!("n{i};0{}/0{}/2024;x\n", i % 3 + 1, i % 9 + 1)).collect();
    let text = format!("id;opened;kind\n{text}");
    let (report, _dir) = import_nodes(&text, "");
    let why = "opened  ignored: '01/01/2024' and all other values fit several formats, %d/%m/%Y and \
         %m/%d/%Y; state the right one (format opened=%d/%m/%Y)";
    assert!(report.contains(why), "{report}");
    let asked = "nodes.csv: column 'opened': '01/01/2024' and all other values fit several formats, \
         %d/%m/%Y and %m/%d/%Y; state the right one";
    let schema = |line: &str| format!("[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n{line}\n");
    for line in ["time = \"opened\"", "columns = { opened = \"date\" }", "columns = { opened = \"month\" }"] {
        fails(&[("nodes.csv", &text)], &schema(line), &[asked]);
    }
    let (report, _dir) = import_nodes(&text, "formats = { opened = \"%m/%d/%Y\" }");
    assert!(report.contains("opened  date: age, written as %m/%d/%Y"), "{report}");
    let (report, _dir) = import_nodes(&text, "columns = { opened = \"category\" }");
    assert!(report.contains("opened  category of 9 values"), "{report}");
    let numbers = "id;x\na;1,234\nb;2,500\n";
    let (report, _dir) = import_nodes(numbers, "");
    assert!(report.contains("fit several formats, decimal-comma and decimal-point"), "{report}");
    let several = "'1,234' and all other values fit several formats";
    fails(&[("nodes.csv", numbers)], &schema("label = \"x\"\ntask = \"regression\""), &[several]);
}

#[test]
fn one_written_number_among_plain_ones_is_a_fault() {
    let schema = "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n";
    for (plain, formats) in
        [("1.5", "(format x=decimal-point)"), ("15", "(format x=decimal-comma or format x=decimal-point)")]
    {
        let rows: String =
            (0..100).map(|i| format!("n{i};{}\n", if i == 40 { "3,456" } else { plain })).collect();
        let wrong = format!(
            "nodes.csv: column 'x': 1 of 100 values are not a number: line 42 '3,456'; fix them, or \
             state its format {formats}, or import"
        );
        fails(&[("nodes.csv", &format!("id;x\n{rows}"))], schema, &[&wrong]);
        // two separators are no slip
        let rows = rows.replace("3,456", "3,456,789");
        let (report, _dir) = import_nodes(&format!("id;x\n{rows}"), "");
        assert!(report.contains("written as decimal-point"), "{report}");
    }
}

#[test]
fn formats_of_ignored_columns_are_not_in_the_schema_of_a_plan() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("nodes.csv"), "id;x;y\na;;1,5\nb;;2,5\n").unwrap();
    let lines = "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n\
        formats = { x = \"decimal-comma\", y = \"decimal-comma\" }\n";
    let path = dir.path().join("schema.toml");
    fs::write(&path, lines).unwrap();
    let planned = plan(&TableSchema::read(&path).unwrap(), None).unwrap().schema;
    assert_eq!(planned.nodes[0].formats.keys().collect::<Vec<_>>(), ["y"]);
    fs::write(&path, planned.to_string()).unwrap();
    plan(&TableSchema::read(&path).unwrap(), None).unwrap();
}

#[test]
fn formats_without_a_table_are_faults() {
    let edges = [("edges.csv", "a,b\n1,2\n")];
    for line in ["formats = { x = \"decimal-comma\" }", "features = [\"x\"]", "ignore = [\"x\"]"] {
        let schema =
            format!("[[nodes]]\n{line}\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\n");
        fails(&edges, &schema, &["without files there are no columns"]);
    }
}

#[test]
fn mixed_columns_are_refused_with_file_and_line() {
    let table = |odd: &str| {
        let rows: String = (0..40)
            .map(|i| format!("n{i};{}\n", if i == 25 { odd.to_string() } else { format!("{i},5") }))
            .collect();
        format!("id;x\n{rows}")
    };
    let schema = |line: &str| format!("[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\n{line}\n");
    let wrong = "nodes.csv: column 'x': 1 of 40 values are not a number with a decimal comma \
         (decimal-comma): line 27 '1.5'; fix them, or import the column as a category";
    fails(&[("nodes.csv", &table("1.5"))], &schema(""), &[wrong]);
    let stated = schema("formats = { x = \"decimal-comma\" }");
    let wrong =
        "nodes.csv: line 27: column 'x': '1.5' is not a number with a decimal comma (decimal-comma); correct";
    fails(&[("nodes.csv", &table("1.5"))], &stated, &[wrong]);
    // of the files of a table, the one with the value is named
    let more = table("12.05.2024").replace("n", "m");
    let two = "[[nodes]]\nfiles = [\"a.csv\", \"b.csv\"]\nid = \"id\"\nformats = { x = \"decimal-comma\" }\n";
    let error = error_of(&[("a.csv", &table("7")), ("b.csv", &more)], two);
    assert!(
        error.contains("b.csv: line 27: column 'x': '12.05.2024'") && !error.contains("a.csv: line"),
        "{error}"
    );
    // few values of several formats are texts, which are left out with the way out
    let (report, _dir) = import_nodes("id;x\na;1,5\nb;1.5\n", "");
    let why = "ignored: free text (2 different values, such as '1,5'); to use it: column x=category, or \
         format x=FORMAT";
    assert!(report.contains(why), "{report}");
    // formats that nothing reads
    for (line, part) in [
        ("formats = { id = \"decimal-comma\" }", "column 'id': no number and no date is read from it"),
        (
            "ignore = [\"x\"]\nformats = { x = \"decimal-comma\" }",
            "column 'x': no number and no date is read",
        ),
        ("formats = { y = \"decimal-comma\" }", "there is no column 'y'"),
        ("formats = { x = \"comma\" }", "format 'comma': it is unknown; write decimal-comma"),
    ] {
        let text = table("7");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nodes.csv"), text).unwrap();
        fs::write(dir.path().join("schema.toml"), schema(line)).unwrap();
        let result = TableSchema::read(&dir.path().join("schema.toml"));
        let result = result.and_then(|schema| import_into(&schema, &dir.path().join("out"), None));
        let error = result.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn keys_and_categories_keep_their_texts() {
    let text = "id;code;kind\n1,000;1,5;x\n2,000;2,5;y\n";
    let (_, dir) = import_nodes(text, "columns = { code = \"category\" }");
    let data = typed::open(dir.path().join("out"), Verify::Once).unwrap();
    let keys = data.nodes[0].keys.as_ref().unwrap();
    assert_eq!((0..2).map(|v| keys.get(v).to_string()).collect::<Vec<_>>(), ["1,000", "2,000"]);
    assert_eq!(data.nodes[0].features.as_ref().unwrap().names, ["code=1,5", "code=2,5"]);
}

#[test]
fn appended_and_new_rows_are_read_by_the_stored_formats() {
    let all = rows();
    let (first, more) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(first.path(), &all, true);
    import_into(&schema_in(first.path()), &first.path().join("base"), None).unwrap();
    let base = first.path().join("base");
    // days that are ambiguous alone, and whole numbers
    let new = [(500, 7 * 1440, 300), (100, 8 * 1440, 200)];
    let renamed = |name: &str| {
        let text = fs::read_to_string(more.path().join(name)).unwrap();
        fs::write(more.path().join(name), text.replace("n1;", "m1;").replace("n0;", "m0;")).unwrap();
    };
    let names = ["nodes.csv", "edges.csv", "targets.csv"];
    let mut results = Vec::new();
    for is_local in [true, false] {
        write(more.path(), &new, is_local);
        names.iter().for_each(|name| renamed(name));
        let tables = MoreTables {
            nodes: Names::One("nodes.csv".into()),
            edges: Names::One("edges.csv".into()),
            targets: Names::One("targets.csv".into()),
            base: more.path().into(),
            ..MoreTables::default()
        };
        let dst = first.path().join(format!("more-{is_local}"));
        let work = Work {
            memory: Some(1 << 26),
            replace: false,
            progress: Box::new(graphmill_core::progress::Quiet),
        };
        results.push(
            append_tables(&base, &tables, &dst, work).map(|_| typed::open(&dst, Verify::Once).unwrap()),
        );
    }
    let data = results[0].as_ref().unwrap();
    let time = data.edges[0].time.as_ref().unwrap();
    let new_times =
        time.iter().filter(|&&time| time < 1_704_067_200 + 20_000 * 60).copied().collect::<Vec<_>>();
    assert_eq!(new_times, [1_704_067_200 + 7 * 86_400, 1_704_067_200 + 8 * 86_400]);
    let error = results[1].as_ref().unwrap_err().to_string();
    for part in [
        "nodes.csv: line 2: column 'amount': '5.00' is not a number with a decimal comma (decimal-comma)",
        "nodes.csv: line 3: column 'opened': '2024-01-09T00:00' is not a date of the format %d.%m.%Y %H:%M",
        "edges.csv: line 2: column 'day': '2024-01-08T00:00:00' is not a date of the format %m/%d/%Y",
        "targets.csv: line 2: column 'asked': '2024-01-09' is not a date of the format %d %B %Y",
    ] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    // rows to predict, without the label
    let text = fs::read_to_string(first.path().join("nodes.csv")).unwrap();
    let without: String =
        text.lines().map(|line| format!("new-{}\n", line.rsplit_once(';').unwrap().0)).collect();
    fs::write(more.path().join("new.csv"), without.replacen("new-", "", 1)).unwrap();
    let known = Preprocessing::read(&base).unwrap().of_new_rows(false);
    let nodes = NodeTable {
        kind: "node".into(),
        files: Names::One(more.path().join("new.csv").display().to_string()),
        id: Names::One("id".into()),
        ..NodeTable::default()
    };
    let schema = TableSchema { nodes: vec![nodes], ..TableSchema::default() };
    let work =
        Work { memory: Some(1 << 26), replace: false, progress: Box::new(graphmill_core::progress::Quiet) };
    let known_keys = |_: &str, keys: &[String]| vec![false; keys.len()];
    let new =
        import_new_tables(&schema, first.path().join("new"), &known, &known_keys, work).unwrap().dataset;
    let values = |data: &TypedDataset| match &data.nodes[0].features.as_ref().unwrap().data {
        typed::TableData::Dense(typed::Values::F32(values)) => values.to_vec(),
        _ => panic!("no features"),
    };
    assert_eq!(values(&new), values(&typed::open(&base, Verify::Once).unwrap()));
}

/// Report of nodes of these columns, and their names.
fn leaks_of(header: &str, row: impl Fn(usize) -> String, lines: &str) -> Vec<String> {
    let rows: String = (0..400).map(|i| format!("n{i};{}\n", row(i))).collect();
    let (report, _dir) = import_nodes(&format!("id;{header}\n{rows}"), lines);
    let warnings = report.lines().filter_map(|line| line.strip_prefix("  warning: "));
    warnings.map(String::from).collect()
}

#[test]
fn columns_that_determine_the_label_are_pointed_out() {
    let leaks = |header: &str, row: &dyn Fn(usize) -> String| leaks_of(header, row, "label = \"y\"");
    // a code of the class, of which two rows are wrong
    let code = |i: usize| format!("{};c{}", i % 3, if i == 7 || i == 8 { 0 } else { i % 3 });
    assert_eq!(
        leaks("y;code", &code),
        ["column 'code' determines the label 'y': its values imply it in 99.5 % of 400 labelled rows, \
             each value by at least 132 rows; if a prediction does not know it, leave it out (column \
             code=ignore)"]
    );
    // several values of each class; numbers as codes
    assert_eq!(leaks("y;code", &|i| format!("{};{}", i % 2, i % 8)).len(), 1);
    // a date that only one class has
    let closed = |i: usize| {
        format!("{};{}", i % 2, if i % 2 == 1 { format!("2024-01-{:02}", i % 28 + 1) } else { String::new() })
    };
    let found = leaks("y;closed", &closed);
    assert!(
        found[0].contains("'closed' determines the label 'y': whether it has a value implies it in 100 %"),
        "{found:?}"
    );
    assert!(found[0].contains("200 of them of the rarest class"), "{found:?}");
    // a score whose ranges do not overlap
    let found = leaks("y;score", &|i| format!("{};{}", i % 2, (i % 2) as f64 * 500.0 + i as f64 + 0.5));
    assert!(found[0].contains("the ranges of its numbers do not overlap"), "{found:?}");
    // a label of numbers in another unit
    let found = leaks("y;cents", &|i| format!("{}.5;{}", i * i % 97, (i * i % 97) * 100 + 50));
    assert!(found[0].contains("a linear function of it gives 100 % of the variance"), "{found:?}");
    // a category of a label of numbers
    let found = leaks("y;kind", &|i| format!("{}.5;k{}", i % 4, i % 4));
    assert!(found[0].contains("'kind' determines the label 'y': its values imply it in 100 %"), "{found:?}");
    // dates after the time of their row
    let late = |i: usize| {
        format!("{};2024-01-{:02};2024-02-{:02}", (i / 3 + i * i) % 2, i % 28 + 1, (i * 5) % 28 + 1)
    };
    let found = leaks_of("y;asked;closed", late, "label = \"y\"\nsplit = \"time:asked:60,20,20\"");
    let closed: Vec<&String> =
        found.iter().filter(|leak| leak.contains("'closed' may be known only after")).collect();
    assert!(
        closed[0].contains("100 % of its dates are after the time of their row, 400 of 400"),
        "{found:?}"
    );
    // once for all labels
    let two = |i: usize| format!("{};{}", i / 3 % 2, late(i));
    let found = leaks_of("z;y;asked;closed", two, "label = [\"y\", \"z\"]\nsplit = \"time:asked:60,20,20\"");
    assert_eq!(found.iter().filter(|leak| leak.contains("'closed'")).count(), 1, "{found:?}");
    // of edges
    let dir = tempfile::tempdir().unwrap();
    let edges: String =
        (0..100).map(|i| format!("n{},n{},{},{}\n", i % 9, i % 7, i % 2, i % 2 + 5)).collect();
    fs::write(dir.path().join("edges.csv"), format!("a,b,fraud,flag\n{edges}")).unwrap();
    let schema = "[[nodes]]\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\nfeatures = \
         [\"flag\"]\nlabel = \"fraud\"\n";
    let schema =
        TableSchema { base: dir.path().into(), ..TableSchema::parse(schema, Path::new("s")).unwrap() };
    let report = import_into(&schema, &dir.path().join("out"), None).unwrap().report;
    let leak = &report.edges[0].labels.leaks[0];
    assert_eq!(
        (&leak.column[..], leak.by, leak.share, leak.rows, leak.support),
        ("flag", LeakKind::Values, 1.0, 100, 50)
    );
    assert!(report.to_string().contains("leave it out of the edge features"), "{report}");
    let json = serde_json::to_value(leak).unwrap();
    assert_eq!(json["message"], leak.to_string());
    assert_eq!(serde_json::from_value::<Leak>(json).unwrap(), *leak);
}

#[test]
fn columns_that_do_not_determine_the_label_are_not_pointed_out() {
    let none = |header: &str, row: &dyn Fn(usize) -> String, lines: &str| {
        let found = leaks_of(header, row, lines);
        assert!(found.is_empty(), "{found:?}");
    };
    let hash = |i: usize| (graphmill_core::keyed::key(&[i as u64]) % 1000) as usize;
    // keys, whose values have a row each, and few rows of each value
    none("y;number", &|i| format!("{};{}", hash(i) % 2, hash(i + 1000) + i * 1000), "label = \"y\"");
    none("y;pair", &|i| format!("{};p{}", i % 2, i % 80), "label = \"y\"\ncolumns = { pair = \"category\" }");
    // a frequent class that every value implies
    none("y;kind", &|i| format!("{};k{}", i32::from(i % 33 == 7), i % 5), "label = \"y\"");
    // categories that only tend to a class, and noise
    none(
        "y;kind",
        &|i| format!("{};k{}", i % 2, if hash(i) < 900 { i % 2 } else { 1 - i % 2 }),
        "label = \"y\"",
    );
    none("y;x", &|i| format!("{}.5;{}", hash(i), hash(i) + hash(i + 7) / 5), "label = \"y\"");
    // one row far away in both
    none(
        "y;x",
        &|i| {
            if i == 9 { "1000000.5;1000000".into() } else { format!("{}.5;{}", hash(i) % 97, hash(i + 500)) }
        },
        "label = \"y\"",
    );
    // a rare value far away, of other values that do not determine the label
    none(
        "y;kind",
        &|i| if i == 9 { "1000000.5;far".into() } else { format!("{}.5;k{}", hash(i) % 97, i % 4) },
        "label = \"y\"\ncolumns = { kind = \"category\" }",
    );
    // an ignored column, and few labelled rows
    none("y;code", &|i| format!("{};c{}", i % 2, i % 2), "label = \"y\"\nignore = [\"code\"]");
    none(
        "y;code",
        &|i| if i < 29 { format!("{};c{}", i % 2, i % 2) } else { format!(";c{}", i % 2) },
        "label = \"y\"",
    );
    // dates before the time of their row
    let early = |i: usize| format!("{};2024-03-{:02};2024-02-{:02}", hash(i) % 2, i % 28 + 1, i * 5 % 28 + 1);
    none("y;asked;opened", &early, "label = \"y\"\ntime = \"asked\"");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn found_formats_give_the_written_values(
        amounts in proptest::collection::vec(
            (-2_000_000i64..2_000_000, 0u32..500_000, -9_999i64..9_999),
            1..40,
        ),
    ) {
        let mut all = rows();
        all.extend(amounts);
        let (local, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(local.path(), &all, true);
        write(plain.path(), &all, false);
        import_into(&schema_in(local.path()), &local.path().join("out"), None).unwrap();
        import_into(&schema_in(plain.path()), &plain.path().join("out"), None).unwrap();
        prop_assert!(arrays(&local.path().join("out")) == arrays(&plain.path().join("out")));
    }
}
