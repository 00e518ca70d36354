"""Runs in MLflow and Weights & Biases."""

import numpy as np
import pytest

import graphmill

OPTIONS = {"epochs": 3, "hidden": 16, "fanout": [5, 5], "seed": 1, "batch_size": 200}


@pytest.fixture
def directory(sbm, tmp_path):
    """The dataset in a directory."""
    path = tmp_path / "data"
    sbm.save(path)
    return path


def test_mlflow_has_epochs_scores_and_a_model_that_answers(directory, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed")
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as active:
        run = graphmill.train(
            directory, out=tmp_path / "run", callback=graphmill.loggers.MlflowCallback(), **OPTIONS
        )
        logged = graphmill.loggers.log_to_mlflow(run, dataset=directory)
    history = mlflow.MlflowClient().get_metric_history(active.info.run_id, "loss")
    assert [(entry.step, entry.value) for entry in history] == [(e.epoch, pytest.approx(e.loss)) for e in run.history]
    data = mlflow.get_run(active.info.run_id).data
    assert data.params["model"] == "sage" and data.params["hidden"] == "16"
    assert data.metrics["test_accuracy"] == pytest.approx(run.test.score)
    model = mlflow.pyfunc.load_model(logged.model_uri)
    answers = model.predict(pandas.DataFrame({"node": [3, 1, 2]}))
    assert answers["node"].tolist() == [3, 1, 2]
    probabilities = graphmill.predict(run, [3, 1, 2], kind="probabilities")
    assert np.array_equal(answers.filter(like="p_").to_numpy(), probabilities)
    with pytest.raises(Exception, match="neither a column 'key' nor a column 'node'"):
        model.predict(pandas.DataFrame({"account": [1]}))


def test_answers_have_keys_and_every_kind_of_target(sectors, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    rows = range(120)
    accounts = {"account": [f"acc-{i}" for i in rows], "age": [20 + i % 7 for i in rows]}
    edges = {"from": accounts["account"], "to": [f"acc-{i * 7 % 120}" for i in rows]}

    def labelled(label, task):
        ends = {"id": "account", "label": "label", "task": task, "src": "from", "dst": "to"}
        return graphmill.Dataset.from_tables({**accounts, "label": label}, edges, **ends)

    cases = {
        "one": labelled([("bank", "shop", "state")[i % 3] for i in rows], "classification"),
        "columns": sectors,
        "values": labelled([i % 9 + 0.5 for i in rows], "regression"),
    }
    for name, data in cases.items():
        data.save(tmp_path / name)
        out = graphmill.train(tmp_path / name, out=tmp_path / f"run-{name}", **OPTIONS).path
        predictor = graphmill.Predictor(out)
        keys = ["acc-7", "acc-3"]
        table = graphmill.loggers.answer(predictor, pandas.DataFrame({"key": keys}))
        answers = predictor.predict(keys=keys)
        assert table["key"].tolist() == keys
        if name == "values":
            assert table.columns.tolist() == ["key", "value_0"]
            assert np.array_equal(table["value_0"], answers.scores[:, 0])
        elif name == "one":
            assert table["class"].tolist() == [predictor.class_names[i] for i in answers.classes]
            assert table.columns[2:].tolist() == [f"p_{of}" for of in predictor.class_names]
        else:
            assert table.columns.tolist()[:3] == ["key", "class_sector", "class_region"]
            assert set(table.columns[3:]) == {f"p_{of}" for of in ("sector_bank", "sector_shop", "sector_state", "region_north", "region_south")}
            for column, part in predictor.class_slices.items():
                best = [predictor.class_names[part][i] for i in answers.scores[:, part].argmax(axis=1)]
                assert table[f"class_{column}"].tolist() == best
                found = [table[f"p_{column}_{of}"][0] for of in predictor.class_names[part]]
                assert np.array_equal(found, answers.scores[0, part])


def test_wandb_has_every_epoch(directory, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.chdir(tmp_path)
    seen = {}

    callback = graphmill.loggers.WandbCallback(mode="offline", project="accounts", dir=tmp_path)
    original = callback.run.log
    callback.run.log = lambda values, step: (seen.update({step: values}), original(values, step=step))
    run = graphmill.train(directory, callback=callback, **OPTIONS)
    assert {step: values["loss"] for step, values in seen.items()} == {e.epoch: e.loss for e in run.history}
    summary, finish = {}, callback.run.finish
    callback.run.finish = lambda: (summary.update(dict(callback.run.summary)), finish())
    callback.finish(run)
    assert summary["test_accuracy"] == run.test.score and wandb.run is None
    with pytest.raises(TypeError, match="either a run or arguments"):
        graphmill.loggers.WandbCallback(callback.run, project="other")
