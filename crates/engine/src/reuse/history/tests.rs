use std::collections::BTreeSet;

use graphmill_nn::ModelConfig;

use super::*;

fn model() -> Model {
    let config = ModelConfig {
        hidden: 2,
        residual: "linear".parse().unwrap(),
        input_layer: true,
        ..ModelConfig::default()
    };
    Model::new(&config, 3, 2, 1).unwrap()
}

/// A model whose parameters are all `value`.
fn filled(value: f32) -> Model {
    let mut model = model();
    model.visit_mut(&mut |_, p| p.value.view_mut().host().fill(value));
    model
}

/// With these versions published, version `v` being all `v`.
fn published(versions: impl IntoIterator<Item = u64>) -> History {
    let history = History::default();
    versions.into_iter().for_each(|step| history.publish(step, &filled(step as f32), 0));
    history
}

fn kept(history: &History) -> BTreeSet<u64> {
    let of = |tensor: &Tensor| tensor.name.split_once('.').unwrap().0.parse().ok();
    history.tensors().iter().filter_map(of).collect()
}

/// What all elements of a version are.
fn value(snapshot: &Snapshot) -> f32 {
    let first = snapshot[0].view().host()[0];
    assert!(snapshot.iter().all(|matrix| matrix.view().host().iter().all(|&x| x == first)));
    first
}

fn span(start: u64, made: &[u64]) -> Span {
    Span { epoch: 2, batches: 8..12, start, made: made.to_vec() }
}

#[test]
fn a_version_is_given_as_soon_as_there_is_one() {
    let history = published([0, 1]);
    assert_eq!(history.wait(1).map(|snapshot| value(&snapshot)), Some(1.0));
    assert_eq!(history.wait(0).map(|snapshot| value(&snapshot)), Some(0.0), "old ones too");
    let given = history.wait(0).unwrap();
    let mut names = Vec::new();
    model().visit_bottom(&mut |name, _| names.push(name.to_string()));
    assert_eq!(given.len(), names.len());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| history.wait(3).map(|snapshot| value(&snapshot)));
        history.publish(2, &filled(2.0), 1);
        history.publish(3, &filled(3.0), 1);
        assert_eq!(waiting.join().unwrap(), Some(3.0));
    });
}

#[test]
fn nobody_waits_for_what_will_not_be() {
    let history = published([4]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| history.wait(5).is_none());
        history.close();
        assert!(waiting.join().unwrap());
    });
    assert!(history.wait(6).is_none());
    assert_eq!(history.wait(4).map(|snapshot| value(&snapshot)), Some(4.0), "what there is, there is");
    // the next super-batch opens it again
    history.begin(span(4, &[4]), 4);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| history.wait(5).map(|snapshot| value(&snapshot)));
        history.publish(5, &filled(5.0), 4);
        assert_eq!(waiting.join().unwrap(), Some(5.0));
    });
}

#[test]
fn a_super_batch_keeps_what_its_rows_were_made_from_and_what_came_since() {
    let history = published(0..=6);
    history.begin(span(5, &[1, 3]), 7);
    assert_eq!(kept(&history), [1, 3, 5, 6].into());
    assert_eq!(history.place().span, Some(span(5, &[1, 3])));
    assert_eq!(history.place().length, 7);
    history.publish(7, &filled(7.0), 4);
    history.begin(span(7, &[5, 6]), 7);
    assert_eq!(kept(&history), [5, 6, 7].into(), "what the rows before were made from goes");
    history.end_epoch();
    assert!(kept(&history).is_empty());
    assert_eq!(history.place(), Place { span: None, ..history.place() });
}

#[test]
fn variation_is_the_largest_change_times_twice_the_updates() {
    let history = published([]);
    history.begin_epoch();
    let mut now = filled(1.0);
    history.publish(10, &now, 4);
    assert_eq!((history.place().change, history.place().variation), (0.0, 0.0), "nothing to compare with");
    // of a whole matrix one element of the residual's moves most; layers above do not count
    now.visit_mut(&mut |name, p| {
        let by = match name {
            "residual.0.weight" => 0.75,
            "conv.1.bias" | "residual.1.weight" => 9.0,
            _ => 0.0,
        };
        p.value.view_mut().host()[0] -= by;
    });
    history.publish(11, &now, 4);
    assert_eq!((history.place().change, history.place().variation), (0.75, 6.0));
    now.visit_mut(&mut |_, p| p.value.view_mut().host().iter_mut().for_each(|x| *x += 0.5));
    history.publish(12, &now, 4);
    assert_eq!((history.place().change, history.place().variation), (0.75, 6.0), "a smaller one");
    history.begin(span(12, &[12]), 4);
    assert_eq!((history.place().change, history.place().variation), (0.0, 6.0), "of the epoch");
    now.visit_mut(&mut |_, p| p.value.view_mut().host().iter_mut().for_each(|x| *x += 0.5));
    history.publish(13, &now, 8);
    assert_eq!((history.place().change, history.place().variation), (0.5, 8.0), "more updates");
    // the same version again, as after a resume, is no change
    history.publish(13, &now, 8);
    history.begin_epoch();
    assert_eq!((history.place().change, history.place().variation), (0.5, 0.0));
}

#[test]
fn what_was_saved_is_given_back() {
    let history = published(0..=6);
    history.begin(span(5, &[1, 3]), 7);
    history.set_basis(vec![Matrix::from_slice(2, 3, &[1.0; 6]), Matrix::from_slice(2, 1, &[2.0, 3.0])]);
    history.publish(7, &filled(9.0), 4);
    let (place, tensors) = (history.place(), history.tensors());
    let resumed = History::default();
    resumed.publish(99, &filled(1.0), 0);
    // in the order of a file's names, not of numbers
    let mut sorted = tensors.clone();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    resumed.restore(place.clone(), sorted).unwrap();
    assert_eq!((resumed.place(), resumed.tensors()), (place, tensors));
    assert_eq!(resumed.basis().len(), 2);
    assert_eq!(resumed.wait(7).map(|snapshot| value(&snapshot)), Some(9.0));
    // of a run without reuse there is nothing
    resumed.restore(Place::default(), Vec::new()).unwrap();
    assert_eq!((resumed.place(), resumed.tensors()), (Place::default(), Vec::new()));
}

#[test]
fn more_than_ten_parameters_keep_their_order() {
    let history = History::default();
    history.set_basis((0..12).map(|i| Matrix::from_slice(1, 1, &[i as f32])).collect());
    let mut tensors = history.tensors();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    history.restore(Place::default(), tensors).unwrap();
    let basis = history.basis();
    assert!(basis.iter().enumerate().all(|(i, part)| part.view().host() == [i as f32]));
}

#[test]
fn what_is_not_whole_is_refused() {
    let history = published(0..=6);
    history.begin(span(5, &[1, 3]), 7);
    let (place, tensors) = (history.place(), history.tensors());
    let mut missing = tensors.clone();
    missing.retain(|tensor| !tensor.name.starts_with("3."));
    let resumed = published([8]);
    let error = resumed.restore(place.clone(), missing).unwrap_err();
    assert!(error.contains("version 3"), "{error}");
    for name in ["3", "x.0", "3.x", "3.0.1", "-1.0", "basis", "basis.x", "Basis.0", ""] {
        let mut wrong = tensors.clone();
        wrong[1].name = name.into();
        let error = resumed.restore(place.clone(), wrong).unwrap_err();
        assert!(error.contains(&format!("'{name}'")), "{error}");
    }
    assert_eq!(
        (kept(&resumed), resumed.place()),
        ([8].into(), Place::default()),
        "nothing of it is taken up"
    );
}

/// A monitor whose lock and condition belong to the model checker.
struct Checked {
    state: shuttle::sync::Mutex<State>,
    changed: shuttle::sync::Condvar,
}

impl Monitor<State> for Checked {
    fn look<R>(&self, look: impl FnOnce(&State) -> R) -> R {
        look(&self.state.lock().unwrap())
    }

    fn until<R>(&self, mut step: impl FnMut(&mut State) -> Option<R>) -> R {
        let mut state = self.state.lock().unwrap();
        loop {
            if let Some(result) = step(&mut state) {
                drop(state);
                self.changed.notify_all();
                return result;
            }
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// A maker waits for one version after the other while the trainer publishes them, ends early, or
/// fails and only closes: under schedules that a model checker chooses it always ends, with every
/// version that there was, and each as it was published.
#[test]
fn no_schedule_leaves_a_maker_waiting() {
    const UPDATES: u64 = 3;
    let models: Arc<Vec<Model>> = Arc::new((0..=2 * UPDATES).map(|v| filled(v as f32)).collect());
    for made_before_the_end in 0..=UPDATES {
        let models = models.clone();
        let run = move || {
            let (state, changed) = (shuttle::sync::Mutex::default(), shuttle::sync::Condvar::new());
            let history = Arc::new(History { monitor: Checked { state, changed } });
            history.publish(0, &models[0], 0);
            let mut start = 0;
            // the first super-batch is trained to its end, the second perhaps not; nothing new may
            // wait for what the first closed
            for updates in [UPDATES, made_before_the_end] {
                history.begin(
                    Span { epoch: 0, batches: start..start + UPDATES, start, made: vec![start] },
                    UPDATES,
                );
                let (maker, versions) = (history.clone(), start..start + UPDATES);
                let making = shuttle::thread::spawn(move || {
                    let mut seen = 0;
                    for version in versions {
                        let Some(snapshot) = maker.wait(version) else { break };
                        assert_eq!(value(&snapshot), version as f32);
                        seen += 1;
                    }
                    seen
                });
                for step in start + 1..=start + updates {
                    history.publish(step, &models[step as usize], UPDATES);
                }
                history.close();
                let seen = making.join().unwrap();
                assert_eq!(seen, (updates + 1).min(UPDATES), "version {start}, and one after each update");
                start += updates;
            }
        };
        shuttle::check_random(run.clone(), 300);
        shuttle::check_pct(run, 300, 3);
    }
}
