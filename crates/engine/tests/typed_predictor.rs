//! A predictor of a run on several types answers what `predict` writes for the nodes of the task's
//! type, whichever nodes are asked for together and by however many threads.

use std::path::Path;

use graphmill_core::{NodeId, progress};
use graphmill_data::{
    TypedDataset,
    generate::{GenerateOptions, generate_typed},
    npy,
    typed::{FeatureTable, TypedBuilder, Verify, open},
};
use graphmill_engine::{
    RunContext, RunDir, TrainConfig,
    observer::Quiet,
    options::key,
    predictor::{Answers, Neighborhood, Predictor, Task},
    saved::{Kind, SavedRun, Selection},
    typed::{SavedTypedRun, train},
};
use graphmill_loader::typed::TABLE as SAMPLERS;
use graphmill_nn::typed::TABLE as MODELS;
use rayon::ThreadPoolBuilder;

/// A dataset of three types in a directory, opened from there: classes of papers.
fn papers(dir: &Path) -> TypedDataset {
    let options = GenerateOptions { nodes: 240, classes: 3, dim: 6, p_in: 0.9, ..GenerateOptions::default() };
    stored(generate_typed("typed", &options).unwrap(), dir)
}

fn stored(data: TypedDataset, dir: &Path) -> TypedDataset {
    data.save(dir).unwrap();
    open(dir, Verify::Once).unwrap()
}

/// A run of one epoch with these options on the dataset in `data`.
fn trained(dir: &Path, data: &TypedDataset, options: &[(&str, &str)]) -> SavedRun {
    let mut config = TrainConfig { epochs: 1, batch_size: 64, hidden: 8, ..TrainConfig::default() };
    config.dataset = data.directory.as_deref().and_then(Path::to_str).unwrap().into();
    config.fanout = "3,2".parse().unwrap();
    let given: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
    options.iter().for_each(|(name, value)| key(name).unwrap().parse(&mut config, value).unwrap());
    config.derive_options(&given).unwrap();
    let run = RunDir::create(dir).unwrap();
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    train(&config, data, context).unwrap();
    SavedRun::open(dir, false).unwrap()
}

/// Values that `predict` writes for all nodes.
fn written(run: &SavedRun, data: &TypedDataset, kind: Kind, dir: &Path) -> npy::NpyFile {
    let out = dir.join(format!("{kind:?}.npy"));
    let saved = SavedTypedRun::of(run).unwrap();
    saved.predict(data, Selection::All, false, kind, &out, &progress::Quiet).unwrap();
    npy::open(&out).unwrap()
}

/// Bits of the scores, which equal numbers must share.
fn bits(scores: &[f32]) -> Vec<u32> {
    scores.iter().map(|x| x.to_bits()).collect()
}

fn all(predictor: &Predictor) -> Vec<NodeId> {
    (0..predictor.num_nodes() as NodeId).collect()
}

/// Checks that nodes have the same answers alone, in other company, twice, and by several threads.
fn assert_alone(predictor: &Predictor, of: Neighborhood, expected: &Answers, case: &str) {
    for v in all(predictor) {
        let one = predictor.predict(&[v], of).unwrap();
        assert_eq!(bits(&one.scores), bits(&expected.part(v as usize, 1).scores), "{case}: node {v}");
    }
    let mixed: Vec<NodeId> = all(predictor).into_iter().rev().step_by(3).chain([1, 0, 1]).collect();
    for threads in [1, 3] {
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let some = pool.install(|| predictor.predict(&mixed, of)).unwrap();
        for (i, &v) in mixed.iter().enumerate() {
            assert_eq!(bits(&some.part(i, 1).scores), bits(&expected.part(v as usize, 1).scores), "{case}");
        }
    }
}

#[test]
fn exact_answers_of_every_model_are_the_bits_of_predict_also_from_cached_embeddings() {
    let dir = tempfile::tempdir().unwrap();
    let data = papers(&dir.path().join("papers"));
    for model in MODELS.iter().filter(|row| !row.make.reads_edges).map(|row| row.name) {
        let path = dir.path().join(model);
        let run = trained(&path, &data, &[("model", model)]);
        let expected: Vec<f32> = written(&run, &data, Kind::Probabilities, &path).read_as_f32().unwrap();
        let classes: Vec<i64> = written(&run, &data, Kind::Classes, &path).read_as_i64().unwrap();
        let embeddings: Vec<f32> = written(&run, &data, Kind::Embeddings, &path).read_as_f32().unwrap();
        let mut predictor = Predictor::open(&path, None, false).unwrap();
        assert_eq!((predictor.task(), predictor.num_scores()), (Task::Classes, 3));
        assert_eq!((predictor.num_nodes(), predictor.node_type()), (120, Some("paper")));
        let answers = predictor.predict(&all(&predictor), Neighborhood::All).unwrap();
        assert_eq!((bits(&answers.scores), &answers.classes), (bits(&expected), &classes), "{model}");
        assert_alone(&predictor, Neighborhood::All, &answers, model);
        let (width, rows) = predictor.embed(&[7, 9], Neighborhood::All).unwrap();
        assert_eq!(rows[width..], embeddings[9 * width..10 * width], "{model}");
        // from cached rows, too
        let (rows, bytes) = predictor.cache_embeddings(&progress::Quiet).unwrap();
        assert!(rows > 120 && bytes == 32 * rows as u64, "{model}: {rows} rows of 8 numbers");
        assert_alone(&predictor, Neighborhood::All, &answers, model);
        assert!(predictor.predict(&[], Neighborhood::All).unwrap().is_empty());
    }
}

#[test]
fn models_with_edge_features_answer_the_bits_of_predict() {
    let dir = tempfile::tempdir().unwrap();
    let options = GenerateOptions { nodes: 240, classes: 3, dim: 6, p_in: 0.9, ..GenerateOptions::default() };
    let mut data = generate_typed("typed", &options).unwrap();
    for edges in &mut data.edges {
        let values: Vec<f32> = (0..2 * edges.num_edges()).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
        edges.features = Some(FeatureTable::dense(2, values));
    }
    let data = stored(data, &dir.path().join("papers"));
    let models: Vec<&str> = MODELS.iter().filter(|row| row.make.reads_edges).map(|row| row.name).collect();
    assert!(models.contains(&"gine"), "{models:?}");
    for model in models {
        let path = dir.path().join(model);
        let run = trained(&path, &data, &[("model", model)]);
        let expected: Vec<f32> = written(&run, &data, Kind::Probabilities, &path).read_as_f32().unwrap();
        let mut predictor = Predictor::open(&path, None, false).unwrap();
        let answers = predictor.predict(&all(&predictor), Neighborhood::All).unwrap();
        assert_eq!(bits(&answers.scores), bits(&expected), "{model}");
        assert_alone(&predictor, Neighborhood::All, &answers, model);
        predictor.cache_embeddings(&progress::Quiet).unwrap();
        assert_alone(&predictor, Neighborhood::All, &answers, model);
        let drawn = Neighborhood::Drawn { seed: 5 };
        let answers = predictor.predict(&all(&predictor), drawn).unwrap();
        assert_alone(&predictor, drawn, &answers, model);
    }
}

#[test]
fn samplers_of_single_nodes_answer_by_seed_and_others_say_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let data = papers(&dir.path().join("papers"));
    // samplers by weight need weights
    for row in SAMPLERS.iter().filter(|row| row.name != "weighted") {
        let path = dir.path().join(row.name);
        trained(&path, &data, &[("model", "rgat"), ("heads", "2"), ("sampler", row.name)]);
        let predictor = Predictor::open(&path, None, false).unwrap();
        let drawn = Neighborhood::Drawn { seed: 5 };
        let draws = !row.make.counts_nodes && !row.make.draws_subgraphs;
        assert_eq!(predictor.check(drawn).is_ok(), draws, "{}", row.name);
        match predictor.predict(&all(&predictor), drawn) {
            Ok(answers) => {
                assert_alone(&predictor, drawn, &answers, row.name);
                let other = predictor.predict(&all(&predictor), Neighborhood::Drawn { seed: 6 }).unwrap();
                assert_eq!(answers == other, row.name == "full", "{}", row.name);
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains("seed 5") && message.contains("without a seed"), "{message}");
            }
        }
    }
}

/// Users with values at times, and items, in a directory.
fn shop(dir: &Path) -> TypedDataset {
    const USERS: usize = 40;
    let mut builder = TypedBuilder::new("shop");
    let features: Vec<f32> = (0..2 * USERS).map(|i| (i % 7) as f32 - 3.0).collect();
    builder.node_type("user", USERS).features(2, features);
    builder.node_type("item", 9).features(1, (0..9).map(|i| i as f32).collect::<Vec<f32>>());
    let users: Vec<u32> = (0..160).map(|e| e % USERS as u32).collect();
    let items: Vec<u32> = (0..160).map(|e| e * 5 % 9).collect();
    let times: Vec<i64> = (0..160).map(|e| i64::from(e * 37 % 50)).collect();
    builder.edge_type("user", "buys", "item").edges(users, items).time(times).with_reverse("bought-by");
    let values: Vec<f32> = (0..USERS).map(|v| 1000.0 + 10.0 * v as f32).collect();
    let rows: Vec<i64> = (0..USERS as i64).map(|v| 10 + v).collect();
    let task = builder.task("spend").on_nodes("user").values(1, values).time(rows);
    task.split((0..30).collect::<Vec<u32>>(), (30..35).collect::<Vec<u32>>(), (35..40).collect::<Vec<u32>>());
    stored(builder.build().unwrap(), dir)
}

#[test]
fn values_at_times_are_those_of_predict_at_the_scale_of_the_targets() {
    let dir = tempfile::tempdir().unwrap();
    let (data, path) = (shop(&dir.path().join("shop")), dir.path().join("run"));
    let run = trained(&path, &data, &[("model", "rsage")]);
    let expected: Vec<f32> = written(&run, &data, Kind::Classes, &path).read_as_f32().unwrap();
    let mut predictor = Predictor::of_types(run.clone(), data).unwrap();
    assert_eq!((predictor.task(), predictor.num_scores()), (Task::Values, 1));
    let answers = predictor.predict(&all(&predictor), Neighborhood::All).unwrap();
    assert_eq!((bits(&answers.scores), &answers.classes), (bits(&expected), &Vec::new()));
    assert!(answers.scores.iter().all(|x| (500.0..2000.0).contains(x)), "{:?}", answers.scores);
    assert_alone(&predictor, Neighborhood::All, &answers, "exact");
    let drawn = Neighborhood::Drawn { seed: 3 };
    let answers = predictor.predict(&all(&predictor), drawn).unwrap();
    assert_alone(&predictor, drawn, &answers, "drawn");
    let message = predictor.cache_embeddings(&progress::Quiet).unwrap_err().to_string();
    assert!(message.contains("have times") && message.contains("--cache-embeddings none"), "{message}");
    let refused = Predictor::open(&path, Some(&path.join("missing")), false);
    assert!(refused.map(drop).is_err());
}

#[test]
fn keys_are_those_of_the_type_and_wrong_questions_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (data, path) = (papers(&dir.path().join("papers")), dir.path().join("run"));
    let run = trained(&path, &data, &[("model", "rsage")]);
    let predictor = Predictor::of_types(run.clone(), data).unwrap();
    assert_eq!(predictor.class_names(), ["area-0", "area-1", "area-2"]);
    for v in all(&predictor) {
        assert_eq!(predictor.find(&predictor.key(v).unwrap()).unwrap(), v);
    }
    let unknown = predictor.find("acc-x").unwrap_err().to_string();
    assert!(unknown.contains("'acc-x' is not that of a node of type 'paper'"), "{unknown}");
    let outside = predictor.predict(&[0, 120], Neighborhood::All).unwrap_err().to_string();
    assert!(outside.contains("node 120 is outside the 120 nodes of type 'paper'"), "{outside}");
    let past = Predictor::of_types(run.clone().as_of(3).unwrap(), papers(&dir.path().join("again")));
    let message = past.map(drop).unwrap_err().to_string();
    assert!(message.contains("--at 3"), "{message}");
    let one = graphmill_data::generate::generate("sbm", &GenerateOptions::default()).unwrap();
    let message = Predictor::new(run, one).map(drop).unwrap_err().to_string();
    assert!(message.contains("the model of the run is one of types"), "{message}");
}
