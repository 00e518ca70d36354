"""Training on several node types: from arrays to predictions, and back after an interruption."""

import gc
import pathlib
import pickle

import numpy as np
import pytest

import graphmill

OPTIONS = {
    "epochs": 3,
    "hidden": 8,
    "fanout": [5, 5],
    "batch_size": 32,
    "lr": 0.05,
    "seed": 1,
    "progress": False,
}


def library(count=120):
    """Papers whose class is that of their authors' group; venues have no features."""
    groups = np.arange(count) % 3
    authors = np.eye(3, dtype=np.float32)[groups]
    papers = np.arange(count)
    ends = np.stack([papers, (papers + 3) % count])
    edges = {
        ("author", "writes", "paper"): {"edge_index": ends},
        ("venue", "holds", "paper"): {"edge_index": np.stack([papers % 5, papers])},
    }
    nodes = {
        "paper": {"num_nodes": count, "keys": [f"p{i}" for i in papers]},
        "author": {"x": authors},
        "venue": {"num_nodes": 5},
    }
    parts = {"train": papers[: count // 2], "valid": papers[count // 2 : 90], "test": papers[90:]}
    task = {"on": "paper", "y": groups, "names": ["a", "b", "c"], **parts}
    return graphmill.TypedDataset.from_arrays(nodes, edges, {"topic": task}, name="library")


@pytest.fixture
def saved(tmp_path):
    library().save(tmp_path / "library")
    return tmp_path / "library"


def test_tasks_of_arrays_have_seeds_and_times():
    nodes = {"user": {"num_nodes": 3}, "item": {"num_nodes": 4}}
    bought = ("user", "buys", "item")
    edges = {bought: {"edge_index": [[0, 1, 2, 2], [3, 2, 1, 0]]}}
    rows = {"train": [0, 1], "valid": [2], "test": [3]}
    tasks = {
        "left": {"on": "user", "seeds": [2, 0, 2, 1], "time": [5, 5, 9, 9], "y": [1, 0, 0, 1], "num_classes": 2, **rows},
        "spent": {"on": bought, "seeds": np.array([[0, 1], [2, 3], [1, 0], [0, 1]]), "time": [1, 2, 3, 4], "y": np.array([0.5, 1.5, 2.5, 3.5]), **rows},
        "next": {"on": bought, "seeds": [[0, 1], [2, 3], [1, 0], [0, 0]], "time": [1, 2, 3, 4], **rows},
        "kept": {"on": bought, "time": [7, 8, 9, 6], "train": [1, 3], "test": [0]},
    }
    data = graphmill.TypedDataset.from_arrays(nodes, edges, tasks)
    left, spent, following, kept = (data.task(name) for name in tasks)
    assert (left.kind, left.on, left.seeds.tolist(), left.time.tolist()) == ("node-classification", "user", [2, 0, 2, 1], [5, 5, 9, 9])
    assert (left.y.tolist(), left.train.tolist(), left.test.tolist()) == ([1, 0, 0, 1], [0, 1], [3])
    assert (spent.kind, spent.seeds.tolist()) == ("edge-regression", [[0, 1], [2, 3], [1, 0], [0, 1]])
    assert (spent.y.tolist(), spent.time.tolist()) == ([0.5, 1.5, 2.5, 3.5], [1, 2, 3, 4])
    assert (following.kind, following.seeds.tolist()) == ("link-prediction", [[0, 1], [2, 3], [1, 0], [0, 0]])
    # rows of edges that are predicted are numbered part by part
    assert (kept.seeds.tolist(), kept.time.tolist(), kept.test.tolist()) == ([[1, 2], [2, 0], [0, 3]], [8, 6, 7], [2])
    copy = pickle.loads(pickle.dumps(graphmill.TypedDataset.from_arrays(nodes, edges, {name: tasks[name] for name in ("left", "spent")})))
    for name, task in (("left", left), ("spent", spent)):
        assert copy.task(name).on == task.on and copy.task(name).seeds.tolist() == task.seeds.tolist()
        assert copy.task(name).time.tolist() == task.time.tolist() and copy.task(name).y.tolist() == task.y.tolist()
    flags = {"on": "user", "y": np.eye(3, 2, dtype=np.float32), "metric": "mae", "values": True, "train": [0]}
    made = graphmill.TypedDataset.from_arrays(nodes, edges, {"flags": flags})
    for each in (made, pickle.loads(pickle.dumps(made))):
        of = each.task("flags")
        assert (of.kind, of.metric, of.y.tolist()) == ("node-regression", "mae", [[1, 0], [0, 1], [0, 0]])
    with pytest.raises(TypeError, match="task 'next': only tasks with targets can be pickled"):
        pickle.dumps(data)
    for message, change in [
        (r"seeds of task 'left': expected integers of shape \(R,\), not int64 of shape \(2, 2\)", {"seeds": [[0, 1], [1, 2]]}),
        (r"seeds of task 'left'\[3\] is 7", {"seeds": [0, 1, 2, 7]}),
        ("task 'left': 3 times for 4 rows; pass one each", {"time": [1, 2, 3]}),
        ("4 classes for 3 rows", {"seeds": [0, 1, 2], "time": None, "test": None}),
    ]:
        with pytest.raises(ValueError, match=message):
            graphmill.TypedDataset.from_arrays(nodes, edges, {"left": {**tasks["left"], **change}})


def test_training_evaluation_and_prediction(saved, tmp_path):
    whole = graphmill.train(saved, out=tmp_path / "run", model="rsage", **OPTIONS)
    assert len(whole.epochs) == 3 and whole.test.metric == "accuracy"
    assert {each.name for each in whole.epochs[0].node_types} == {"paper", "author", "venue"}
    typed = graphmill.TypedDataset(saved)
    assert graphmill.train(typed, model="rsage", **OPTIONS).epochs[-1].loss == whole.epochs[-1].loss
    for dataset in (None, saved, typed):
        assert graphmill.evaluate(tmp_path / "run", dataset).test == whole.test.score
    scores = graphmill.predict(tmp_path / "run", [3, 7], kind="probabilities")
    assert scores.shape == (2, 3) and np.allclose(scores.sum(1), 1, atol=1e-5)
    assert graphmill.predict(tmp_path / "run", dataset=typed).shape == (120,)


def test_types_in_memory_are_kept_in_a_directory_as_long_as_they_live(saved, tmp_path):
    data = library()
    run = graphmill.train(data, out=tmp_path / "run", **OPTIONS)
    whole = graphmill.train(saved, out=tmp_path / "whole", **OPTIONS)
    assert [each.loss for each in run.epochs] == [each.loss for each in whole.epochs]
    assert data.path is None and run.predict().tolist() == whole.predict().tolist()
    assert len(pickle.loads(pickle.dumps(data)).task("topic").y) == len(data.task("topic").y)
    kept = pathlib.Path(run.config.dataset)
    graphmill.train(data, **OPTIONS)
    record = graphmill.sweep(data, {"hidden": [4, 8]}, out=tmp_path / "sweep", **{k: v for k, v in OPTIONS.items() if k != "hidden"})
    assert len(record.trials) == 2 and kept.exists()
    del data, run
    gc.collect()
    assert not kept.exists() and not kept.parent.exists()
    with pytest.raises(ValueError, match="pass"):
        graphmill.predict(tmp_path / "run")
    assert len(graphmill.predict(tmp_path / "run", dataset=saved))


def test_classes_of_edges_are_learned_and_predicted_with_the_keys_of_their_ends(tmp_path):
    rng = np.random.default_rng(1)
    groups = np.arange(60) % 2
    ends = rng.integers(0, 60, (2, 600))
    odd = (groups[ends[0]] != groups[ends[1]]).astype(np.int64)
    rows = rng.permutation(600)
    nodes = {"account": {"x": np.eye(2, dtype=np.float32)[groups], "keys": [f"acc-{v}" for v in range(60)]}}
    edges = {("account", "sends", "account"): {"edge_index": ends}}
    parts = {"train": np.sort(rows[:400]), "valid": np.sort(rows[400:500]), "test": np.sort(rows[500:])}
    task = {"on": ("account", "sends", "account"), "y": odd, "names": ["plain", "odd"], **parts}
    data = graphmill.TypedDataset.from_arrays(nodes, edges, {"odd": task}, name="bank")
    run = graphmill.train(data, out=tmp_path / "run", **{**OPTIONS, "epochs": 10})
    assert run.test.score > 0.9 and run.config.model == "rsage"
    assert run.predict().shape == (600,) and run.evaluate().test == run.test.score
    opened = graphmill.TypedDataset(run.config.dataset)
    assert np.array_equal(graphmill.predict(run, dataset=opened), run.predict())
    # rows are numbered as edges are stored
    source, destination = opened.edges(("account", "sends", "account")).edge_index[:, 7]
    answers = graphmill.Predictor(run.path).predict([7])
    assert answers.classes[0] == run.predict()[7]
    by_key = graphmill.predict(run, keys=[f"acc-{source}|acc-{destination}"])
    assert by_key.tolist() == [run.predict()[7]]


def test_a_stopped_run_continues(saved, tmp_path):
    whole = graphmill.train(saved, out=tmp_path / "whole", **OPTIONS)

    def stop(record):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        graphmill.train(saved, out=tmp_path / "run", callback=stop, **OPTIONS)
    again = graphmill.train(out=tmp_path / "run", resume=True, progress=False)
    assert [each.loss for each in again.epochs] == [each.loss for each in whole.epochs]


def test_what_cannot_be_trained_is_refused(saved, tmp_path):
    graphmill.train(saved, out=tmp_path / "run", **OPTIONS)
    one = graphmill.generate(nodes=50, dim=4, seed=1)
    with pytest.raises(ValueError, match="its types are node, .* but the model was trained on paper"):
        graphmill.evaluate(tmp_path / "run", one)
    with pytest.raises(ValueError, match="original_ids"):
        graphmill.predict(tmp_path / "run", original_ids=True)
    graphmill.train(one, out=tmp_path / "one", epochs=1, hidden=8, progress=False)
    with pytest.raises(ValueError, match="trained on one type; pass a Dataset"):
        graphmill.predict(tmp_path / "one", dataset=graphmill.TypedDataset(saved))


def assert_no_directory(data, **options):
    """Trains on a dataset in memory as on its directory; returns the run."""
    assert data.path is None
    run = graphmill.train(data, **{**OPTIONS, **options})
    stored = graphmill.train(run.config.dataset, **{**OPTIONS, **options, "out": None})
    assert [each.loss for each in run.epochs] == [each.loss for each in stored.epochs]
    assert run.test.score == stored.test.score
    return run


@pytest.mark.parametrize("model", ["rsage", "rgcn", "hgt"])
@pytest.mark.parametrize("dim", [8, 0])
def test_models_of_types_learn_one_type_in_memory(tmp_path, model, dim):
    made = graphmill.generate(nodes=200, classes=3, dim=8, seed=1)
    masks = {name: getattr(made, name) for name in ("train_mask", "val_mask", "test_mask")}
    data = graphmill.Dataset.from_arrays(made.edge_index, x=made.x if dim else None, y=made.y, num_nodes=200, **masks)
    run = assert_no_directory(data, model=model, out=tmp_path / "run")
    assert run.predict().shape == (200,) and run.evaluate().test == run.test.score
    # by an object in memory, and by the run's own directory
    assert (graphmill.predict(run.path, dataset=data) == run.predict()).all()
    nodes = np.array([3, 199])
    answers = graphmill.Predictor(run.path, dataset=data).predict(nodes)
    assert answers.classes.tolist() == run.predict()[nodes].tolist()
    links = graphmill.train(data, model=model, task="link", out=tmp_path / "links", **OPTIONS)
    assert links.test.metric == "mrr" and len(graphmill.recommend(links.path, [3], k=2, dataset=data).candidates) == 2


def test_tables_of_embeddings_learn_one_type_in_memory(tmp_path):
    data = graphmill.generate(nodes=200, classes=3, dim=8, seed=1)
    options = {"epochs": 2, "hidden": 8, "batch_size": 64, "progress": False}
    run = graphmill.train(data, model="lightgcn", out=tmp_path / "run", **options)
    assert run.epochs[-1].loss == graphmill.train(run.config.dataset, model="lightgcn", **options).epochs[-1].loss
    assert graphmill.embed(run.path, [3, 7], dataset=data).shape == (2, 8)


def test_models_of_types_learn_the_demo():
    run = graphmill.train(model="rsage", **{**OPTIONS, "epochs": 1})
    assert run.test.metric == "accuracy" and run.dataset.name == "demo"
