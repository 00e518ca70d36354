"""Training on several node types: from arrays to predictions, and back after an interruption."""

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


def test_a_stopped_run_continues(saved, tmp_path):
    whole = graphmill.train(saved, out=tmp_path / "whole", **OPTIONS)

    def stop(record):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        graphmill.train(saved, out=tmp_path / "run", callback=stop, **OPTIONS)
    again = graphmill.train(out=tmp_path / "run", resume=True, progress=False)
    assert [each.loss for each in again.epochs] == [each.loss for each in whole.epochs]


def test_what_cannot_be_trained_is_refused(saved, tmp_path):
    with pytest.raises(ValueError, match="reads the dataset from its directory"):
        graphmill.train(library(), **OPTIONS)
    graphmill.train(saved, out=tmp_path / "run", **OPTIONS)
    one = graphmill.generate(nodes=50, dim=4, seed=1)
    with pytest.raises(ValueError, match="trained on several types; pass a TypedDataset"):
        graphmill.evaluate(tmp_path / "run", one)
    with pytest.raises(ValueError, match="original_ids"):
        graphmill.predict(tmp_path / "run", original_ids=True)
    graphmill.train(one, out=tmp_path / "one", epochs=1, hidden=8, progress=False)
    with pytest.raises(ValueError, match="trained on one type; pass a Dataset"):
        graphmill.predict(tmp_path / "one", dataset=graphmill.TypedDataset(saved))
