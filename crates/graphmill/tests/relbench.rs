//! From a directory of RelBench to predictions of a task.

use std::{fs, sync::Arc};

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, TimestampNanosecondArray, types::Int64Type,
};
use parquet::{
    arrow::ArrowWriter,
    file::{metadata::KeyValue, properties::WriterProperties},
};

use crate::common::Sandbox;

const DRIVERS: i64 = 30;
const RACES: i64 = 40;
/// Days on which the task asks about each driver: those of each part.
const ASKED: [(&str, [i64; 2]); 3] = [("train", [120, 135]), ("val", [150, 155]), ("test", [165, 170])];

type Columns = Vec<(&'static str, ArrayRef)>;

/// Writes a table as RelBench does: with its keys and its time as JSON beside the columns.
fn write(sandbox: &Sandbox, name: &str, columns: Columns, [foreign, key, time]: [&str; 3]) {
    let path = sandbox.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap();
    let pairs = [("fkey_col_to_pkey_table", foreign), ("pkey_col", key), ("time_col", time)];
    let pairs = pairs.map(|(key, value)| KeyValue::new(key.to_string(), value.to_string()));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs.to_vec())).build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

fn dates(days: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampNanosecondArray::from_iter_values(days.into_iter().map(|day| day * 86_400_000_000_000)))
}

/// Writes drivers, races, the results of drivers in races, a task on drivers of each kind and a
/// recommendation.
fn database(sandbox: &Sandbox) {
    let drivers =
        vec![("driverId", integers(0..DRIVERS)), ("born", integers((0..DRIVERS).map(|i| 1970 + i % 9)))];
    write(sandbox, "rel-f1/db/drivers.parquet", drivers, ["{}", "\"driverId\"", "null"]);
    let races = vec![
        ("raceId", integers(0..RACES)),
        ("date", dates((0..RACES).map(|i| 100 + 2 * i))),
        ("laps", integers((0..RACES).map(|i| 50 + i % 7))),
    ];
    write(sandbox, "rel-f1/db/races.parquet", races, ["{}", "\"raceId\"", "\"date\""]);
    let rows = || (0..RACES).flat_map(|race| (0..DRIVERS).map(move |driver| (race, driver)));
    let driver = |(race, driver): (i64, i64)| (race % 10 != driver).then_some(driver as f64);
    let results = vec![
        ("driverId", Arc::new(rows().map(driver).collect::<Float64Array>()) as ArrayRef),
        ("raceId", integers(rows().map(|(race, _)| race))),
        ("date", dates(rows().map(|(race, _)| 100 + 2 * race))),
        (
            "points",
            Arc::new(Float64Array::from_iter_values(rows().map(|(race, v)| ((v + race) % 5) as f64 / 2.0))),
        ),
    ];
    let keys = "{\"driverId\": \"drivers\", \"raceId\": \"races\"}";
    write(sandbox, "rel-f1/db/results.parquet", results, [keys, "null", "\"date\""]);
    for (part, days) in ASKED {
        let rows = || days.into_iter().flat_map(|day| (0..DRIVERS).map(move |driver| (day, driver)));
        let asked = || {
            vec![("date", dates(rows().map(|row| row.0))), ("driverId", integers(rows().map(|row| row.1)))]
        };
        let path = |task: &str| format!("rel-f1/tasks/{task}/{part}.parquet");
        let of_drivers = ["{\"driverId\": \"drivers\"}", "null", "\"date\""];
        let mut finished = asked();
        finished.push(("finished", integers(rows().map(|(_, driver)| driver % 2))));
        write(sandbox, &path("driver-dnf"), finished, of_drivers);
        let mut position = asked();
        if part != "test" {
            let values = rows().map(|(day, driver)| (day + driver) as f64 / 4.0);
            position.push(("position", Arc::new(Float64Array::from_iter_values(values))));
        }
        write(sandbox, &path("driver-position"), position, of_drivers);
        let mut raced = asked();
        let lists = rows().map(|(day, driver)| Some(vec![Some((day + driver) % RACES)]));
        raced.push(("raceId", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))));
        write(sandbox, &path("driver-race"), raced, [keys, "null", "\"date\""]);
    }
}

#[test]
fn a_task_of_a_database_is_imported_learned_and_predicted() {
    let sandbox = Sandbox::new();
    database(&sandbox);
    let text = sandbox.ok("import relbench rel-f1 f1");
    for part in [
        "nodes 'results': 1200 nodes, 1 feature",
        "targets 'driver-dnf' of 'drivers': 180 rows",
        "split files: 60 train, 60 validate, 60 test",
        "split files: 60 train, 60 validate, 0 test",
        "60 rows without a label, which are predicted",
        "targets 'driver-race' of 'drivers:driver-race:races': 118 rows",
        "split files: 19 train, 45 validate, 54 test",
        "f1: 1270 nodes of 3 types, 4720 edges of 4 types, 3 tasks",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let train = "--epochs 1 --hidden 8 --fanout 1,4,4 --batch-size 20 --time-bound inclusive";
    let summary = sandbox.ok_json(&format!("train f1 --task driver-dnf {train} --out run"));
    assert!(summary["test"]["score"].as_f64().is_some(), "{summary}");
    let links = "--epochs 1 --hidden 8 --fanout 4,4 --batch-size 20 --time-bound inclusive";
    let summary = sandbox.ok_json(&format!("train f1 --task driver-race {links} --out races"));
    assert!(summary["test"]["score"].as_f64().is_some(), "{summary}");
    assert_eq!(summary["test"]["metric"], "map@10", "{summary}");
    sandbox.ok("predict run --out rows.csv");
    let rows = String::from_utf8(sandbox.read("rows.csv")).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert_eq!((lines.len(), lines[0]), (181, "driverId,time,class"));
    assert!(lines[1].starts_with(&format!("0,{},", 120 * 86_400)), "{}", lines[1]);
    // one task alone, by the schema that a dry run prints
    let one = "import relbench rel-f1 data --task driver-position --column drivers.born=quantile";
    let document = sandbox.ok_json(one);
    assert_eq!((&document["nodes"], &document["edges"]), (&1270.into(), &4720.into()));
    let planned = sandbox.ok(&one.replace(" data", " none --dry-run"));
    assert!(!sandbox.path("none").exists() && planned.contains("reverse = \"rev_raceId\""), "{planned}");
    sandbox.write("schema.toml", planned.split("# schema.toml\n").nth(1).unwrap());
    sandbox.ok("import tables again schema.toml --name data");
    assert!(sandbox.read("data/graphmill.json") == sandbox.read("again/graphmill.json"));
    // new nodes have no time, of which the rows of the task have one
    sandbox.write("new.csv", "points\n1\n");
    let outcome = sandbox.run("predict run --on results=new.csv --out -");
    assert_eq!(outcome.status, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("gives no time for a row"), "{}", outcome.stderr);
}

#[test]
fn wrong_tasks_and_directories_name_the_way_out() {
    let sandbox = Sandbox::new();
    database(&sandbox);
    let base = "import relbench rel-f1 data";
    for (args, status, says) in [
        (format!("{base} --task driver-dfn"), 1, "unknown task 'driver-dfn', did you mean 'driver-dnf'?"),
        (format!("{base} --target-task numbers"), 2, "--target-task numbers: unknown task 'numbers'"),
        (format!("{base} --column races=ignore"), 1, "column 'races': write TABLE.COLUMN"),
        (format!("{base} --column races.lap=ignore"), 1, "there is no column 'lap', did you mean 'laps'?"),
        ("import relbench nowhere data".into(), 1, "nowhere"),
        ("import relbench rel-f1/db data".into(), 1, "it is missing; name the directory of a dataset"),
        ("import relbench rel-f1".into(), 2, "<DST>"),
    ] {
        let outcome = sandbox.run(&args);
        assert!(outcome.stderr.contains(says), "{args}: {says} is not in: {}", outcome.stderr);
        assert_eq!(outcome.status, Some(status), "{args}: {}", outcome.stderr);
        assert!(!sandbox.path("data").exists(), "{args}");
    }
}
