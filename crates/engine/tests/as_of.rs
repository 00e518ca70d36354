//! Predictions as of a time: later edges and nodes have no influence.

use std::{fs, path::Path};

use graphmill_data::{
    TypedBuilder,
    typed::{self, TypedDataset, Verify},
};
use graphmill_engine::{
    AnyDataset, CandidateOptions, EmbedOptions, Error, RunContext, RunDir, TrainConfig,
    observer::Quiet,
    options::key,
    saved::{Kind, SavedRun, Selection},
    typed::SavedTypedRun,
};

const COUNT: u32 = 60;
/// Time that the tests look from.
const AT: i64 = 50;

/// Shape of a dataset.
#[derive(Clone, Copy, Default)]
struct Shape {
    /// A second node type and the reverse of the edges.
    several_types: bool,
    /// Time of the rows of the task, if they have one.
    row_time: Option<i64>,
    /// Without the edges from time [`AT`] on.
    past_only: bool,
}

fn data(dir: &Path, shape: Shape) -> TypedDataset {
    let mut builder = TypedBuilder::new("people");
    let features: Vec<f32> = (0..COUNT * 2).map(|i| ((i * 37) % 11) as f32 / 5.0 - 1.0).collect();
    // node 7 exists from a later time on, unless its row has an earlier one
    let of_seventh = if shape.row_time.is_some_and(|time| time < 90) { 0 } else { 90 };
    let exists: Vec<i64> = (0..COUNT).map(|v| if v == 7 { of_seventh } else { 0 }).collect();
    builder.node_type("person", COUNT as usize).features(2, features.clone()).time(exists);
    let source = if shape.several_types { "place" } else { "person" };
    if shape.several_types {
        builder.node_type("place", COUNT as usize).features(2, features);
    }
    let edges =
        (0..COUNT * 5).map(|e| ((e * 17 + e / COUNT) % COUNT, e * 7 % COUNT, i64::from(e * 13 % 100)));
    // nothing before time 90 knows node 7
    let edges: Vec<(u32, u32, i64)> = edges
        .filter(|&(u, v, time)| time >= 90 || v != 7 && (u != 7 || shape.several_types))
        .filter(|&(_, _, time)| !shape.past_only || time < AT)
        .collect();
    let of_edges = builder.edge_type(source, "meets", "person");
    of_edges
        .edges(edges.iter().map(|e| e.0).collect::<Vec<_>>(), edges.iter().map(|e| e.1).collect::<Vec<_>>());
    of_edges.time(edges.iter().map(|e| e.2).collect::<Vec<_>>());
    if shape.several_types {
        of_edges.with_reverse("met");
    }
    let task = builder.task("kind").on_nodes("person");
    task.classes(3, (0..COUNT as i32).map(|v| v % 3).collect::<Vec<_>>());
    if let Some(time) = shape.row_time {
        task.time(vec![time; COUNT as usize]);
    }
    task.split((0..40).collect::<Vec<_>>(), (40..50).collect::<Vec<_>>(), (50..60).collect::<Vec<_>>());
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

fn train(data: &Path, run: &Path, options: &[(&str, &str)]) -> SavedRun {
    let mut config = TrainConfig { epochs: 2, hidden: 8, batch_size: 16, ..TrainConfig::default() };
    config.dataset = data.to_str().unwrap().into();
    for (name, value) in options {
        key(name).unwrap().parse(&mut config, value).map_err(Error::usage).unwrap();
    }
    config.derive_options(&options.iter().map(|(name, _)| *name).collect::<Vec<_>>()).unwrap();
    let run_dir = RunDir::create(run).unwrap();
    let context = RunContext { run: Some(&run_dir), resume: false, observer: &mut Quiet, stop: &|| false };
    AnyDataset::open(&config).unwrap().train(&config, context).unwrap();
    SavedRun::open(run, false).unwrap()
}

/// Bytes that `predict` writes for nodes of `list`, or for all.
fn predict(run: &SavedRun, data: &Path, list: Option<&str>) -> Result<Vec<u8>, Error> {
    let out = run_file(data);
    let selection = list.map_or(Selection::All, Selection::List);
    match SavedTypedRun::of(run) {
        Some(typed) => {
            typed.predict(&typed.dataset(Some(data))?, selection, false, Kind::Probabilities, &out, &Quiet)?
        }
        None => run.predict_selection(
            &run.dataset(Some(data))?,
            selection,
            false,
            Kind::Probabilities,
            &out,
            &Quiet,
        )?,
    };
    Ok(fs::read(out).unwrap())
}

fn run_file(data: &Path) -> std::path::PathBuf {
    data.with_extension("csv")
}

#[test]
fn later_edges_and_nodes_do_not_influence_a_prediction_as_of_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let shapes = [
        (Shape::default(), &[("model", "gcn"), ("fanout", "4,3")][..]),
        (Shape { several_types: true, ..Shape::default() }, &[("model", "rgcn"), ("fanout", "4,3")]),
        (Shape { row_time: Some(95), ..Shape::default() }, &[("model", "rsage"), ("fanout", "4,3")]),
        (
            Shape { row_time: Some(95), several_types: true, ..Shape::default() },
            &[("model", "rgat"), ("fanout", "4,3"), ("time_window", "70")],
        ),
    ];
    for (i, (shape, options)) in shapes.into_iter().enumerate() {
        let [whole, past, run] = ["whole", "past", "run"].map(|name| dir.path().join(format!("{name}-{i}")));
        data(&whole, shape);
        data(&past, Shape { past_only: true, ..shape });
        let saved = train(&whole, &run, options);
        let seen = |at: i64| saved.clone().as_of(at).unwrap();
        let then = predict(&seen(AT), &whole, None).unwrap();
        assert!(then == predict(&seen(AT), &past, None).unwrap(), "{i}: later edges have an influence");
        let text = String::from_utf8(then.clone()).unwrap();
        assert_eq!(text.lines().count(), COUNT as usize, "{i}: all nodes but the one that is new");
        assert!(!text.lines().any(|line| line.starts_with("7,")), "{i}: {text}");
        assert!(then != predict(&seen(94), &whole, None).unwrap(), "{i}: earlier edges have an influence");
        let some = predict(&seen(AT), &whole, Some("3,9")).unwrap();
        let some = String::from_utf8(some).unwrap();
        assert!(some.lines().all(|line| text.lines().any(|other| other == line)), "{i}: {some}");
        let message = predict(&seen(AT), &whole, Some("3,7")).unwrap_err().to_string();
        assert!(message.contains("--at 50: node 7 exists from time 90 on; use a later time"), "{message}");
        let message = predict(&seen(-9), &whole, None).unwrap_err().to_string();
        assert!(message.contains("--at -9: the first node exists from time 0 on"), "{message}");
        let rows = |at| {
            let options = EmbedOptions { at, ..EmbedOptions::default() };
            let out = run_file(&whole);
            saved.embed_on(Some(&whole), Selection::List("3,9"), options, &out, &Quiet).unwrap();
            fs::read(out).unwrap()
        };
        assert!(rows(Some(AT)) != rows(Some(90)), "{i}: embeddings");
        if shape.row_time.is_none() {
            assert!(rows(Some(1000)) == rows(None), "{i}: the end is the default");
        }
    }
}

#[test]
fn tasks_at_times_keep_the_times_of_their_rows_without_another_time() {
    let dir = tempfile::tempdir().unwrap();
    for (several_types, model) in [(false, "rsage"), (true, "rgat")] {
        let shape = Shape { row_time: Some(AT), several_types, ..Shape::default() };
        let [whole, past, run] =
            ["whole", "past", "run"].map(|name| dir.path().join(format!("{name}-{model}")));
        data(&whole, shape);
        data(&past, Shape { past_only: true, ..shape });
        let saved = train(&whole, &run, &[("model", model), ("fanout", "4,3")]);
        let predicted = predict(&saved, &whole, None).unwrap();
        assert!(predicted == predict(&saved, &past, None).unwrap(), "{model}: predict reads later edges");
        let later = predict(&saved.clone().as_of(94).unwrap(), &whole, Some("3,9")).unwrap();
        assert!(
            later != predict(&saved, &whole, Some("3,9")).unwrap(),
            "{model}: later edges have an influence"
        );
        let embedded = |data: &Path| {
            let (options, out) = (EmbedOptions::default(), run_file(data));
            saved.embed_on(Some(data), Selection::All, options, &out, &Quiet).unwrap();
            fs::read(out).unwrap()
        };
        assert!(embedded(&whole) == embedded(&past), "{model}: embed reads later edges");
        let typed = SavedTypedRun::of(&saved).unwrap();
        let scores = |data: &Path| {
            let scores = typed.scores(&typed.dataset(Some(data)).unwrap(), &Quiet).unwrap();
            serde_json::to_string(&scores.parts).unwrap()
        };
        assert_eq!(scores(&whole), scores(&past), "{model}: eval reads later edges");
    }
}

#[test]
fn edges_of_the_time_itself_are_read_with_an_inclusive_bound() {
    let dir = tempfile::tempdir().unwrap();
    let shape = Shape { row_time: Some(95), ..Shape::default() };
    let (whole, past) = (dir.path().join("whole"), dir.path().join("past"));
    data(&whole, shape);
    data(&past, Shape { past_only: true, ..shape });
    for (bound, is_read) in [("strict", false), ("inclusive", true)] {
        let options = [("model", "rsage"), ("fanout", "4,3"), ("time_bound", bound)];
        let run = train(&whole, &dir.path().join(bound), &options).as_of(AT).unwrap();
        let same = predict(&run, &whole, None).unwrap() == predict(&run, &past, None).unwrap();
        assert_eq!(same, !is_read, "{bound}");
    }
}

#[test]
fn runs_without_times_are_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    data(&whole, Shape::default());
    let links = train(&whole, &dir.path().join("links"), &[("task", "link"), ("fanout", "4,3")]);
    let message = links.clone().as_of(5).map(drop).unwrap_err().to_string();
    assert_eq!(message, "--at 5: the run learned edges, which are not read as of a time; leave it out");
    let options = CandidateOptions { k: 2, at: Some(5), ..CandidateOptions::default() };
    let message =
        links.candidates_on(None, Selection::All, options, &Quiet).map(drop).unwrap_err().to_string();
    assert!(message.contains("--at 5: only runs on streams of events and on nodes"), "{message}");
    let timeless = dir.path().join("timeless");
    graphmill_data::generate::demo().unwrap().save(&timeless).unwrap();
    let run = train(&timeless, &dir.path().join("run"), &[("fanout", "4,3")]).as_of(5).unwrap();
    let message = predict(&run, &timeless, None).unwrap_err().to_string();
    assert!(message.contains("no node and no edge has a time; leave it out"), "{message}");
}
