"""Models of several types in PyTorch Geometric."""

import numpy as np
import pytest
from conftest import HAS_PYG

import graphmill

pytestmark = pytest.mark.skipif(not HAS_PYG, reason="torch and torch_geometric are not installed")

OPTIONS = {"epochs": 2, "hidden": 8, "fanout": [5, 5], "batch_size": 32, "seed": 1, "progress": False}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Papers with citations among each other, authors with features of another width, and venues without."""
    rng = np.random.default_rng(2)
    count = 90
    groups, papers = np.arange(count) % 3, np.arange(count)
    nodes = {
        "paper": {"x": np.eye(3, dtype=np.float32)[groups] + rng.normal(size=(count, 3)).astype(np.float32)},
        "author": {"x": rng.normal(size=(40, 5)).astype(np.float32)},
        "venue": {"num_nodes": 5},
    }
    edges = {
        ("author", "writes", "paper"): {"edge_index": rng.integers(0, [[40], [count - 9]], (2, 200))},
        ("paper", "by", "author"): {"edge_index": rng.integers(0, [[count], [40]], (2, 150))},
        ("paper", "cites", "paper"): {"edge_index": rng.integers(0, count - 9, (2, 200))},
        ("venue", "holds", "paper"): {"edge_index": np.stack([papers % 5, papers])},
    }
    parts = {"train": papers[:60], "valid": papers[60:75], "test": papers[75:]}
    values = np.stack([groups * 100.0, rng.normal(size=count)], axis=1).astype(np.float32)
    tasks = {"topic": {"on": "paper", "y": groups, "names": ["a", "b", "c"], **parts}, "value": {"on": "paper", "y": values, **parts}}
    path = tmp_path_factory.mktemp("data") / "library"
    graphmill.TypedDataset.from_arrays(nodes, edges, tasks, name="library").save(path)
    return graphmill.TypedDataset(path)


def graph_of(library):
    """Features and edges of the dataset, as those of a ``HeteroData``."""
    import torch

    x = {kind: library.nodes(kind).x for kind in library.node_types}
    edges = {tuple(kind): library.edges(kind).edge_index for kind in library.edge_types}
    return (
        {kind: torch.as_tensor(np.asarray(rows)) for kind, rows in x.items() if rows is not None},
        {kind: torch.as_tensor(np.asarray(ends), dtype=torch.int64) for kind, ends in edges.items()},
    )


@pytest.mark.parametrize(
    "options",
    [
        {"model": "rsage", "norm": "batch"},
        {"model": "rsage", "no_own_rows": True, "head_layers": 1, "activation": "elu"},
        {"model": "rsage", "fanout": "5,5;paper:cites:paper=5,0"},
        {"model": "rgcn", "norm": "layer"},
        {"model": "rgcn", "bases": 2},
        {"model": "rgcn", "blocks": 2, "head_layers": 2, "norm": "l2"},
        {"model": "rgat", "heads": 2, "out_heads": 3},
        {"model": "rgat", "heads": 4, "no_own_rows": True},
        {"model": "hgt", "heads": 2, "head_layers": 1, "sampler": "hgt", "fanout": [20, 20]},
        {"model": "simple-hgn", "heads": 2, "out_heads": 2, "activation": "elu"},
        {"model": "simple-hgn", "heads": 2, "head_layers": 1, "layers": 3, "fanout": [3, 3, 3]},
    ],
    ids=str,
)
def test_outputs_agree_with_predict_on_every_node_and_come_back(library, tmp_path, options):
    import torch

    graphmill.train(library, out=tmp_path / "run", task="topic", **{**OPTIONS, **options})
    model = graphmill.load_model(tmp_path / "run")
    x, edges = graph_of(library)
    with torch.no_grad():
        ours = model(x, edges).softmax(1).numpy()
    theirs = graphmill.predict(tmp_path / "run", dataset=library, kind="probabilities")
    assert ours.shape == theirs.shape == (90, 3)
    assert np.abs(ours - theirs).max() < 1e-4

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    torch.nn.functional.cross_entropy(model(x, edges), torch.as_tensor(np.arange(90) % 3)).backward()
    optimizer.step()
    with torch.no_grad():
        expected = model.eval()(x, edges).softmax(1).numpy()
    assert graphmill.import_model(tmp_path / "run", model, tmp_path / "again") == str(tmp_path / "again")
    found = graphmill.predict(tmp_path / "again", dataset=library, kind="probabilities")
    assert np.abs(found - expected).max() < 1e-4 < np.abs(found - theirs).max()


def test_values_have_the_units_of_the_targets(library, tmp_path):
    import torch

    graphmill.train(library, out=tmp_path / "run", task="value", model="rsage", **OPTIONS)
    x, edges = graph_of(library)
    with torch.no_grad():
        ours = graphmill.load_model(tmp_path / "run")(x, edges).numpy()
    theirs = np.asarray(graphmill.predict(tmp_path / "run", dataset=library))
    assert ours.shape == theirs.shape == (90, 2)
    assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_runs_without_a_module_say_why(library, tmp_path):
    walks = {"model": "rsage", "sampler": "metapath-walk"}
    graphmill.train(library, out=tmp_path / "walks", task="topic", **{**OPTIONS, **walks})
    with pytest.raises(ValueError, match="sampler metapath-walk draws the neighbours of predictions"):
        graphmill.load_model(tmp_path / "walks")
    with pytest.raises(ValueError, match="model rsage is not one of"):
        graphmill.export_model(tmp_path / "walks", "onnx", tmp_path / "model.onnx")
