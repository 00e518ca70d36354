"""Training, evaluation and prediction from Python."""

import io
import json
import sys
import warnings

import numpy as np
import pytest

import graphmill
from graphmill import progress

OPTIONS = {"epochs": 3, "hidden": 16, "fanout": [5, 5], "seed": 1, "batch_size": 200}


def test_training_learns_saves_predicts_and_resumes(sbm, tmp_path):
    seen = []
    run = graphmill.train(sbm, out=tmp_path / "run", callback=seen.append, **OPTIONS)
    assert len(run.epochs) == 3 and [record.epoch for record in seen] == [1, 2, 3]
    assert seen[0].loss > seen[2].loss and run.test.score > 0.6
    assert run.config.hidden == 16 and run.to_dict()["test"]["metric"] == "accuracy"
    # the same numbers without a run directory and with other threads
    other = graphmill.train(sbm, threads=2, **OPTIONS)
    assert [e.loss for e in other.epochs] == [e.loss for e in run.epochs] and other.test.score == run.test.score

    classes = graphmill.predict(tmp_path / "run", dataset=sbm)
    assert classes.shape == (4000,) and classes.dtype == np.int64
    assert (classes[sbm.test] == sbm.y[sbm.test]).mean() == pytest.approx(run.test.score, abs=1e-6)
    some = graphmill.predict(tmp_path / "run", [7, 3999], dataset=sbm, kind="probabilities")
    assert some.shape == (2, 5) and np.allclose(some.sum(1), 1, atol=1e-5) and some.argmax(1).tolist() == classes[[7, 3999]].tolist()
    assert graphmill.predict(tmp_path / "run", [1], dataset=sbm, kind="embeddings").shape == (1, 16)
    scores = graphmill.evaluate(tmp_path / "run", sbm)
    assert scores.test == pytest.approx(run.test.score) and [part.part for part in scores.parts] == ["train", "valid", "test"]

    more = graphmill.train(sbm, out=tmp_path / "run", resume=True, epochs=4)
    assert [e.loss for e in more.epochs][:3] == [e.loss for e in run.epochs] and len(more.epochs) == 4
    for error, message, wrong in [
        (ValueError, "4000", lambda: graphmill.predict(tmp_path / "run", [4000], dataset=sbm)),
        (TypeError, "integers", lambda: graphmill.predict(tmp_path / "run", [0.5], dataset=sbm)),
        (ValueError, "kind 'colours'", lambda: graphmill.predict(tmp_path / "run", kind="colours", dataset=sbm)),
        (ValueError, "run", lambda: graphmill.train(sbm, out=tmp_path / "run", **OPTIONS)),
    ]:
        with pytest.raises(error, match=message):
            wrong()


def test_options_are_checked_by_their_python_names(sbm):
    for error, message, options in [
        (TypeError, "no such option 'colour'", {"colour": 1}),
        (TypeError, "no such option 'hiden'; did you mean 'hidden'", {"hiden": 1}),
        (ValueError, "epochs: ", {"epochs": "many"}),
        (ValueError, "^lr -1", {"lr": -1}),
        (ValueError, "unknown model 'nothing'", {"model": "nothing"}),
        (ValueError, "resume", {"resume": True}),
    ]:
        with pytest.raises(error, match=message):
            graphmill.train(sbm, **options)
    with pytest.raises(TypeError, match="dataset: "):
        graphmill.train(42)
    known = graphmill.options()
    assert known["batch_size"].default == 1024 and "Seeds" in known["batch_size"].help and "dataset" not in known


def test_an_exception_in_a_callback_ends_the_run(sbm):
    def callback(record):
        raise LookupError(f"epoch {record.epoch}")

    with pytest.raises(LookupError, match="epoch 1"):
        graphmill.train(sbm, callback=callback, **{**OPTIONS, "epochs": 1000})


def test_hotness_scores_and_reports(sbm):
    degree = graphmill.hotness(sbm)
    out = np.bincount(sbm.indices, minlength=sbm.num_nodes)
    assert degree.shape == (4000,) and np.corrcoef(degree, out)[0, 1] > 0.99
    report = graphmill.hotness_report(sbm, policies=["degree", "optimal"], ratios=[0.1, 1.0], epochs=1, batch_size=200)
    rates = {(row.policy, row.ratio): row.hit_rate for row in report.results}
    assert rates["degree", 1.0] == 1.0 and 0.1 < rates["degree", 0.1] <= rates["optimal", 0.1] < 1
    with pytest.raises(ValueError, match="nothing"):
        graphmill.hotness(sbm, "nothing")


@pytest.mark.parametrize("method", ["bgl", "metis", "hash"])
def test_partitions_and_reports_agree(sbm, method, tmp_path):
    parts = graphmill.partition(sbm, 4, method=method)
    assert parts.shape == (4000,) and set(parts.tolist()) == {0, 1, 2, 3}
    assert parts.tolist() == graphmill.partition(sbm, 4, method=method).tolist()
    source, destination = sbm.edge_index
    report = graphmill.partition_report(sbm, 4, methods=[method], out=tmp_path / "parts", fanout=[5, 5])
    cut = report.results[0].edge_cut
    assert cut == pytest.approx((parts[source] != parts[destination]).mean()) and (cut > 0.6) == (method == "hash")
    assert (tmp_path / "parts").is_dir()
    if method == "hash":
        with pytest.raises(ValueError, match="slack: method hash does not use it"):
            graphmill.partition(sbm, 4, method=method, slack=0.2)
        with pytest.raises(ValueError, match="train.slack: method hash does not use it"):
            graphmill.partition_report(sbm, 4, methods=[method], train_slack=0.2)
    for bad, message in [({"parts": 0}, "parts 0"), ({"parts": 5000}, "5000 parts"), ({"method": "nothing"}, "unknown method")]:
        with pytest.raises(ValueError, match=message):
            graphmill.partition(sbm, **bad)


def test_progress_on_a_terminal_is_one_line(sbm, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    graphmill.train(sbm, **OPTIONS)
    shown = capsys.readouterr().err
    # a note with the tiers and the strategy, and a line for each epoch
    assert "strategy sequential" in shown and shown.count("\n") == 4
    assert "epoch 3/3  loss" in shown and "valid accuracy" in shown
    graphmill.train(sbm, progress=False, **OPTIONS)
    assert capsys.readouterr().err == ""
    line = progress.Line(io.StringIO())
    for event in ['{"event": "stage", "what": "reading", "total": 8, "unit": "rows"}', '{"event": "done", "amount": 2}']:
        line(event)
    assert line.stream.getvalue().endswith("\rreading 25 %")
    line('{"event": "stage", "what": "reading \\u001b[31mred\\u009b\\r", "total": 8, "unit": "rows"}')
    assert line.stream.getvalue().endswith("\rreading \\u{1b}[31mred\\u{9b}\\r")
    line.end()
    assert progress.bar(1, 4, 8) == "[##......]"


def test_progress_without_a_terminal_is_lines(sbm, monkeypatch, capsys):
    def shown(environment, **how):
        with monkeypatch.context() as patch:
            if environment is not None:
                patch.setenv("GRAPHMILL_PROGRESS", environment)
            graphmill.train(sbm, **how, **OPTIONS)
        text = capsys.readouterr().err
        assert "\r" not in text
        return text.splitlines()

    lines = shown(None, progress=True)
    # the note, the first epoch and the last
    assert [line.split("  ")[0] for line in lines[-2:]] == ["epoch 1/3", "epoch 3/3"] and len(lines) == 3
    assert len(shown("plain")) == 3 == len(shown("none", progress=True))
    assert shown(None) == shown("none") == shown("bar") == shown("plain", progress=False) == []
    assert shown("loud", progress=False) == []
    assert shown("", progress=True)[-1].startswith("epoch 3/3")
    events = [json.loads(line) for line in shown("json")]
    epochs = [event for event in events if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs] == [1, 2, 3] and "loss" in epochs[0]
    assert events[-1] == {"event": "end", "error": None}
    start = next(event for event in events if event["event"] == "start")
    assert set(start) == {"event", "epochs", "batches", "seeds", "from", "metric", "parameters"}
    assert start["from"] == [0, 0]
    with pytest.raises(ValueError, match="GRAPHMILL_PROGRESS=loud: no such form; set it to auto, bar"):
        shown("loud")


def test_batches_of_a_long_epoch_are_printed_once_a_minute():
    def lines(is_json=False):
        shown = progress.Lines(io.StringIO(), is_json)
        start = {"event": "start", "epochs": 2, "batches": 900, "metric": "accuracy"}
        shown(json.dumps({**start, "from_epoch": 0, "from_batch": 0}))
        for batches, seconds in [(1, 0.5), (100, 60.5), (101, 61), (200, 119), (300, 121)]:
            shown(json.dumps({"event": "batch", "epoch": 0, "batches": batches, "loss": 0.25, "seconds": seconds, "seeds": 1}))
        shown('{"event": "evaluate", "nodes": 1000}')
        for epoch in (1, 2):
            shown(json.dumps({"event": "epoch", "record": {"epoch": epoch, "loss": 0.25, "valid_score": None, "seconds": 122.0}}))
        shown.end()
        return shown.stream.getvalue().splitlines()

    assert lines() == [
        "epoch 1/2  loss 0.2500  batch 100/900  60 s",
        "epoch 1/2  loss 0.2500  batch 300/900  121 s",
        "scoring 1,000 nodes",
        "epoch 1/2  loss 0.2500  122.0 s",
        "epoch 2/2  loss 0.2500  122.0 s",
    ]
    # as the tests of `Json` in the command line expect them
    record = {"event": "epoch", "loss": 0.25, "valid_score": None, "seconds": 122.0}
    batch = {"event": "batch", "epoch": 1, "loss": 0.25, "seeds": 1}
    assert [json.loads(line) for line in lines(is_json=True)] == [
        {"event": "start", "epochs": 2, "batches": 900, "metric": "accuracy", "from": [0, 0]},
        {**batch, "batches": 100, "seconds": 60.5},
        {**batch, "batches": 300, "seconds": 121},
        {"event": "evaluate", "rows": 1000},
        {**record, "epoch": 1},
        {**record, "epoch": 2},
    ]


def test_other_messages_become_the_events_of_the_command():
    shown = progress.Lines(io.StringIO(), is_json=True)
    for message in [
        '{"event": "stage", "what": "reading \\u001b", "total": 8, "unit": "rows"}',
        '{"event": "done", "amount": 2}',
        '{"event": "warning", "message": "the loss explodes"}',
        '{"event": "note", "message": "a \\"note\\""}',
        '{"event": "end", "error": "stopped"}',
    ]:
        shown(message)
    assert [json.loads(line) for line in shown.stream.getvalue().splitlines()] == [
        {"event": "stage", "message": "reading \x1b"},
        {"event": "note", "message": "warning: the loss explodes"},
        {"event": "note", "message": 'a "note"'},
        {"event": "end", "error": "stopped"},
    ]
    lines = progress.Lines(io.StringIO())
    lines('{"event": "note", "message": "a \\u0007"}')
    lines('{"event": "warning", "message": "shown by warnings.warn"}')
    assert lines.stream.getvalue() == "a \\u{7}\n"


def test_runs_in_memory_require_their_own_dataset(tmp_path):
    own = graphmill.generate("sbm", nodes=300, classes=10, dim=48, seed=1)
    graphmill.train(own, out=tmp_path / "run", epochs=1, hidden=8, progress=False)
    for use in (graphmill.evaluate, graphmill.predict):
        with pytest.raises(ValueError, match="dataset in memory.*: dataset= takes a graphmill.Dataset or its directory$"):
            use(tmp_path / "run")
    assert len(graphmill.predict(tmp_path / "run", dataset=own)) == 300
    assert graphmill.evaluate(tmp_path / "run", own).same_dataset is True
    other = graphmill.generate("sbm", nodes=300, classes=10, dim=48, seed=2)
    assert graphmill.evaluate(tmp_path / "run", other).same_dataset is False
    with pytest.raises(ValueError, match="dataset in memory"):
        graphmill.train(out=tmp_path / "run", resume=True, epochs=2, progress=False)
    with pytest.raises(ValueError, match="cannot continue with"):
        graphmill.train(other, out=tmp_path / "run", resume=True, epochs=2, progress=False)
    with pytest.raises(ValueError, match="hidden is 8 in the run to resume and cannot become 9"):
        graphmill.train(own, out=tmp_path / "run", resume=True, epochs=2, hidden=9, progress=False)
    assert len(graphmill.train(own, out=tmp_path / "run", resume=True, epochs=2, progress=False).epochs) == 2


def test_rescaled_features_raise_a_warning(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(3, 5, (200, 4)).astype(np.float32), rng.integers(0, 3, 200)
    edges = np.unique(rng.integers(0, 200, (600, 2)), axis=0)
    raw = graphmill.Dataset.from_arrays(edges.T, x=x, y=y, train_mask=np.arange(100), val_mask=np.arange(100, 150))
    (tmp_path / "src").mkdir()
    for name, array in {"edges": edges, "features": x, "labels": y, "train": np.arange(100), "valid": np.arange(100, 150)}.items():
        np.save(tmp_path / "src" / f"{name}.npy", array)
    own = graphmill.import_dataset("edges", tmp_path / "src", tmp_path / "own", normalize="standard", progress=False)
    graphmill.train(own, out=tmp_path / "run", epochs=1, hidden=8, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = graphmill.predict(tmp_path / "run", kind="probabilities")
    with pytest.warns(UserWarning, match="means and deviations of the run's training data") as caught:
        found = graphmill.predict(tmp_path / "run", dataset=raw, kind="probabilities")
    assert np.abs(found - expected).max() < 1e-5 and caught[0].filename == __file__


def test_runs_find_their_dataset_directory(tmp_path):
    graphmill.generate("sbm", out=tmp_path / "data", nodes=300, seed=1)
    graphmill.train(tmp_path / "data", out=tmp_path / "run", epochs=1, hidden=8, progress=False)
    assert graphmill.evaluate(tmp_path / "run").same_dataset is True
    assert len(graphmill.train(out=tmp_path / "run", resume=True, epochs=2, progress=False).epochs) == 2
    (tmp_path / "data").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="no longer in"):
        graphmill.evaluate(tmp_path / "run")
    assert graphmill.evaluate(tmp_path / "run", tmp_path / "moved").same_dataset is True


def test_unused_options_are_refused():
    with pytest.raises(ValueError, match="inductive true: sampler neighbor does not use it; use sampler saint"):
        graphmill.train(inductive=True, epochs=1)
    with pytest.raises(TypeError, match="no such option 'epochs'"):
        graphmill.partition_report(epochs=2)
    with pytest.raises(TypeError, match="no such option 'model'"):
        graphmill.hotness(model="gcn")
    with pytest.raises(ValueError, match="fanout: scores of degree do not depend on it"):
        graphmill.hotness(metric="degree", fanout=[5, 5])


def test_errors_name_python_keywords():
    dataset = graphmill.Dataset.from_arrays(np.array([[0], [1]]), x=np.ones((2, 3)), y=[0, 1])
    with pytest.raises(ValueError, match="no training nodes.*in Python pass train_mask= to from_arrays"):
        graphmill.train(dataset, epochs=1)


def test_an_exploding_loss_is_a_warning(sbm, monkeypatch):
    from graphmill import run

    def train(*arguments):
        arguments[-1]('{"event": "warning", "message": "the loss explodes: 50 in epoch 3"}')
        return native(*arguments)

    native = run._graphmill.train
    monkeypatch.setattr(run, "_graphmill", type("Native", (), {"train": staticmethod(train), "needs_directory": staticmethod(lambda *_: False)}))
    with pytest.warns(UserWarning, match="the loss explodes: 50 in epoch 3"):
        graphmill.train(sbm, **OPTIONS)
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graphmill.train(sbm, **OPTIONS)
