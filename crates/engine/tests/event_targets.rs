//! Classes and values of events: every loss and metric of node targets, against plain computations
//! from written predictions; diagnostics; early stopping; results do not depend on threads.

use std::path::Path;

use graphmill_core::{ClassColumn, progress};
use graphmill_data::{
    TypedBuilder, TypedDataset, npy,
    typed::{self, EdgeType, Verify},
};
use graphmill_engine::{
    Error, Result, RunContext, RunDir,
    events::{SavedEvents, train as run_events},
    observer::Quiet,
    record::Summary,
    saved::{Kind, SavedRun, Selection},
};

use super::events::{config, visits};

/// Loss of an error, in deviations of the target.
type PointLoss = fn(f64) -> f64;

const COUNT: u32 = 600;
/// Events of the parts.
const PARTS: [std::ops::Range<u32>; 3] = [0..420, 420..510, 510..COUNT];

/// Two values of a visit; the second is missing for every fourth.
fn values(e: usize, (user, item): (u32, u32)) -> [f32; 2] {
    let (taste, quality) = ((user * 7 % 5) as f32, (item * 7 % 5) as f32);
    [10.0 + taste + quality, if e % 4 == 3 { f32::NAN } else { 100.0 * taste - 7.0 * quality }]
}

/// Class of a visit by its values, and its classes in two columns of which one may be missing.
fn classes(e: usize, [first, _]: [f32; 2], user: u32) -> (i32, [i32; 2]) {
    let rare = i32::from(first > 15.0);
    (rare, [if e.is_multiple_of(5) { -1 } else { rare }, (user * 7 % 5 % 3) as i32])
}

/// A dataset of visits with a task for each kind of target.
fn dataset(dir: &Path) -> TypedDataset {
    let (users, items, times) = visits(COUNT);
    let mut builder = TypedBuilder::new("ratings");
    let rows = |count: u32| (0..count).map(|v| (v * 7 % 5) as f32 - 2.0).collect::<Vec<f32>>();
    builder.node_type("user", 20).features(1, rows(20));
    builder.node_type("item", 15).features(1, rows(15));
    builder.edge_type("user", "visits", "item").edges(users.clone(), items.clone()).time(times.clone());
    let pairs: Vec<u32> = users.iter().zip(&items).flat_map(|(u, v)| [*u, *v]).collect();
    let of: Vec<[f32; 2]> =
        users.iter().zip(&items).enumerate().map(|(e, (&u, &v))| values(e, (u, v))).collect();
    let of_classes: Vec<(i32, [i32; 2])> =
        of.iter().zip(&users).enumerate().map(|(e, (&values, &u))| classes(e, values, u)).collect();
    for name in ["values", "class", "sets", "columns"] {
        let on = EdgeType::new("user", "visits", "item");
        let task = builder.task(name).on_edges(on).pair_seeds(pairs.clone()).time(times.clone());
        let [train, valid, test] = PARTS.map(|part| part.collect::<Vec<u32>>());
        let task = task.split(train, valid, test);
        match name {
            "values" => task.values(2, of.concat()),
            "class" => {
                let names = task.names(["common", "rare"]);
                names.classes(2, of_classes.iter().map(|of| of.0).collect::<Vec<i32>>())
            }
            "sets" => {
                let member = of_classes.iter().flat_map(|of| [of.0 as u8, (of.1[1] == 0).into(), 0]);
                task.class_sets(3, member.collect::<Vec<u8>>())
            }
            _ => {
                let columns = [("rare", 2), ("group", 3)];
                let columns = columns.map(|(name, classes)| ClassColumn { name: name.into(), classes });
                task.class_columns(
                    columns.to_vec(),
                    of_classes.iter().flat_map(|of| of.1).collect::<Vec<i32>>(),
                )
            }
        };
    }
    builder.build().unwrap().save(dir).unwrap();
    typed::open(dir, Verify::Once).unwrap()
}

/// A run with these options in `dir`, and its summary.
fn run(dir: &Path, data: &TypedDataset, options: &[(&str, &str)]) -> Result<(SavedRun, Summary)> {
    let run = RunDir::create(dir)?;
    let context = RunContext { run: Some(&run), resume: false, observer: &mut Quiet, stop: &|| false };
    let summary = run_events(&config(data, options)?, data, context)?;
    Ok((SavedRun::open(dir, false)?, summary))
}

/// Predictions of all events, `600 x C`.
fn predicted(saved: &SavedRun, dir: &Path, kind: Kind) -> Vec<f64> {
    let out = dir.join("predicted.npy");
    saved.predict_on(None, (Selection::All, false), (kind, &out), &progress::Quiet).unwrap();
    npy::open(out).unwrap().read_as_f32().unwrap().into_iter().map(f64::from).collect()
}

/// Targets of the first value of all events, and of the second.
fn truths() -> Vec<[f64; 2]> {
    let (users, items, _) = visits(COUNT);
    let all = users.iter().zip(&items).enumerate();
    all.map(|(e, (&u, &v))| values(e, (u, v)).map(f64::from)).collect()
}

/// Pairs of prediction and truth of target `c` of some events.
fn pairs(found: &[f64], events: std::ops::Range<u32>, c: usize) -> Vec<(f64, f64)> {
    let truths = truths();
    let all = events.map(|e| (found[e as usize * 2 + c], truths[e as usize][c]));
    all.filter(|(_, truth)| !truth.is_nan()).collect()
}

fn mean(of: impl Iterator<Item = f64> + Clone) -> f64 {
    of.clone().sum::<f64>() / of.count() as f64
}

/// Ranks from 0, with the mean rank of equal values.
fn ranks(of: &[f64]) -> Vec<f64> {
    let rank = |x: &f64| {
        let (below, same) = (of.iter().filter(|y| *y < x).count(), of.iter().filter(|y| *y == x).count());
        below as f64 + (same as f64 - 1.0) / 2.0
    };
    of.iter().map(rank).collect()
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (x, y) = (mean(a.iter().copied()), mean(b.iter().copied()));
    let dot = |p: &[f64], x: f64, q: &[f64], y: f64| -> f64 {
        p.iter().zip(q).map(|(p, q)| (p - x) * (q - y)).sum()
    };
    dot(a, x, b, y) / (dot(a, x, a, x) * dot(b, y, b, y)).sqrt()
}

/// Metrics of values of pairs.
fn metrics(pairs: &[(f64, f64)]) -> [(&'static str, f64); 4] {
    let (found, truth): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let center = mean(truth.iter().copied());
    let squares = mean(pairs.iter().map(|(x, y)| (x - y).powi(2)));
    let spread = mean(truth.iter().map(|y| (y - center).powi(2)));
    [
        ("mae", mean(pairs.iter().map(|(x, y)| (x - y).abs()))),
        ("rmse", squares.sqrt()),
        ("r2", 1.0 - squares / spread),
        ("spearman", correlation(&ranks(&found), &ranks(&truth))),
    ]
}

#[test]
fn losses_and_metrics_of_values_are_those_of_written_predictions() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"));
    // half of the error up to the delta is squared
    let losses: [(&[(&str, &str)], PointLoss); 4] = [
        (&[], |e| e * e),
        (&[("loss", "mae"), ("metric", "spearman")], f64::abs),
        (&[("loss", "huber"), ("huber_delta", "0.5")], |e| {
            if e.abs() <= 0.5 { 0.5 * e * e } else { 0.5 * (e.abs() - 0.25) }
        }),
        (&[("loss", "quantile"), ("quantile", "0.8"), ("metric", "r2")], |e| {
            if e < 0.0 { -0.8 * e } else { 0.2 * e }
        }),
    ];
    for (number, (options, loss)) in losses.into_iter().enumerate() {
        let place = dir.path().join(number.to_string());
        let (saved, summary) =
            run(&place, &data, &[options, &[("task", "values"), ("epochs", "1")]].concat()).unwrap();
        let found = predicted(&saved, dir.path(), Kind::Classes);
        let scores = SavedEvents::of(&saved).unwrap().scores(&data, &progress::Quiet).unwrap();
        let mut expected = [0.0; 4];
        for c in 0..2 {
            let each = metrics(&pairs(&found, PARTS[2].clone(), c));
            expected.iter_mut().zip(each).for_each(|(sum, (_, score))| *sum += score / 2.0);
        }
        for (expected, (name, _)) in expected.iter().zip(metrics(&pairs(&found, PARTS[2].clone(), 0))) {
            let score = scores.parts[1].scores[name].unwrap();
            assert!((score - expected).abs() < 1e-4 * expected.abs().max(1.0), "{name}: {score} {expected}");
        }
        let metric = options.iter().find(|(name, _)| *name == "metric").map_or("rmse", |(_, name)| name);
        assert_eq!((&summary.test.metric[..], summary.test.score), (metric, scores.parts[1].scores[metric]));
        assert_eq!(scores.parts[1].scores.len(), 8, "each metric, and of events with new nodes");
        // the loss of the validation events, of standardised values
        let (mut sum, mut share) = (0.0, 0.0);
        for c in 0..2 {
            let train = pairs(&found, PARTS[0].clone(), c);
            let center = mean(train.iter().map(|pair| pair.1));
            let deviation = mean(train.iter().map(|pair| (pair.1 - center).powi(2))).sqrt();
            sum += pairs(&found, PARTS[1].clone(), c)
                .iter()
                .map(|(x, y)| loss((x - y) / deviation))
                .sum::<f64>();
            share += train.len() as f64 / 420.0 / 2.0;
        }
        let expected = sum / (90.0 * 2.0) / share;
        let of_epoch = summary.epochs[0].valid_loss.unwrap();
        assert!((of_epoch - expected).abs() < 1e-4 * expected, "{options:?}: {of_epoch} {expected}");
        // residuals of training, validation and test events, at the scale of the targets
        let parts: Vec<&str> = summary.diagnostics.iter().map(|of| &of.part[..]).collect();
        assert_eq!(parts, ["train", "valid", "test"]);
        for (of, part) in summary.diagnostics.iter().zip(PARTS) {
            for (c, residuals) in of.residuals.iter().enumerate() {
                let rmse = metrics(&pairs(&found, part.clone(), c))[1].1;
                assert!((residuals.rmse - rmse).abs() < 1e-3, "{}: {} {rmse}", of.part, residuals.rmse);
            }
        }
        assert_eq!(scores.parts[1].diagnostics.as_ref(), summary.diagnostics.last());
    }
}

#[test]
fn losses_of_classes_are_weighted_and_focal_and_have_every_metric_and_diagnostic() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"));
    let (users, items, _) = visits(COUNT);
    let truth: Vec<usize> =
        (0..600).map(|e| classes(e, values(e, (users[e], items[e])), users[e]).0 as usize).collect();
    for (number, (options, weights, gamma)) in [
        (&[][..], [1.0, 1.0], 0),
        (&[("class_weights", "0.5,4"), ("metric", "roc-auc")], [0.5, 4.0], 0),
        (&[("focal", "2"), ("metric", "average-precision")], [1.0, 1.0], 2),
    ]
    .into_iter()
    .enumerate()
    {
        let place = dir.path().join(number.to_string());
        let options = [options, &[("task", "class"), ("epochs", "1")]].concat();
        let (saved, summary) = run(&place, &data, &options).unwrap();
        let shares = predicted(&saved, dir.path(), Kind::Probabilities);
        let of = |e: u32| (shares[e as usize * 2 + truth[e as usize]], weights[truth[e as usize]]);
        let losses = PARTS[1].clone().map(of).map(|(p, w): (f64, f64)| -w * (1.0 - p).powi(gamma) * p.ln());
        let (expected, of_epoch) = (mean(losses), summary.epochs[0].valid_loss.unwrap());
        assert!((of_epoch - expected).abs() < 1e-5 * expected.max(1.0), "{options:?}: {of_epoch} {expected}");
        let scores = SavedEvents::of(&saved).unwrap().scores(&data, &progress::Quiet).unwrap();
        let test = &scores.parts[1];
        let right = |e: &u32| shares[*e as usize * 2 + truth[*e as usize]] > 0.5;
        assert_eq!(test.scores["accuracy"], Some(PARTS[2].clone().filter(right).count() as f64 / 90.0));
        // the area under the curve is the share of pairs in the right order
        let rare: Vec<(f64, usize)> =
            PARTS[2].clone().map(|e| (shares[e as usize * 2 + 1], truth[e as usize])).collect();
        let of_class = |c: usize| rare.iter().filter(move |of| of.1 == c).map(|of| of.0);
        let ordered = of_class(1).flat_map(|x| of_class(0).map(move |y| f64::from(u8::from(x > y))));
        let auc = mean(ordered.collect::<Vec<f64>>().into_iter());
        assert!((test.scores["roc-auc"].unwrap() - auc).abs() < 1e-3, "{:?} {auc}", test.scores);
        assert_eq!(summary.test.score, test.scores[&summary.test.metric]);
        let by_class = summary.by_class.as_ref().unwrap();
        assert_eq!((&by_class.classes[1].class[..], summary.by_class == test.by_class), ("rare", true));
        let support: u64 = by_class.confusion_matrix.as_ref().unwrap().iter().flatten().sum();
        assert_eq!(support, 90);
        let parts: Vec<&str> = summary.diagnostics.iter().map(|of| &of.part[..]).collect();
        assert_eq!(parts, ["valid", "test"], "thresholds are chosen on the validation events");
        let of = test.diagnostics.as_ref().unwrap();
        assert_eq!(Some(of), summary.diagnostics.last());
        assert!(of.calibration.is_some() && of.thresholds.as_ref().unwrap().class == Some(1));
        assert!((of.calibration.as_ref().unwrap().accuracy - test.scores["accuracy"].unwrap()).abs() < 1e-9);
    }
}

#[test]
fn sets_and_columns_of_classes_of_events_are_learned_and_predicted() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"));
    let more = [("epochs", "20"), ("lr", "0.01"), ("dropout", "0"), ("class_weights", "balanced")];
    let (saved, summary) =
        run(&dir.path().join("columns"), &data, &[&more[..], &[("task", "columns")]].concat()).unwrap();
    assert_eq!((summary.dataset.classes, summary.dataset.columns.len()), (5, 2));
    let test = summary.diagnostics.last().unwrap();
    let [rare, group] = &test.columns[..] else { panic!("two columns: {test:?}") };
    assert_eq!((&rare.name[..], rare.count, &group.name[..], group.count), ("rare", 72, "group", 90));
    let each = [rare, group].map(|of| of.scores["accuracy"].unwrap());
    assert_eq!(summary.test.score, Some((each[0] + each[1]) / 2.0));
    assert!(each[0] > 0.9 && each[1] > 0.5, "{each:?}");
    assert!(rare.thresholds.is_some() && group.thresholds.is_none() && group.calibration.is_some());
    let out = dir.path().join("columns.csv");
    saved.predict_on(None, (Selection::All, false), (Kind::Classes, &out), &progress::Quiet).unwrap();
    let text = std::fs::read_to_string(out).unwrap();
    assert!(text.starts_with("source,destination,time,class_rare,class_group\n"), "{text}");
    let (users, items, _) = visits(COUNT);
    let line =
        |e: usize| text.lines().nth(e + 1).unwrap().rsplit(',').nth(1).unwrap().parse::<i32>().unwrap();
    let known = (510..600).filter(|e| e % 5 != 0);
    let right = known.filter(|&e| line(e) == classes(e, values(e, (users[e], items[e])), users[e]).0).count();
    assert_eq!(right as f64 / 72.0, each[0]);

    let (_, summary) =
        run(&dir.path().join("sets"), &data, &[&more[..], &[("task", "sets")]].concat()).unwrap();
    assert_eq!(summary.test.metric, "f1-micro");
    assert!(summary.test.score.unwrap() > 0.6, "{:?}", summary.test);
    assert!(summary.diagnostics.last().unwrap().thresholds.is_some());
}

#[test]
fn runs_stop_and_select_by_any_metric_or_by_the_loss() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"));
    for (task, by, sign) in [
        ("values", ("metric", "mae"), -1.0),
        ("values", ("metric", "spearman"), 1.0),
        ("class", ("metric", "f1-macro"), 1.0),
        ("values", ("select_by", "loss"), -1.0),
    ] {
        let options = [("task", task), by, ("epochs", "30"), ("lr", "0.1"), ("patience", "2")];
        let place = dir.path().join(format!("{task}-{}", by.1));
        let (_, summary) = run(&place, &data, &options).unwrap();
        let judged = summary.epochs.iter().map(|epoch| {
            let (score, loss) = (epoch.valid_score.unwrap(), epoch.valid_loss.unwrap());
            (sign * if by.0 == "metric" { score } else { loss }, -loss)
        });
        let judged: Vec<(f64, f64)> = judged.collect();
        // of equal scores, that with the smaller loss is the better
        let order = |a: &(f64, f64), b: &(f64, f64)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1));
        let best = (0..judged.len()).max_by(|&a, &b| order(&judged[a], &judged[b])).unwrap();
        assert_eq!(summary.best.epoch, best + 1, "{by:?}: {judged:?}");
        assert_eq!(summary.epochs.len(), 30.min(best + 3), "two epochs later it stops: {judged:?}");
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"));
    for options in [
        &[("task", "values"), ("loss", "huber"), ("target_transform", "quantile")][..],
        &[("task", "columns"), ("class_weights", "balanced"), ("focal", "1.5")],
        &[("task", "sets"), ("class_weights", "2,3,1"), ("focal", "1")],
    ] {
        let bits = |threads: usize| {
            let place = dir.path().join(format!("{}-{threads}", options[0].1));
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (_, summary) = pool.install(|| run(&place, &data, options)).unwrap();
            let losses: Vec<_> = summary.epochs.iter().map(|e| (e.loss.to_bits(), e.valid_loss)).collect();
            (losses, summary.test.score, std::fs::read(place.join("best.safetensors")).unwrap())
        };
        assert_eq!(bits(1), bits(3), "{options:?}");
    }
}

#[test]
fn options_that_do_not_fit_the_targets_of_events_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dataset(&dir.path().join("data"));
    let links = super::events::shop_of(&dir.path().join("links"), false, visits(COUNT));
    for (data, options, why) in [
        (&data, &[("task", "values"), ("loss", "cross-entropy")][..], "values are values; use mse, mae"),
        (&data, &[("task", "values"), ("focal", "2")], "--focal: the targets of values are values"),
        (&data, &[("task", "values"), ("metric", "accuracy")], "the task has the metrics mae, rmse, r2"),
        (&data, &[("task", "values"), ("quantile", "0.2")], "use --loss quantile"),
        (&data, &[("task", "class"), ("loss", "mae")], "the targets of class are classes"),
        (&data, &[("task", "class"), ("class_weights", "1,2,3")], "3 weights for 2 classes"),
        (&data, &[("task", "class"), ("target_transform", "log")], "the targets of class are classes"),
        (&links, &[("loss", "mae")], "learns links here"),
        (&links, &[("class_weights", "balanced")], "use --task NAME"),
        (&links, &[("select_by", "loss")], "learns links here"),
    ] {
        let message = match config(data, options).and_then(|config| {
            let context = RunContext { run: None, resume: false, observer: &mut Quiet, stop: &|| false };
            run_events(&config, data, context)
        }) {
            Err(Error::Usage(message)) => message,
            other => panic!("{options:?}: {other:?}"),
        };
        assert!(message.contains(why), "{options:?}: {message}");
    }
}
