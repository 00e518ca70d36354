"""Models of runs in PyTorch Geometric."""

import numpy as np
import pytest
from conftest import HAS_PYG

import graphmill

pytestmark = pytest.mark.skipif(not HAS_PYG, reason="torch and torch_geometric are not installed")

OPTIONS = {"epochs": 2, "hidden": 16, "fanout": [5, 5], "seed": 1, "batch_size": 200}


@pytest.mark.parametrize(
    "options",
    [
        {"model": "sage"},
        {"model": "sage", "norm": "layer", "residual": "linear", "activation": "elu"},
        {"model": "sage", "head_layers": 2, "input_layer": True, "norm": "batch", "residual": "identity"},
        {"model": "gcn", "norm": "l2"},
        {"model": "gat", "heads": 2, "out_heads": 3, "activation": "leaky-relu"},
        {"model": "gin", "norm": "batch"},
        {"model": "gin", "activation": "identity"},
        {"model": "sage", "aggregator": "max-pool", "residual": "linear"},
        {"model": "sage", "sage_combine": "concat", "norm": "batch", "hidden": 15},
        {"model": "gatv2", "heads": 2, "out_heads": 3, "norm": "layer"},
        {"model": "mixhop", "hops": 3, "fanout": [5] * 6, "hidden": 18, "norm": "batch"},
        {"model": "pinsage", "activation": "elu", "residual": "identity", "norm": "layer"},
    ],
    ids=str,
)
def test_outputs_agree_with_predict_on_every_node(sbm, tmp_path, options):
    import torch

    graphmill.train(sbm, out=tmp_path / "run", **{**OPTIONS, **options})
    model = graphmill.load_model(tmp_path / "run")
    assert isinstance(model, torch.nn.Module) and not model.training
    x, edge_index = torch.as_tensor(np.asarray(sbm.x)), torch.as_tensor(np.asarray(sbm.edge_index), dtype=torch.int64)
    with torch.no_grad():
        ours = model(x, edge_index).softmax(1).numpy()
    theirs = graphmill.predict(tmp_path / "run", dataset=sbm, kind="probabilities")
    assert np.abs(ours - theirs).max() < 1e-4
    classes = graphmill.predict(tmp_path / "run", dataset=sbm)
    assert (ours.argmax(1) == classes).mean() > 0.999


def test_several_columns_of_classes_lie_side_by_side_and_come_back(sectors, tmp_path):
    import torch

    sectors.save(tmp_path / "data")
    graphmill.train(tmp_path / "data", out=tmp_path / "run", **OPTIONS)
    model = graphmill.load_model(tmp_path / "run")
    x, edge_index = torch.as_tensor(np.asarray(sectors.x)), torch.as_tensor(np.asarray(sectors.edge_index), dtype=torch.int64)
    with torch.no_grad():
        ours = model(x, edge_index)
    theirs = graphmill.predict(tmp_path / "run", kind="probabilities")
    assert [column["name"] for column in model.options["columns"]] == ["sector", "region"]
    for part in graphmill.Predictor(tmp_path / "run").class_slices.values():
        assert np.abs(ours[:, part].softmax(1).numpy() - theirs[:, part]).max() < 1e-4
    graphmill.import_model(tmp_path / "run", model, tmp_path / "again")
    assert np.array_equal(graphmill.predict(tmp_path / "again", kind="probabilities"), theirs)


@pytest.mark.parametrize("transform", ["none", "standard", "log", "quantile"])
def test_values_agree_with_predict_in_the_units_of_the_targets(tmp_path, transform):
    import torch

    rng = np.random.default_rng(3)
    size = rng.normal(size=200).round(3)
    nodes = {"id": np.arange(200), "size": size, "value": 100.5 + 20 * size, "other": np.sinh(3 * size)}
    edges = {"a": rng.integers(0, 200, 800), "b": rng.integers(0, 200, 800)}
    how = {"id": "id", "label": ["value", "other"], "task": "regression", "src": "a", "dst": "b"}
    data = graphmill.Dataset.from_tables(nodes, edges, **how)
    graphmill.train(data, out=tmp_path / "run", target_transform=transform, **OPTIONS)
    model = graphmill.load_model(tmp_path / "run")
    x, edge_index = torch.as_tensor(np.asarray(data.x)), torch.as_tensor(np.asarray(data.edge_index), dtype=torch.int64)
    with torch.no_grad():
        ours = model(x, edge_index).numpy()
    theirs = np.asarray(graphmill.predict(tmp_path / "run", dataset=data))
    assert ours.shape == theirs.shape == (200, 2)
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-2)
    assert graphmill.import_model(tmp_path / "run", model, tmp_path / "again") == str(tmp_path / "again")
    assert np.array_equal(graphmill.predict(tmp_path / "again", dataset=data), theirs)


def test_exports_are_not_replaced_silently(sbm, tmp_path):
    graphmill.train(sbm, out=tmp_path / "run", **OPTIONS)
    written = graphmill.export_model(tmp_path / "run", "pyg", tmp_path / "module")
    assert len(written.files) == 3 and written.values > 0
    with pytest.raises(FileExistsError, match="pass force=True"):
        graphmill.export_model(tmp_path / "run", "pyg", tmp_path / "module")
    with pytest.raises(ValueError, match="known: safetensors, pyg, onnx"):
        graphmill.export_model(tmp_path / "run", "tvm", tmp_path / "other")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "sage", "norm": "batch"},
        {"model": "gcn", "head_layers": 1},
        {"model": "gat", "heads": 2},
        {"model": "gatv2", "heads": 2},
        {"model": "gin", "norm": "batch"},
        {"model": "mixhop", "norm": "batch", "fanout": [5, 5, 5, 5]},
        {"model": "pinsage"},
    ],
    ids=str,
)
def test_a_module_that_was_trained_further_becomes_a_run(sbm, tmp_path, options):
    import torch

    graphmill.train(sbm, out=tmp_path / "run", **{**OPTIONS, **options})
    model = graphmill.load_model(tmp_path / "run")
    before = graphmill.predict(tmp_path / "run", dataset=sbm, kind="probabilities")
    x, edge_index = torch.as_tensor(np.asarray(sbm.x)), torch.as_tensor(np.asarray(sbm.edge_index), dtype=torch.int64)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edge_index), torch.as_tensor(sbm.y)).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        expected = model(x, edge_index).softmax(1).numpy()
    for out, given in [("module", model), ("state", model.state_dict())]:
        assert graphmill.import_model(tmp_path / "run", given, tmp_path / out) == str(tmp_path / out)
        found = graphmill.predict(tmp_path / out, dataset=sbm, kind="probabilities")
        assert np.abs(found - expected).max() < 1e-4 < np.abs(found - before).max()
    assert np.array_equal(graphmill.predict(tmp_path / "run", dataset=sbm, kind="probabilities"), before)
    again = graphmill.load_model(tmp_path / "module").state_dict()
    assert all(torch.equal(values, again[name]) for name, values in model.state_dict().items() if "num_batches" not in name)


def test_modules_of_other_shapes_are_refused(sbm, tmp_path):
    graphmill.train(sbm, out=tmp_path / "run", **OPTIONS)
    graphmill.train(sbm, out=tmp_path / "wide", **{**OPTIONS, "hidden": 24})
    with pytest.raises(ValueError, match="its parameters are not those of load_model"):
        graphmill.import_model(tmp_path / "run", graphmill.load_model(tmp_path / "wide"), tmp_path / "out")
    state = graphmill.load_model(tmp_path / "run").state_dict()
    with pytest.raises(ValueError, match="there is a run here already"):
        graphmill.import_model(tmp_path / "run", state, tmp_path / "wide")
    state["convs.0.lin_l.weight"].fill_(float("nan"))
    with pytest.raises((ValueError, RuntimeError), match="NaN"):
        graphmill.import_model(tmp_path / "run", state, tmp_path / "out")
    assert not (tmp_path / "out").exists()
