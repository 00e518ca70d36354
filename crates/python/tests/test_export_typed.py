"""Models of several types in PyTorch Geometric."""

import numpy as np
import pytest
from conftest import HAS_PYG

import graphmill

pytestmark = pytest.mark.skipif(not HAS_PYG, reason="torch and torch_geometric are not installed")

OPTIONS = {"epochs": 2, "hidden": 8, "fanout": [5, 5], "batch_size": 32, "seed": 1, "progress": False}


def graph_of(data):
    """Features, edges and features of edges of a dataset, as those of a ``HeteroData``."""
    import torch

    x = {kind: data.nodes(kind).x for kind in data.node_types}
    edges = {tuple(kind): data.edges(kind) for kind in data.edge_types}
    return (
        {kind: torch.as_tensor(np.asarray(rows)) for kind, rows in x.items() if rows is not None},
        {kind: torch.as_tensor(np.asarray(of.edge_index), dtype=torch.int64) for kind, of in edges.items()},
        {kind: torch.as_tensor(np.asarray(of.x)) for kind, of in edges.items() if of.x is not None},
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
        {"model": "gine", "head_layers": 1, "norm": "batch"},
        {"model": "gine", "head_layers": 2, "fanout": "5,5;paper:cites:paper=5,0"},
        {"model": "gatv2-edge", "heads": 2, "out_heads": 3, "activation": "elu"},
        {"model": "gatv2-edge", "heads": 4, "head_layers": 1},
        {"model": "sage-edge", "norm": "layer"},
        {"model": "sage-edge", "fanout": "5,5;author:writes:paper=0,5"},
        {"model": "edge-gated", "norm": "batch"},
        {"model": "edge-gated", "head_layers": 1, "layers": 3, "fanout": [3, 3, 3]},
    ],
    ids=str,
)
def test_outputs_agree_with_predict_on_every_node_and_come_back(library, tmp_path, options):
    import torch

    graphmill.train(library, out=tmp_path / "run", task="topic", **{**OPTIONS, **options})
    model = graphmill.load_model(tmp_path / "run")
    graph = graph_of(library)
    with torch.no_grad():
        ours = model(*graph).softmax(1).numpy()
    theirs = graphmill.predict(tmp_path / "run", dataset=library, kind="probabilities")
    assert ours.shape == theirs.shape == (90, 3)
    assert np.abs(ours - theirs).max() < 1e-4

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    torch.nn.functional.cross_entropy(model(*graph), torch.as_tensor(np.arange(90) % 3)).backward()
    optimizer.step()
    with torch.no_grad():
        expected = model.eval()(*graph).softmax(1).numpy()
    assert graphmill.import_model(tmp_path / "run", model, tmp_path / "again") == str(tmp_path / "again")
    found = graphmill.predict(tmp_path / "again", dataset=library, kind="probabilities")
    assert np.abs(found - expected).max() < 1e-4 < np.abs(found - theirs).max()


@pytest.mark.parametrize("model", ["gine", "gatv2-edge", "sage-edge", "edge-gated"])
def test_edge_features_of_one_type_are_read(tmp_path, model):
    import torch

    rng = np.random.default_rng(4)
    nodes = {"person": {"x": rng.normal(size=(60, 4)).astype(np.float32)}}
    # repeated edges, edges to themselves, and nodes without edges
    ends, x = rng.integers(0, 50, (2, 240)), rng.normal(size=(240, 2)).astype(np.float32)
    edges = {("person", "knows", "person"): {"edge_index": np.concatenate([ends, ends[:, :9] * 0 + ends[0, :9]], 1), "x": np.concatenate([x, x[:9]])}}
    tasks = {"kind": {"on": "person", "y": np.arange(60) % 3, "train": np.arange(40), "valid": np.arange(40, 60)}}
    graphmill.TypedDataset.from_arrays(nodes, edges, tasks, name="people").save(tmp_path / "people")
    people = graphmill.TypedDataset(tmp_path / "people")
    graphmill.train(tmp_path / "people", out=tmp_path / "run", model=model, head_layers=1, **OPTIONS)
    with torch.no_grad():
        ours = graphmill.load_model(tmp_path / "run")(*graph_of(people)).softmax(1).numpy()
    theirs = graphmill.predict(tmp_path / "run", kind="probabilities")
    assert np.abs(ours - theirs).max() < 1e-4


def test_values_have_the_units_of_the_targets(library, tmp_path):
    import torch

    graphmill.train(library, out=tmp_path / "run", task="value", model="rsage", **OPTIONS)
    with torch.no_grad():
        ours = graphmill.load_model(tmp_path / "run")(*graph_of(library)).numpy()
    theirs = np.asarray(graphmill.predict(tmp_path / "run", dataset=library))
    assert ours.shape == theirs.shape == (90, 2)
    assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_runs_without_a_module_say_why(library, tmp_path):
    walks = {"model": "rsage", "sampler": "metapath-walk"}
    graphmill.train(library, out=tmp_path / "walks", task="topic", **{**OPTIONS, **walks})
    with pytest.raises(ValueError, match="sampler metapath-walk draws the neighbours of predictions"):
        graphmill.load_model(tmp_path / "walks")
    with pytest.raises(ValueError, match="to onnx: sampler metapath-walk draws"):
        graphmill.export_model(tmp_path / "walks", "onnx", tmp_path / "model.onnx")
