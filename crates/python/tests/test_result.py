"""Runs as results: history, tables, plots, models, predictions, and what notebooks show."""

import importlib.util
import io
import json
import shutil

import numpy as np
import pytest

import graphmill
from graphmill import progress, record, result

OPTIONS = {"epochs": 3, "hidden": 16, "fanout": [5, 5], "seed": 1, "batch_size": 200}


@pytest.fixture(scope="module")
def run(sbm, tmp_path_factory):
    return graphmill.train(sbm, out=tmp_path_factory.mktemp("runs") / "run", progress=False, **OPTIONS)


def test_the_text_of_a_record_leaves_out_most_items_of_long_lists_and_deep_values(run):
    def text(values):
        return repr(record.record_of(json.dumps(values)))

    assert text({"a": [1, 2, 3, 4, 5, 6], "b": "x"}) == "Record(a=[1, 2, 3, 4, 5, 6], b='x')"
    assert text({"a": list(range(9))}) == "Record(a=[0, 1, 2, ... 6 more])"
    assert text({"a": {"b": {"c": {"d": 1}}}}) == "Record(a=Record(b=Record(c=Record(d))))"
    shown = repr(run.evaluate())
    assert shown.startswith("Record(run=") and "test=" in shown and len(shown) < 5000


def test_history_is_a_list_and_a_table(run):
    assert [record.epoch for record in run.history] == [1, 2, 3] == [record["epoch"] for record in run.history]
    rows = run.history.to_dicts()
    assert rows[0]["loss"] == run.epochs[0].loss and rows[0]["stages.sample"] == run.epochs[0].stages.sample
    pandas, polars = run.history.to_pandas(), run.history.to_polars()
    assert pandas.loss.tolist() == polars["loss"].to_list() == [record.loss for record in run.history]
    assert list(pandas.columns) == polars.columns == list(rows[0])


def test_a_run_is_opened_from_its_directory(run, sbm):
    opened = graphmill.Run(run.path)
    assert opened.to_dict() == run.to_dict() and opened.best.epoch == run.best.epoch and opened["seconds"] == run.seconds
    assert repr(opened).startswith(f"Run({run.path!r}, model='sage', epochs=3, best_epoch=") and len(repr(opened)) < 300
    # a run that was trained here has its dataset; one in memory must be passed to an opened run
    assert run.predict().tolist() == graphmill.predict(run, dataset=sbm).tolist() == opened.predict(dataset=sbm).tolist()
    assert run.evaluate().test == pytest.approx(run.test.score)
    assert run.predict([1, 2], kind="embeddings").tolist() == graphmill.embed(run, [1, 2], dataset=sbm).tolist()
    with pytest.raises(ValueError, match="dataset in memory"):
        opened.predict()
    assert len(graphmill.Predictor(run, dataset=sbm).predict([1, 2]).scores) == 2
    assert run.report == graphmill.report(run) and run.report.endswith("report.html")
    with pytest.raises(FileNotFoundError, match="no such run directory"):
        graphmill.Run("nothing")
    with pytest.raises(AttributeError, match="no attribute 'lost'"):
        run.lost


def test_a_run_without_a_directory_has_records_alone(sbm):
    run = graphmill.train(sbm, progress=False, **{**OPTIONS, "epochs": 1})
    assert run.path is None and len(run.history) == 1 and repr(run).startswith("Run(model='sage', epochs=1")
    for use in (run.predict, run.evaluate, lambda: run.report, lambda: run.model):
        with pytest.raises(ValueError, match="trained with out=None; pass out= to train"):
            use()


def test_runs_are_compared_the_best_first(run, sbm, tmp_path):
    other = graphmill.train(sbm, out=tmp_path / "other", progress=False, **{**OPTIONS, "epochs": 1, "lr": 1e-6})
    rows = graphmill.runs(other, run.path)
    assert [row.run for row in rows] == [run.path, other.path] and rows[0].options.lr == 0.003
    assert rows[0].valid == run.best.valid_score > rows[1].valid
    with pytest.raises(ValueError, match="holds none"):
        graphmill.runs(tmp_path / "other/checkpoint")


def test_notebooks_show_escaped_tables(run, tmp_path):
    shown = run._repr_html_()
    assert "valid accuracy" in shown and f"{run.test.score:.4f}" in shown and run.path in shown
    data = graphmill.Dataset.from_arrays([[0, 1], [1, 0]], x=np.eye(2, dtype=np.float32), y=[0, 1], train_mask=[0], name="<script>")
    assert "<script>" not in data._repr_html_() and "&lt;script&gt;" in data._repr_html_()
    assert "2 classes" in data._repr_html_() and "train 1, valid 0, test 0" in data._repr_html_()
    typed = graphmill.TypedDataset.from_arrays(
        {"paper": {"x": np.zeros((3, 2)), "keys": ["a", "b", "c"]}, "<b>": {"num_nodes": 2}},
        {("<b>", "writes", "paper"): {"edge_index": [[0, 1], [1, 2]]}},
        {"field": {"on": "paper", "y": [0, 1, 1], "train": [0], "valid": [1], "test": [2]}},
    )
    shown = typed._repr_html_()
    assert "3 nodes, 2 features, keys: texts" in shown and "<b>," not in shown and "train 1, valid 1, test 1" in shown


def test_plots_need_matplotlib(run):
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(ModuleNotFoundError, match=r"plot\(\) needs matplotlib; install it"):
            run.plot()
        return
    import matplotlib

    matplotlib.use("Agg")
    axes = run.plot()
    assert axes.get_lines()[0].get_ydata().tolist() == [record.loss for record in run.history]


def test_missing_packages_are_named(run, monkeypatch):
    monkeypatch.setattr(result, "find", lambda name: None)
    for use, package in ((run.history.to_pandas, "pandas"), (run.history.to_polars, "polars"), (run.plot, "matplotlib")):
        with pytest.raises(ModuleNotFoundError, match=f"needs {package}; install it with pip: pip install {package}"):
            use()


def test_notebooks_have_bars_of_tqdm(sbm, monkeypatch, capsys):
    tqdm = pytest.importorskip("tqdm")
    shown = io.StringIO()

    class Bar(tqdm.tqdm):
        def __init__(self, **how):
            super().__init__(file=shown, **how)

    with monkeypatch.context() as patch:
        patch.setattr(progress, "is_notebook", lambda: True)
        patch.setattr(progress, "find", lambda name: type("auto", (), {"tqdm": Bar}))
        graphmill.train(sbm, **OPTIONS)
    assert "3/3" in shown.getvalue() and "valid accuracy" in shown.getvalue()
    printed = capsys.readouterr()
    assert printed.err == "" and "strategy sequential" in printed.out
    # without tqdm one line, as on a terminal
    with monkeypatch.context() as patch:
        patch.setattr(progress, "is_notebook", lambda: True)
        patch.setattr(progress, "find", lambda name: None)
        graphmill.train(sbm, **OPTIONS)
    assert "epoch 3/3  loss" in capsys.readouterr().err


class Graph:
    """A graph of nobody's library."""

    def __init__(self, data):
        self.edge_index, self.x, self.y = data.edge_index, data.x.tolist(), data.y
        self.train_mask, self.val_mask, self.test_mask = data.train_mask, data.val_mask, data.test_mask


def test_any_object_with_edges_trains_and_loads(sbm):
    given = Graph(sbm)
    named = {name: getattr(given, name) for name in vars(given)}
    expected = graphmill.train(sbm, progress=False, **OPTIONS)
    for data in (given, named):
        run = graphmill.train(data, progress=False, **OPTIONS)
        assert [e.loss for e in run.epochs] == [e.loss for e in expected.epochs]
    given.x = np.asarray(given.x, np.float32)
    loader = graphmill.NeighborLoader(given, [3], input_nodes=[5], output="numpy", seed=0)
    batch = next(iter(loader))
    assert batch.x.tolist() == sbm.x[batch.n_id].tolist() and batch.train_mask.shape == batch.n_id.shape
    for use in (graphmill.train, lambda data: graphmill.NeighborLoader(data, [1])):
        with pytest.raises(TypeError, match="edge_index"):
            use(object())


def test_commands_on_datasets_have_functions(sbm, tmp_path):
    figures = graphmill.info(sbm)
    assert figures.nodes == 4000 and figures.edges == sbm.num_edges
    assert graphmill.export_dataset(sbm, "npz", tmp_path / "sbm.npz") == ["the name of the metric, accuracy"]
    assert (tmp_path / "sbm.npz").is_file()
    with pytest.raises(ValueError, match="unknown format 'nothing'"):
        graphmill.export_dataset(sbm, "nothing", tmp_path / "x")
    ordered = graphmill.reorder(sbm, tmp_path / "hot", by="degree", progress=False)
    degrees = np.diff(ordered.indptr.astype(np.int64))
    assert (np.diff(degrees) <= 0).all() and (sbm.x[ordered.original_ids] == ordered.x).all()
    assert graphmill.reorder(sbm, tmp_path / "presc", by="presc:1", fanout=[3, 2], progress=False).num_edges == sbm.num_edges
    with pytest.raises(ValueError, match="fanout: by degree does not use it"):
        graphmill.reorder(sbm, tmp_path / "none", by="degree", fanout=[3], progress=False)
    with pytest.raises(ValueError, match="unknown order 'nothing'"):
        graphmill.reorder(sbm, tmp_path / "none", by="nothing", progress=False)
    findings = graphmill.doctor()
    assert {"good", "note", "fault"} >= {finding.state for finding in findings}
    assert findings[0].part == "version" and graphmill.__version__ in findings[0].found


def test_plans_take_several_types(library, tmp_path):
    cores = tmp_path / "cores.toml"
    cores.write_text(
        "devices = { count = 1, memory = '1G', speed = 1.0, shared = true }\nlink = { bandwidth = 1e9 }\n"
        "host = { cores = 2, memory = '4G' }\n"
    )
    options = {"task": "topic", "model": "rgcn", "bases": 2, "fanout": [3, 2], "hidden": 8, "batch_size": 30}
    for data in (library, library.path):
        plan = graphmill.plan(data, cores, **options)
        assert [strategy.name for strategy in plan.strategies] == ["sequential", "pipelined", "time-sharing", "factored"]
    on_nvidia = graphmill.plan(library, "v100x8", **options)
    assert {strategy.name for strategy in on_nvidia.strategies if strategy.fits} == {"sequential", "pipelined"}
    graphmill.partition_report(library, 2, methods=["hash"], out=tmp_path / "parts", task="topic", batches=2, fanout=[3, 2])
    machines = graphmill.plan(library, partition=tmp_path / "parts", **options)
    assert machines.to_dict()


def test_plans_and_benches_have_functions(sbm):
    plan = graphmill.plan(sbm, "v100x8", device_counts=[1, 2], fanout=[3, 2], hidden=16, batch_size=200)
    assert any(strategy.fits for strategy in plan.strategies) and len(plan.sweep) == 2
    with pytest.raises(ValueError, match="device_counts 0: not numbers from 1"):
        graphmill.plan(sbm, "v100x8", device_counts=[0])
    with pytest.raises(ValueError, match="nothing"):
        graphmill.plan(sbm, "nothing")
    assert graphmill.bench("gather", sbm, dim=8, repeat=1).to_dict()
    for message, options in (("repeat 0: use a number from 1 to 1000", {"repeat": 0}), ("leave out dataset or scale", {"scale": 3})):
        with pytest.raises(ValueError, match=message):
            graphmill.bench("gather", sbm, **options)


def test_repeated_runs_have_a_mean_and_go_on(sbm, tmp_path):
    options = {**OPTIONS, "epochs": 2, "seed": 7, "progress": False}
    seen = []
    runs = graphmill.train(sbm, out=tmp_path / "many", repeat=3, callback=seen.append, **options)
    assert [(record.seed, record.epoch) for record in seen] == [(seed, epoch) for seed in (7, 8, 9) for epoch in (1, 2)]
    assert [run.config.seed for run in runs] == [7, 8, 9] and len(runs) == 3
    scores = np.array([run.test.score for run in runs])
    assert (runs.test.mean, runs.test.deviation) == pytest.approx((scores.mean(), scores.std(ddof=1)))
    assert (runs.test.min, runs.test.max) == (scores.min(), scores.max())
    assert runs.valid.mean == pytest.approx(np.mean([run.best.valid_score for run in runs]))
    assert json.loads((tmp_path / "many/repeat.json").read_text()) == runs.to_dict()
    assert repr(runs).startswith(f"Runs({str(tmp_path / 'many')!r}, 3 runs, valid accuracy 0.")
    assert " ± " in runs._repr_html_() and runs.metric == "accuracy"
    # each is the run of its seed, and predicts
    alone = graphmill.train(sbm, **{**options, "seed": 8})
    assert [record.loss for record in alone.history] == [record.loss for record in runs[1].history]
    assert len(runs[1].predict([1, 2])) == 2 and runs[1].path == str(tmp_path / "many" / "seed-8")
    # of a run that was killed nothing is left, and a finished one is not trained again
    shutil.rmtree(tmp_path / "many/seed-9")
    seen.clear()
    more = graphmill.train(sbm, out=tmp_path / "many", repeat=4, resume=True, callback=seen.append, progress=False)
    assert {record.seed for record in seen} == {9, 10} and more[2].config.hidden == OPTIONS["hidden"]
    assert [run.test.score for run in more[:3]] == [run.test.score for run in runs]
    sbm.save(tmp_path / "data")
    stored = {**options, "epochs": 1, "repeat": 1}
    first = graphmill.train(tmp_path / "data", out=tmp_path / "stored", **stored)
    again = graphmill.train(out=tmp_path / "stored", repeat=2, resume=True, progress=False)
    assert again[0].test.score == first[0].test.score and again[1].dataset.checksum == first[0].dataset.checksum
    memory = graphmill.train(sbm, repeat=2, **{**options, "epochs": 1})
    assert memory.path is None and [run.path for run in memory] == [None, None]
    for wrong in (0, -1, 1001):
        with pytest.raises(ValueError, match=f"repeat.{wrong}: pass an integer from 1 to 1000"):
            graphmill.train(sbm, repeat=wrong, **options)
    with pytest.raises(ValueError, match="there is a run here already"):
        graphmill.train(sbm, out=tmp_path / "many", repeat=2, **options)
    with pytest.raises(ValueError, match="no run to resume"):
        graphmill.train(sbm, out=tmp_path, repeat=2, resume=True)
