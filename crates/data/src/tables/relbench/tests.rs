//! Tests of directories that are written as RelBench writes them.

use std::{fs, path::PathBuf, sync::Arc};

use arrow_array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampNanosecondArray, types::Int64Type,
};
use graphmill_core::Result;
use parquet::{
    arrow::ArrowWriter,
    file::{metadata::KeyValue, properties::WriterProperties},
};
use serde_json::{Value, json};

use super::{
    super::tests::{contents, import_into},
    *,
};
use crate::typed::{EdgeType, Seeds, TaskOn};

const DAY: i64 = 86_400;
const DRIVERS: usize = 4;
const RESULTS: usize = 12;

/// Table of a database: its columns, primary key, time and foreign keys.
struct Rows {
    columns: Vec<(&'static str, ArrayRef)>,
    key: Option<&'static str>,
    time: Option<&'static str>,
    foreign: Vec<(&'static str, &'static str)>,
}

impl Rows {
    fn foreign(&self) -> Value {
        self.foreign.iter().map(|(column, to)| (column.to_string(), json!(to))).collect()
    }

    /// Writes the table, with metadata if `described`.
    fn write(&self, path: &Path, described: bool) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let columns = self.columns.iter().map(|(name, array)| (*name, array.clone(), true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let metadata = [
            ("fkey_col_to_pkey_table", self.foreign()),
            ("pkey_col", json!(self.key)),
            ("time_col", json!(self.time)),
        ];
        let metadata = metadata.map(|(key, value)| KeyValue::new(key.to_string(), value.to_string()));
        let metadata = described.then(|| metadata.to_vec());
        let properties = WriterProperties::builder().set_key_value_metadata(metadata).build();
        let file = fs::File::create(path).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    }
}

fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(values.into_iter().collect::<Int64Array>())
}

/// Days since 1970 as pandas writes times.
fn dates(days: impl IntoIterator<Item = i64>) -> ArrayRef {
    let nanos = days.into_iter().map(|day| day * DAY * 1_000_000_000);
    Arc::new(TimestampNanosecondArray::from_iter_values(nanos))
}

fn results() -> impl Iterator<Item = i64> {
    0..RESULTS as i64
}

/// Tables of a database by name: drivers always exist, races and results from a day on.
fn tables() -> Vec<(&'static str, Rows)> {
    let codes = StringArray::from_iter_values((0..DRIVERS).map(|i| format!("d{i}")));
    let drivers = Rows {
        columns: vec![
            ("driverId", integers(0..DRIVERS as i64)),
            ("code", Arc::new(codes)),
            ("born", integers((0..DRIVERS as i64).map(|i| 1980 + 3 * i))),
        ],
        key: Some("driverId"),
        time: None,
        foreign: Vec::new(),
    };
    let races = Rows {
        columns: vec![
            ("raceId", integers(0..5)),
            ("date", dates(100..105)),
            ("wet", integers([0, 1, 0, 0, 1])),
        ],
        key: Some("raceId"),
        time: Some("date"),
        foreign: Vec::new(),
    };
    // a foreign key with nulls as pandas has them: as floats, and as nullable integers
    let driver = results().map(|i| (i % 5 != 3).then_some((i % DRIVERS as i64) as f64));
    let race = results().map(|i| (i % 6 != 5).then_some(i % 5));
    let results = Rows {
        columns: vec![
            ("driverId", Arc::new(driver.collect::<Float64Array>())),
            ("raceId", Arc::new(race.collect::<Int64Array>())),
            ("date", dates(results().map(|i| 104 + i))),
            ("points", Arc::new(results().map(|i| Some(i as f64 / 2.0)).collect::<Float64Array>())),
        ],
        key: None,
        time: Some("date"),
        foreign: vec![("driverId", "drivers"), ("raceId", "races")],
    };
    vec![("drivers", drivers), ("races", races), ("results", results)]
}

/// Table of a task on drivers: a row of each driver on these days, with the column of the target.
fn asked(days: std::ops::Range<i64>, target: Option<(&'static str, ArrayRef)>) -> Rows {
    let drivers = days.clone().flat_map(|_| 0..DRIVERS as i64);
    let mut columns =
        vec![("date", dates(days.flat_map(|day| [day; DRIVERS]))), ("driverId", integers(drivers))];
    columns.extend(target);
    Rows { columns, key: None, time: Some("date"), foreign: vec![("driverId", "drivers")] }
}

const PARTS: [(&str, i64); 3] = [("train", 110), ("val", 112), ("test", 114)];

/// Writes a task of each kind.
fn write_tasks(dir: &Path, described: bool) {
    for (part, day) in PARTS {
        let days = day..day + 2;
        let rows = 2 * DRIVERS as i32;
        let path = |task: &str| dir.join("tasks").join(task).join(format!("{part}.parquet"));
        let finished: ArrayRef = Arc::new((0..rows).map(|i| Some(i % 2)).collect::<Int32Array>());
        asked(days.clone(), Some(("finished", finished))).write(&path("driver-dnf"), described);
        // the target of the rows that test is masked
        let position: ArrayRef =
            Arc::new((0..rows).map(|i| Some(f64::from(i) + 0.5)).collect::<Float64Array>());
        let target = (part != "test").then_some(("position", position));
        asked(days.clone(), target).write(&path("driver-position"), described);
        let lists = (0..rows).map(|i| Some(vec![Some(i64::from(i % 5)), Some(1)]));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let mut recommended = asked(days, Some(("raceId", lists)));
        recommended.foreign.push(("raceId", "races"));
        recommended.write(&path("driver-race"), described);
    }
}

fn write(dir: &Path) {
    for (name, rows) in tables() {
        rows.write(&dir.join("db").join(format!("{name}.parquet")), true);
    }
    write_tasks(dir, true);
    fs::write(dir.join("db/.DS_Store"), "").unwrap();
}

/// Schema of all tables and the tasks on drivers, written by hand.
const BY_HAND: &str = r#"
name = "f1"

[[nodes]]
type = "drivers"
files = "db/drivers.parquet"
id = "driverId"

[[nodes]]
type = "races"
files = "db/races.parquet"
id = "raceId"
time = "date"

[[nodes]]
type = "results"
files = "db/results.parquet"
time = "date"
foreign_keys = [
  { column = "driverId", to = "drivers", time = "date", reverse = "rev_driverId" },
  { column = "raceId", to = "races", time = "date", reverse = "rev_raceId" },
]

[[targets]]
name = "driver-dnf"
train = "tasks/driver-dnf/train.parquet"
valid = "tasks/driver-dnf/val.parquet"
test = "tasks/driver-dnf/test.parquet"
on = "drivers"
id = "driverId"
time = "date"
label = "finished"
task = "classification"

[[targets]]
name = "driver-position"
train = "tasks/driver-position/train.parquet"
valid = "tasks/driver-position/val.parquet"
test = "tasks/driver-position/test.parquet"
on = "drivers"
id = "driverId"
time = "date"
label = "position"
task = "regression"

[[links]]
name = "driver-race"
train = "tasks/driver-race/train.parquet"
valid = "tasks/driver-race/val.parquet"
test = "tasks/driver-race/test.parquet"
source = "drivers"
src = "driverId"
destination = "races"
dst = "raceId"
time = "date"
metric = "map"
"#;

fn of_task(name: &str) -> RelBenchOptions {
    RelBenchOptions { tasks: vec![name.into()], ..RelBenchOptions::default() }
}

#[test]
fn a_directory_is_the_import_of_a_schema_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let [found, expected] = ["found", "expected"].map(|name| dir.path().join(name));
    let RelBench { mut schema, notes } = relbench(dir.path(), &RelBenchOptions::default()).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    schema.name = Some("f1".into());
    let done = import_into(&schema, &found, None).unwrap();
    let mut by_hand = TableSchema::parse(BY_HAND, Path::new("schema.toml")).unwrap();
    by_hand.base = dir.path().to_path_buf();
    import_into(&by_hand, &expected, None).unwrap();
    assert!(contents(&found) == contents(&expected));

    let data = &done.dataset;
    assert_eq!(data.to_string(), "f1: 21 nodes of 3 types, 40 edges of 4 types, 3 tasks");
    let of = |source: &str, name: &str, to: &str| data.edge_type(&EdgeType::new(source, name, to)).unwrap();
    // results 3 and 8 have no driver, 5 and 11 no race
    let driven = of("results", "driverId", "drivers");
    assert_eq!((driven.num_edges(), driven.in_neighbors(3)), (10, &[7, 11][..]));
    assert_eq!(driven.time.as_ref().unwrap()[driven.row(3)], [111 * DAY, 115 * DAY]);
    assert_eq!(of("races", "rev_raceId", "results").in_neighbors(6), [1]);
    assert!(of("drivers", "rev_driverId", "results").in_neighbors(8).is_empty());
    let times = data.node_type("results").unwrap().time.as_ref().unwrap();
    assert_eq!(times[..], results().map(|i| (104 + i) * DAY).collect::<Vec<_>>()[..]);
    assert!(data.node_type("drivers").unwrap().time.is_none());
    let features = |name: &str| data.node_type(name).unwrap().features.as_ref().unwrap().names.clone();
    assert_eq!((features("drivers"), features("results")), (vec!["born".to_string()], vec!["points".into()]));
    let task = |name: &str| data.task(name).unwrap();
    let parts = |name: &str| {
        [&task(name).split.train, &task(name).split.valid, &task(name).split.test].map(|p| p.len())
    };
    assert_eq!((parts("driver-dnf"), parts("driver-position")), ([8, 8, 8], [8, 8, 0]));
    assert_eq!(
        (&task("driver-dnf").names[..], data.rows_of(task("driver-position"))),
        (&["0".into(), "1".into()][..], 24)
    );
    assert_eq!(task("driver-dnf").time.as_ref().unwrap()[23], 115 * DAY);
    // two races of each row
    let recommended = task("driver-race");
    assert_eq!(recommended.on, TaskOn::Edges(EdgeType::new("drivers", "driver-race", "races")));
    assert_eq!((parts("driver-race"), data.rows_of(recommended)), ([16, 16, 16], 48));
    let Some(Seeds::Pairs(pairs)) = &recommended.seeds else { panic!("pairs") };
    assert_eq!(pairs[..8], [0, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(recommended.time.as_ref().unwrap()[47], 115 * DAY);
}

#[test]
fn manifests_of_later_versions_describe_the_same_tables() {
    let dir = tempfile::tempdir().unwrap();
    let [old, new] = ["old", "new"].map(|name| dir.path().join(name));
    write(&old);
    write_tasks(&new, false);
    let mut described = serde_json::Map::new();
    for (name, rows) in tables() {
        rows.write(&new.join("db").join(format!("{name}.parquet")), false);
        let relations = json!({ "pkey": rows.key, "time_col": rows.time, "fkeys": rows.foreign() });
        described.insert(name.into(), relations);
    }
    let write_json = |path: PathBuf, value: Value| fs::write(path, value.to_string()).unwrap();
    let manifest = json!({ "name": "f1", "val_timestamp": "2024-01-01", "tables": described });
    write_json(new.join("manifest.json"), manifest);
    for (name, kind, target) in
        [("driver-dnf", "binary_classification", "finished"), ("driver-position", "regression", "position")]
    {
        let manifest = json!({
            "name": name, "kind": "forecast", "task_type": kind, "entity_table": "drivers",
            "entity_col": "driverId", "target_col": target, "time_col": "date", "sql": "SELECT",
        });
        write_json(new.join("tasks").join(name).join("manifest.json"), manifest);
    }
    let manifest = json!({
        "name": "driver-race", "kind": "forecast", "task_type": "link_prediction", "time_col": "date",
        "src_entity_table": "drivers", "src_entity_col": "driverId", "dst_entity_table": "races",
        "dst_entity_col": "raceId",
    });
    write_json(new.join("tasks/driver-race/manifest.json"), manifest.clone());
    let read = |dir: &Path| {
        let RelBench { schema, notes } = relbench(dir, &RelBenchOptions::default()).unwrap();
        (schema.to_string().replace(&dir.display().to_string(), "DIR"), notes)
    };
    assert_eq!(read(&new), read(&old));
    let mut judged = manifest;
    judged["eval_k"] = json!(5);
    write_json(new.join("tasks/driver-race/manifest.json"), judged);
    let schema = relbench(&new, &of_task("driver-race")).unwrap().schema;
    assert_eq!((schema.links[0].metric.as_deref(), schema.targets.len()), (Some("map@5"), 0));
    // a task that completes a column names neither the key nor the time, and hides other columns
    let wet: ArrayRef = integers([0, 1, 0, 0, 1]);
    let columns = vec![("date", dates(100..105)), ("raceId", integers(0..5)), ("wet", wet)];
    let rows = Rows { columns, key: None, time: None, foreign: Vec::new() };
    rows.write(&new.join("tasks/race-wet/train.parquet"), false);
    let manifest = json!({
        "name": "race-wet", "kind": "autocomplete", "task_type": "binary_classification",
        "entity_table": "races", "target_col": "wet", "remove_columns": [["results", "points"]],
    });
    write_json(new.join("tasks/race-wet/manifest.json"), manifest);
    let RelBench { schema, notes } = relbench(&new, &of_task("race-wet")).unwrap();
    let note = |column: &str| format!("column '{column}' is not a feature: the task 'race-wet' hides it");
    assert_eq!(notes, [note("results.points"), note("races.wet")]);
    let [table] = &schema.targets[..] else { unreachable!() };
    assert_eq!((&table.id, &table.time), (&Names::One("raceId".into()), &Some("date".to_string())));
    let data = import_into(&schema, &dir.path().join("out"), None).unwrap().dataset;
    assert!(data.nodes[1..].iter().all(|nodes| nodes.features.is_none()), "the only features are hidden");
}

#[test]
fn a_target_is_no_feature_and_options_choose_its_kind() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let wet = |values: ArrayRef| {
        let columns = vec![("date", dates(100..105)), ("raceId", integers(0..5)), ("wet", values)];
        let rows = Rows { columns, key: None, time: Some("date"), foreign: vec![("raceId", "races")] };
        rows.write(&dir.path().join("tasks/race-wet/train.parquet"), true);
    };
    wet(integers([0, 1, 0, 0, 1]));
    let read = |options: &RelBenchOptions| relbench(dir.path(), options);
    let RelBench { schema, notes } = read(&RelBenchOptions::default()).unwrap();
    assert_eq!(notes, ["column 'races.wet' is not a feature: the task 'race-wet' hides it"]);
    assert_eq!(schema.nodes[1].ignore, ["wet"]);
    assert_eq!(schema.targets[2].task, Some(Target::Classification));
    // other tasks may read it
    let RelBench { schema, notes } = read(&of_task("driver-dnf")).unwrap();
    assert!(notes.is_empty() && schema.nodes[1].ignore.is_empty() && schema.targets.len() == 1);
    let columns = vec![("races.wet".to_string(), "boolean".parse().unwrap())];
    let given = read(&RelBenchOptions { columns, ..RelBenchOptions::default() }).unwrap().schema;
    assert!(given.nodes[1].ignore.is_empty() && given.nodes[1].columns.contains_key("wet"));
    // whole numbers are values or classes
    wet(integers([3, 1, 2, 0, 1]));
    let error = read(&RelBenchOptions::default()).unwrap_err().to_string();
    let part = "task 'race-wet': its target 'wet' has 4 different whole numbers, which are values or \
                classes; choose by --target-task race-wet=regression";
    assert!(error.contains(part), "{error}");
    let kinds = vec![(Some("race-wet".into()), Target::Regression), (None, Target::Classification)];
    let schema = read(&RelBenchOptions { kinds, ..RelBenchOptions::default() }).unwrap().schema;
    let kinds: Vec<Option<Target>> = schema.targets.iter().map(|table| table.task).collect();
    assert_eq!(kinds, [Target::Classification, Target::Classification, Target::Regression].map(Some));
    let lists =
        ListArray::from_iter_primitive::<Int64Type, _, _>((0..5).map(|i| Some(vec![Some(i % 2), Some(1)])));
    wet(Arc::new(lists));
    let error = read(&of_task("race-wet")).unwrap_err().to_string();
    assert!(
        error.contains("task 'race-wet': its target 'wet' is a list per row; other tasks: driver-dnf"),
        "{error}"
    );
}

/// Error of a directory that `change` changes first.
fn error_of(change: impl Fn(&Path), options: &RelBenchOptions) -> String {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    change(dir.path());
    let result: Result<RelBench> = relbench(dir.path(), options);
    result.map(|_| ()).unwrap_err().to_string().replace(&format!("{}/", dir.path().display()), "")
}

#[test]
fn faults_name_the_file_and_the_way_out() {
    let all = RelBenchOptions::default();
    let error = relbench("nowhere", &all).unwrap_err().to_string();
    assert!(error.contains("nowhere"), "{error}");
    let error = relbench("s3://bucket/rel-f1", &all).unwrap_err().to_string();
    assert!(error.contains("addresses are not read; copy the directory"), "{error}");
    let error = error_of(|dir| fs::rename(dir.join("db"), dir.join("database")).unwrap(), &all);
    assert!(error.contains("directory 'db': it is missing; name the directory of a dataset"), "{error}");
    let rewrite = |name: &'static str, change: fn(&mut Rows), described: bool| {
        move |dir: &Path| {
            let mut rows = tables().into_iter().find(|(table, _)| *table == name).unwrap().1;
            change(&mut rows);
            rows.write(&dir.join("db").join(format!("{name}.parquet")), described);
        }
    };
    let error = error_of(rewrite("races", |_| (), false), &all);
    assert!(error.contains("db/races.parquet: metadata: 'pkey_col' is missing"), "{error}");
    let error = error_of(rewrite("results", |rows| rows.foreign[1].1 = "race", true), &all);
    let part = "db/results.parquet: foreign keys: column 'raceId': there is no table 'race', did you mean \
                'races'?; the tables are: drivers, races, results";
    assert!(error.contains(part), "{error}");
    let error = error_of(rewrite("races", |rows| rows.key = None, true), &all);
    assert!(error.contains("column 'raceId': the table 'races' has no primary key"), "{error}");
    let error = error_of(|dir| fs::remove_file(dir.join("tasks/driver-dnf/train.parquet")).unwrap(), &all);
    assert!(error.contains("tasks/driver-dnf: train.parquet: the file is missing"), "{error}");
    let error = error_of(|_| (), &of_task("driver-dnff"));
    assert!(error.contains("unknown task 'driver-dnff', did you mean 'driver-dnf'?"), "{error}");
    // no column says which of the nodes are recommended
    let single = |dir: &Path| {
        let mut rows = asked(110..112, Some(("raceId", integers([1; 2 * DRIVERS]))));
        rows.foreign.push(("raceId", "races"));
        PARTS.iter().for_each(|(part, _)| {
            rows.write(&dir.join("tasks/driver-race").join(format!("{part}.parquet")), true);
        });
    };
    let error = error_of(single, &of_task("driver-race"));
    let part = "task 'driver-race': it recommends nodes, and 0 of the columns driverId and raceId have lists \
                of them instead of one; other tasks: driver-dnf, driver-position";
    assert!(error.contains(part), "{error}");
    let columns = vec![("driver.code".to_string(), "ignore".parse().unwrap())];
    let error = error_of(|_| (), &RelBenchOptions { columns, ..RelBenchOptions::default() });
    assert!(error.contains("unknown table 'driver', did you mean 'drivers'?"), "{error}");
}
