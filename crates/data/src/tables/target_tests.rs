//! Tests of labels of edges, times of nodes and tables of targets.

use std::{fmt::Write as _, fs};

use graphmill_core::{ClassColumn, progress::Quiet};

use super::{
    tests::{contents, error_of, fails, import_into},
    *,
};
use crate::typed::{EdgeType, TypedBuilder};

const USERS: usize = 6;
const FILMS: usize = 4;
const RATINGS: usize = 24;
/// 1 March 2024 in seconds since 1970.
const MARCH: i64 = 1_709_251_200;
const DAY: i64 = 86_400;

const SCHEMA: &str = r#"
name = "films"

[[nodes]]
type = "user"
files = "users.csv"
id = "name"
time = "joined"

[[nodes]]
type = "film"
files = "films.csv"
id = "number"

[[edges]]
type = "rates"
files = "ratings.csv"
source = "user"
src = "who"
destination = "film"
dst = "what"
time = "day"
features = ["seconds"]
label = "stars"
task = "regression"
reverse = "rated_by"

[[targets]]
files = "churn.csv"
on = "user"
id = "who"
time = "day"
label = "churned"
split = "column:fold"

[[targets]]
name = "visits"
files = "churn.csv"
on = "user"
id = "who"
time = "day"
label = ["visits", "spent"]
"#;

/// Source, destination, day and stars of each rating.
fn ratings() -> impl Iterator<Item = (u32, u32, i64, f32)> {
    (0..RATINGS).map(|e| {
        let day = 3 + (e * 5 % 20) as i64;
        ((e % USERS) as u32, (e * 3 % FILMS) as u32, day, (e % 5) as f32 + 0.5)
    })
}

/// Writes the tables of [`SCHEMA`].
fn write_tables(dir: &Path) {
    let mut users = String::from("name,joined,age\n");
    let joined = |u: usize| if u == 5 { String::new() } else { format!("2024-03-0{}", 1 + u % 3) };
    (0..USERS).for_each(|u| writeln!(users, "u{u},{},{}", joined(u), 20 + u).unwrap());
    let mut films = String::from("number,length\n");
    (0..FILMS).for_each(|v| writeln!(films, "{},{}", 10 * v, 90 + v).unwrap());
    let mut rows = String::from("who,what,day,seconds,stars\n");
    for (u, v, day, stars) in ratings() {
        writeln!(rows, "u{u},{},2024-03-{:02},{},{stars}", 10 * v, 1 + day, day * 7).unwrap();
    }
    // three rows of each user, at the days 7, 14 and 21
    let mut churn = String::from("who,day,churned,visits,spent,fold\n");
    for i in 0..3 * USERS {
        let (u, week) = (i % USERS, i / USERS);
        let fold = ["train", "valid", "test"][week];
        let churned = if i == 4 { "" } else { ["no", "yes"][(u + week) % 2] };
        writeln!(churn, "u{u},2024-03-{:02},{churned},{i},{i}.5,{fold}", 8 + 7 * week).unwrap();
    }
    for (name, text) in
        [("users.csv", users), ("films.csv", films), ("ratings.csv", rows), ("churn.csv", churn)]
    {
        fs::write(dir.join(name), text).unwrap();
    }
}

fn schema_in(dir: &Path, text: &str) -> TableSchema {
    let mut schema = TableSchema::parse(text, Path::new("schema.toml")).unwrap();
    schema.base = dir.to_path_buf();
    schema
}

/// Files of tasks and times of a dataset, by path.
fn tasks_and_times(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = contents(dir);
    files.retain(|(path, _)| path.starts_with("tasks") || path.ends_with("time.npy"));
    files
}

/// The dataset of [`SCHEMA`] by the library.
fn built() -> TypedBuilder {
    let mut builder = TypedBuilder::new("films");
    let joined = |u: usize| if u == 5 { i64::MIN } else { MARCH + (u % 3) as i64 * DAY };
    builder.node_type("user", USERS).time((0..USERS).map(joined).collect::<Vec<_>>());
    builder.node_type("film", FILMS);
    let all: Vec<_> = ratings().collect();
    let time: Vec<i64> = all.iter().map(|(_, _, day, _)| MARCH + day * DAY).collect();
    let sources: Vec<u32> = all.iter().map(|(u, ..)| *u).collect();
    let destinations: Vec<u32> = all.iter().map(|(_, v, ..)| *v).collect();
    let edges = builder.edge_type("user", "rates", "film").edges(sources, destinations);
    edges.time(time.clone()).with_reverse("rated_by");
    let task = builder.task("stars").on_edges(EdgeType::new("user", "rates", "film"));
    task.pair_seeds(all.iter().flat_map(|(u, v, ..)| [*u, *v]).collect::<Vec<_>>()).time(time.clone());
    task.values(1, all.iter().map(|row| row.3).collect::<Vec<_>>());
    // the oldest edges train, and the newest test
    let mut order: Vec<u32> = (0..RATINGS as u32).collect();
    order.sort_by_key(|&e| time[e as usize]);
    task.split(&order[..14], &order[14..19], &order[19..]);
    let rows = 3 * USERS;
    let seeds: Vec<u32> = (0..rows as u32).map(|i| i % USERS as u32).collect();
    let weeks: Vec<i64> = (0..rows).map(|i| MARCH + (7 + 7 * (i / USERS) as i64) * DAY).collect();
    let churned = |i: usize| if i == 4 { -1 } else { (i % USERS + i / USERS) as i32 % 2 };
    let task = builder.task("churned").on_nodes("user").node_seeds(seeds.clone()).time(weeks.clone());
    let train: Vec<u32> = (0..6).filter(|&i| i != 4).collect();
    task.classes(2, (0..rows).map(churned).collect::<Vec<_>>()).names(["no", "yes"]).split(
        train,
        (6..12).collect::<Vec<_>>(),
        (12..18).collect::<Vec<_>>(),
    );
    let task = builder.task("visits").on_nodes("user").node_seeds(seeds).time(weeks);
    let values: Vec<f32> = (0..rows).flat_map(|i| [i as f32, i as f32 + 0.5]).collect();
    task.values(2, values).names(["visits", "spent"]).split(
        (0..11).collect::<Vec<_>>(),
        (11..14).collect::<Vec<_>>(),
        (14..18).collect::<Vec<_>>(),
    );
    builder
}

#[test]
fn targets_and_times_are_those_of_the_library() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let schema = schema_in(dir.path(), SCHEMA);
    let [imported, expected] = ["imported", "expected"].map(|name| dir.path().join(name));
    let done = import_into(&schema, &imported, None).unwrap();
    built().build().unwrap().save(&expected).unwrap();
    let (found, wanted) = (tasks_and_times(&imported), tasks_and_times(&expected));
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted));
    for ((name, found), (_, wanted)) in found.iter().zip(&wanted) {
        assert!(found == wanted, "{name} differs");
    }
    // neither a label nor the time of a node is a feature
    let data = &done.dataset;
    assert_eq!(data.nodes[0].features.as_ref().unwrap().names, ["age"]);
    assert_eq!(data.edges[0].features.as_ref().unwrap().names, ["seconds"]);
    let text = done.report.to_string();
    for part in [
        "joined  time, seconds since 1970 (1 missing)",
        "  1 node without a time, which exist from the start",
        "stars    target of a regression",
        "split time:day:60,20,20 (the default): 14 train, 5 validate, 5 test",
        "targets 'churned' of 'user': 18 rows",
        "churned  label: 2 classes (1 missing)",
        "spent    ignored: not a column of targets",
        "split column:fold: 5 train, 6 validate, 6 test",
        "1 row of the split left out, because the label is missing",
        "targets 'visits' of 'user': 18 rows",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let planned = plan(&schema, None).unwrap();
    assert!(planned.report.to_string().contains("targets 'churned' of 'user': 18 rows"));
    let again = TableSchema::parse(&planned.schema.to_string(), Path::new("schema.toml")).unwrap();
    assert_eq!(again.targets, schema.targets);
}

#[test]
fn targets_do_not_depend_on_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let schema = schema_in(dir.path(), SCHEMA);
    let [large, small] = ["large", "small"].map(|name| dir.path().join(name));
    import_into(&schema, &large, None).unwrap();
    import_into(&schema, &small, Some(Budget { cache: 0, keys: 0, recorded: 0 })).unwrap();
    assert!(contents(&large) == contents(&small));
}

#[test]
fn classes_of_edges_are_split_at_random_without_times_and_once_for_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    let mut edges = String::from("a,b,kind,side\n");
    (0..40).for_each(|e| {
        writeln!(edges, "{},{},{},{}", e % 7, (e * 3 + 1) % 7, ["x", "y"][e % 2], e % 3).unwrap();
    });
    fs::write(dir.path().join("edges.csv"), edges).unwrap();
    let text = "[[nodes]]\n[[edges]]\nfiles = \"edges.csv\"\nsrc = \"a\"\ndst = \"b\"\nlabel = [\"kind\", \
                \"side\"]\ntask = \"classification\"\nundirected = true\n";
    let schema = schema_in(dir.path(), text);
    let data = import_into(&schema, &dir.path().join("out"), None).unwrap().dataset;
    let task = &data.tasks[0];
    assert_eq!((&task.name[..], data.rows_of(task), task.time.is_none()), ("kind-side", 40, true));
    let column = |name: &str, classes| ClassColumn { name: name.into(), classes };
    assert_eq!(task.columns(), [column("kind", 2), column("side", 3)]);
    assert_eq!(task.names, ["x", "y", "0", "1", "2"]);
    let split = &task.split;
    assert_eq!([split.train.len(), split.valid.len(), split.test.len()], [24, 8, 8]);
    assert_ne!(split.train[..], (0..24).collect::<Vec<_>>()[..], "a random split");
}

#[test]
fn classes_keep_their_numbers_by_the_statistics_of_another_dataset() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let schema = schema_in(dir.path(), SCHEMA);
    import_into(&schema, &dir.path().join("first"), None).unwrap();
    let like = Preprocessing::read(&dir.path().join("first")).unwrap();
    // only "yes" is left, which was class 1
    let churn = "who,day,churned,visits,spent,fold\nu1,2024-04-01 00:00:00.5,yes,1,2.5,test\n";
    fs::write(dir.path().join("churn.csv"), churn.replace(":00.5", ":00")).unwrap();
    let second = |name: &str| {
        let work = Work { memory: Some(1 << 26), replace: false, progress: Box::new(Quiet) };
        import_tables(&schema, dir.path().join(name), Some(&like), work)
    };
    let data = second("second").unwrap().dataset;
    assert_eq!(data.task("churned").unwrap().names, ["no", "yes"]);
    assert!(data.task("churned").unwrap().split.test[..] == [0]);
    // the unit of the times is that of the dataset
    fs::write(dir.path().join("churn.csv"), churn).unwrap();
    let error = second("third").unwrap_err().to_string();
    assert!(error.contains("is not a time in time, seconds since 1970"), "{error}");
}

/// Error of an import of [`SCHEMA`] with another file `name`, whose text `change` makes.
fn error_with(name: &str, change: impl Fn(&str) -> String) -> String {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    let files = ["users.csv", "films.csv", "ratings.csv", "churn.csv"].map(|file| {
        let text = read(file);
        (file, if file == name { change(&text) } else { text })
    });
    error_of(&files.each_ref().map(|(name, text)| (*name, &text[..])), SCHEMA)
}

#[test]
fn faults_of_targets_are_listed_with_their_rows() {
    let error = error_with("churn.csv", |text| {
        text.replace("u3,2024-03-08", "u3,")
            + "u9,2024-03-08,no,1,1.5,train\n,2024-03-08,no,1,1.5,train\nu0,2024-03-08,no,1,1.5,train\n\
               u0,2024-02-01,no,1,1.5,train\n"
    });
    for part in [
        "churn.csv: 1 row with a node that is not in the table of 'user': line 20 'u9'; add the nodes, or \
         choose dangling = drop",
        "churn.csv: 1 row without the key of a node: line 21; complete them",
        "churn.csv: 1 row without a time: line 5; complete the times, or remove these rows",
        "churn.csv: 1 row with the node and time of an earlier row: line 22; keep one row of each",
        "churn.csv: 1 row with a time before that from which the node exists: line 23; remove",
    ] {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let error = error_with("churn.csv", |text| text.replace("2024-03-08", "soon"));
    assert!(error.contains("column 'day': not every value is one of dates or numbers"), "{error}");
    let error = error_with("churn.csv", |text| text.replace("train", "training day"));
    assert!(error.contains("'training day' is not train, valid or test"), "{error}");
    let error = error_with("ratings.csv", |text| text.replace(",0.5", ",good"));
    assert!(error.contains("a target of a regression is a number"), "{error}");
    let error = error_with("ratings.csv", |text| text.replacen("2024-03-04", "NaN", 1));
    assert!(
        error.contains("ratings.csv: 1 row with a label, but without a time: line 2; complete"),
        "{error}"
    );
}

#[test]
fn times_of_all_tables_have_one_unit() {
    // one part of a second makes all times microseconds
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let path = dir.path().join("churn.csv");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("2024-03-08", "2024-03-08 00:00:00.25", 1)).unwrap();
    let schema = schema_in(dir.path(), SCHEMA);
    let done = import_into(&schema, &dir.path().join("out"), None).unwrap();
    let data = &done.dataset;
    assert_eq!(
        data.task("churned").unwrap().time.as_ref().unwrap()[0],
        (MARCH + 7 * DAY) * 1_000_000 + 250_000
    );
    assert_eq!(data.nodes[0].time.as_ref().unwrap()[0], MARCH * 1_000_000);
    assert_eq!(data.edges[0].time.as_ref().unwrap().iter().min(), Some(&((MARCH + 3 * DAY) * 1_000_000)));
    assert!(!done.report.to_string().contains("time, seconds"));
    let error = error_with("churn.csv", |text| text.replace("2024-03-", "1"));
    assert!(error.contains("it holds dates, but column 'day' of churn.csv holds numbers"), "{error}");
}

#[test]
fn unknown_nodes_of_targets_are_dropped_on_request() {
    let dir = tempfile::tempdir().unwrap();
    write_tables(dir.path());
    let path = dir.path().join("churn.csv");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "u9,2024-03-08,no,1,1.5,train\n").unwrap();
    let mut schema = schema_in(dir.path(), SCHEMA);
    schema.dangling = Dangling::Drop;
    let done = import_into(&schema, &dir.path().join("out"), None).unwrap();
    assert_eq!(done.dataset.rows_of(done.dataset.task("churned").unwrap()), 18);
    let text = done.report.to_string();
    assert!(text.contains("1 row dropped, because the node has no row: line 20 'u9'"), "{text}");
}

#[test]
fn schemas_of_targets_are_checked() {
    let files =
        [("nodes.csv", "id,x,y\na,1,no\nb,2,yes\n"), ("t.csv", "who,y,to\na,no,b\nb,yes,a\na,yes,b\n")];
    let nodes = "[[nodes]]\nfiles = \"nodes.csv\"\nid = \"id\"\nlabel = \"y\"\n";
    let targets = |lines: &str| format!("{nodes}[[targets]]\nfiles = \"t.csv\"\n{lines}\n");
    let named = "name = \"z\"\nid = \"who\"\nlabel = \"y\"";
    fails(&files, &targets("id = \"who\"\nlabel = \"y\""), &["two tasks are called 'y'; give the table"]);
    fails(&files, &targets(&format!("{named}\non = \"user\"")), &["targets 'z': 'user' is not a node type"]);
    fails(&files, &targets("name = \"z\"\nlabel = \"y\"\nid = []"), &["targets 'z': id is missing"]);
    fails(&files, &targets(&format!("{named}\ntime = \"when\"")), &["there is no column 'when'"]);
    let repeated = "t.csv: 1 row with the node of an earlier row: line 4; keep one row of each, or name";
    fails(&files, &targets(named), &[repeated]);
    let edges = "[[nodes]]\n[[edges]]\nfiles = \"t.csv\"\nsrc = \"who\"\ndst = \"to\"\nlabel = \"y\"\n\
                 features = [\"y\"]\n";
    fails(&files, edges, &["column 'y' is the label, which no edge reads; leave it out of the features"]);
}
