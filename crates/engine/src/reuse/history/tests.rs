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

/// Model whose parameters are all `value`.
fn filled(value: f32) -> Model {
    let mut model = model();
    model.visit_mut(&mut |_, p| p.value.view_mut().host().fill(value));
    model
}

/// History of these versions; all parameters of version `v` are `v`.
fn published(versions: impl IntoIterator<Item = u64>) -> History {
    let history = History::default();
    versions.into_iter().for_each(|step| history.publish(step, &filled(step as f32), 0));
    history
}

fn kept(history: &History) -> BTreeSet<u64> {
    let of = |tensor: &Tensor| tensor.name.split_once('.').unwrap().0.parse().ok();
    history.tensors().iter().filter_map(of).collect()
}

/// Value of all elements of a version.
fn value(snapshot: &Snapshot) -> f32 {
    let first = snapshot[0].view().host()[0];
    assert!(snapshot.iter().all(|matrix| matrix.view().host().iter().all(|&x| x == first)));
    first
}

fn span(start: u64, made: &[u64]) -> SuperBatchSpan {
    SuperBatchSpan { epoch: 2, batches: 8..12, start, made: made.to_vec() }
}

#[test]
fn waiting_ends_when_the_version_is_published() {
    let history = published([0, 1]);
    assert_eq!(history.wait(1).map(|snapshot| value(&snapshot)), Some(1.0));
    assert_eq!(history.wait(0).map(|snapshot| value(&snapshot)), Some(0.0), "earlier versions remain");
    let snapshot = history.wait(0).unwrap();
    let mut names = Vec::new();
    model().visit_bottom(&mut |name, _| names.push(name.to_string()));
    assert_eq!(snapshot.len(), names.len());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| history.wait(3).map(|snapshot| value(&snapshot)));
        history.publish(2, &filled(2.0), 1);
        history.publish(3, &filled(3.0), 1);
        assert_eq!(waiting.join().unwrap(), Some(3.0));
    });
}

#[test]
fn no_thread_waits_after_close() {
    let history = published([4]);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| history.wait(5).is_none());
        history.close();
        assert!(waiting.join().unwrap());
    });
    assert!(history.wait(6).is_none());
    assert_eq!(history.wait(4).map(|snapshot| value(&snapshot)), Some(4.0), "published versions remain");
    // the next super-batch opens it again
    history.begin(span(4, &[4]), 4);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| history.wait(5).map(|snapshot| value(&snapshot)));
        history.publish(5, &filled(5.0), 4);
        assert_eq!(waiting.join().unwrap(), Some(5.0));
    });
}

#[test]
fn begin_keeps_only_versions_of_current_rows_and_later_ones() {
    let history = published(0..=6);
    history.begin(span(5, &[1, 3]), 7);
    assert_eq!(kept(&history), [1, 3, 5, 6].into());
    assert_eq!(history.position().span, Some(span(5, &[1, 3])));
    assert_eq!(history.position().length, 7);
    history.publish(7, &filled(7.0), 4);
    history.begin(span(7, &[5, 6]), 7);
    assert_eq!(kept(&history), [5, 6, 7].into(), "versions of earlier rows are dropped");
    history.end_epoch();
    assert!(kept(&history).is_empty());
    assert_eq!(history.position(), ReusePosition { span: None, ..history.position() });
}

#[test]
fn variation_is_the_largest_change_times_twice_the_updates() {
    let history = published([]);
    history.begin_epoch();
    let mut now = filled(1.0);
    history.publish(10, &now, 4);
    assert_eq!((history.position().change, history.position().variation), (0.0, 0.0), "no earlier version");
    // one element of the residual's matrix changes most; layers above the bottom one do not count
    now.visit_mut(&mut |name, p| {
        let by = match name {
            "residual.0.weight" => 0.75,
            "conv.1.bias" | "residual.1.weight" => 9.0,
            _ => 0.0,
        };
        p.value.view_mut().host()[0] -= by;
    });
    history.publish(11, &now, 4);
    assert_eq!((history.position().change, history.position().variation), (0.75, 6.0));
    now.visit_mut(&mut |_, p| p.value.view_mut().host().iter_mut().for_each(|x| *x += 0.5));
    history.publish(12, &now, 4);
    assert_eq!((history.position().change, history.position().variation), (0.75, 6.0), "a smaller change");
    history.begin(span(12, &[12]), 4);
    assert_eq!(
        (history.position().change, history.position().variation),
        (0.0, 6.0),
        "variation is that of the epoch"
    );
    now.visit_mut(&mut |_, p| p.value.view_mut().host().iter_mut().for_each(|x| *x += 0.5));
    history.publish(13, &now, 8);
    assert_eq!((history.position().change, history.position().variation), (0.5, 8.0), "more updates");
    // publishing a version again, as after a resume, is not a change
    history.publish(13, &now, 8);
    history.begin_epoch();
    assert_eq!((history.position().change, history.position().variation), (0.5, 0.0));
}

#[test]
fn restore_returns_the_saved_position_and_tensors() {
    let history = published(0..=6);
    history.begin(span(5, &[1, 3]), 7);
    history.set_basis(vec![Matrix::from_slice(2, 3, &[1.0; 6]), Matrix::from_slice(2, 1, &[2.0, 3.0])]);
    history.publish(7, &filled(9.0), 4);
    let (position, tensors) = (history.position(), history.tensors());
    let resumed = History::default();
    resumed.publish(99, &filled(1.0), 0);
    // sorted by name, as in a file, and not by number
    let mut sorted = tensors.clone();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    resumed.restore(position.clone(), sorted).unwrap();
    assert_eq!((resumed.position(), resumed.tensors()), (position, tensors));
    assert_eq!(resumed.basis().len(), 2);
    assert_eq!(resumed.wait(7).map(|snapshot| value(&snapshot)), Some(9.0));
    // a run without reuse has no tensors
    resumed.restore(ReusePosition::default(), Vec::new()).unwrap();
    assert_eq!((resumed.position(), resumed.tensors()), (ReusePosition::default(), Vec::new()));
}

#[test]
fn more_than_ten_parameters_keep_their_order() {
    let history = History::default();
    history.set_basis((0..12).map(|i| Matrix::from_slice(1, 1, &[i as f32])).collect());
    let mut tensors = history.tensors();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    history.restore(ReusePosition::default(), tensors).unwrap();
    let basis = history.basis();
    assert!(basis.iter().enumerate().all(|(i, part)| part.view().host() == [i as f32]));
}

#[test]
fn incomplete_or_misnamed_tensors_are_refused() {
    let history = published(0..=6);
    history.begin(span(5, &[1, 3]), 7);
    let (position, tensors) = (history.position(), history.tensors());
    let mut missing = tensors.clone();
    missing.retain(|tensor| !tensor.name.starts_with("3."));
    let resumed = published([8]);
    let error = resumed.restore(position.clone(), missing).unwrap_err();
    assert!(error.contains("version 3"), "{error}");
    for name in ["3", "x.0", "3.x", "3.0.1", "-1.0", "basis", "basis.x", "Basis.0", ""] {
        let mut wrong = tensors.clone();
        wrong[1].name = name.into();
        let error = resumed.restore(position.clone(), wrong).unwrap_err();
        assert!(error.contains(&format!("'{name}'")), "{error}");
    }
    assert_eq!(
        (kept(&resumed), resumed.position()),
        ([8].into(), ReusePosition::default()),
        "a refused restore changes the history"
    );
}

/// Monitor whose lock and condition belong to the model checker.
struct Checked {
    state: shuttle::sync::Mutex<HistoryState>,
    changed: shuttle::sync::Condvar,
}

impl Monitor<HistoryState> for Checked {
    fn look<R>(&self, look: impl FnOnce(&HistoryState) -> R) -> R {
        look(&self.state.lock().unwrap())
    }

    fn until<R>(&self, mut step: impl FnMut(&mut HistoryState) -> Option<R>) -> R {
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

/// Under schedules of a model checker, a maker waits for one version after the other while a
/// trainer publishes them, ends early, or fails and only closes the history. The maker always ends,
/// and has received every published version unchanged.
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
            // the first super-batch is trained to its end, the second may not be; closing the
            // history after the first must not affect the second
            for updates in [UPDATES, made_before_the_end] {
                history.begin(
                    SuperBatchSpan { epoch: 0, batches: start..start + UPDATES, start, made: vec![start] },
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

#[test]
fn change_since_is_the_largest_difference_to_any_version_of_the_rows() {
    let history = published([0, 2, 3, 7]);
    assert_eq!(history.change_since(&[2, 3], 7), 5.0);
    assert_eq!(history.change_since(&[7], 7), 0.0);
    assert_eq!(history.change_since(&[5], 7), 0.0, "an unknown version has no rows");
    history.cut(9);
    assert_eq!(history.position().cut, Some(9));
    history.begin(span(7, &[7]), 4);
    assert_eq!(history.position().cut, None);
}

#[test]
fn totals_of_an_epoch_add_up_and_are_restored() {
    let history = published([4]);
    history.begin_epoch();
    let one = ReuseTotals { super_batches: 1, batches: 4, requested: 9, reused: 5, ..ReuseTotals::default() };
    history.add(one);
    history.add(one);
    let position = history.position();
    assert_eq!((position.totals.batches, position.totals.reused), (8, 10));
    let text = serde_json::to_string(&position).unwrap();
    let restored = History::default();
    restored.restore(serde_json::from_str(&text).unwrap(), history.tensors()).unwrap();
    assert_eq!(restored.position(), position);
    history.begin_epoch();
    assert_eq!(history.position().totals, ReuseTotals::default());
}
