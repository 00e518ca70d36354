"""Models of runs as ONNX, run by onnxruntime on blocks."""

import json

import numpy as np
import pytest

import graphmill

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

OPTIONS = {"epochs": 2, "hidden": 16, "fanout": [5, 5], "seed": 1, "batch_size": 200}
MODELS = [
    {"model": "sage"},
    {"model": "sage", "norm": "layer", "residual": "linear", "activation": "elu"},
    {"model": "sage", "head_layers": 2, "input_layer": True, "norm": "batch", "residual": "identity"},
    {"model": "gcn", "norm": "l2"},
    {"model": "gcn", "norm": "batch", "residual": "linear"},
    {"model": "gat", "heads": 2, "out_heads": 3, "activation": "leaky-relu"},
    {"model": "gin", "norm": "batch"},
    {"model": "gin", "activation": "identity", "residual": "identity"},
    {"model": "sage", "aggregator": "max-pool", "norm": "layer"},
    {"model": "sage", "aggregator": "max-pool", "head_layers": 1, "residual": "linear", "epochs": 8, "lr": 0.01},
    {"model": "sage", "sage_combine": "concat", "hidden": 15, "norm": "l2"},
    {"model": "sage", "sage_combine": "concat", "head_layers": 2, "input_layer": True},
    {"model": "gatv2", "heads": 2, "out_heads": 3, "residual": "linear"},
    {"model": "gatv2", "heads": 4, "head_layers": 1, "activation": "elu", "norm": "layer"},
    {"model": "mixhop", "hops": 2, "hidden": 17, "norm": "batch", "fanout": [4, 3, 3, 2]},
    {"model": "mixhop", "hops": 3, "head_layers": 1, "layers": 1, "fanout": [4, 3, 2]},
    {"model": "pinsage", "norm": "batch", "activation": "leaky-relu"},
    {"model": "pinsage", "head_layers": 2, "residual": "identity", "input_layer": True},
]


def blocks_of(edge_index, seeds, layers):
    """All in-neighbours of the seeds, layer by layer: input nodes, and source and destination rows
    of the edges with the number of destinations, the bottom layer first."""
    nodes, made = np.asarray(seeds), []
    for _ in range(layers):
        edges = edge_index[:, np.isin(edge_index[1], nodes)]
        others = np.setdiff1d(edges[0], nodes)
        count, nodes = len(nodes), np.concatenate([nodes, np.random.default_rng(1).permutation(others)])
        row = {node: row for row, node in enumerate(nodes.tolist())}
        local = np.array([[row[node] for node in ends] for ends in edges.tolist()], dtype=np.int64).reshape(2, -1)
        made.append((edges, local, count, nodes[:count]))
    return nodes, made[::-1]


def feed(model, x, edge_index, seeds, layers):
    """Inputs of the model for the seeds."""
    nodes, made = blocks_of(edge_index, seeds, layers)
    degree = np.bincount(edge_index[1], minlength=len(x)) + 1.0
    inputs = {"x": x[nodes].astype(np.float32)}
    for layer, (edges, local, count, own) in enumerate(made):
        inputs[f"edge_index.{layer}"] = local
        inputs[f"num_dst.{layer}"] = np.array([count])
        inputs[f"edge_weight.{layer}"] = (1 / np.sqrt(degree[edges[0]] * degree[edges[1]])).astype(np.float32)
        inputs[f"self_weight.{layer}"] = (1 / degree[own]).astype(np.float32)
    read = {value.name for value in model.get_inputs()}
    return {name: value for name, value in inputs.items() if name in read}


def softmax(scores):
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_random_blocks_and_every_node_agree_with_predict(sbm, tmp_path, options):
    config = graphmill.train(sbm, out=tmp_path / "run", **{**OPTIONS, **options}).config
    blocks = config.layers * (config.hops if config.model == "mixhop" else 1)
    graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    model = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    x, edge_index = np.asarray(sbm.x, dtype=np.float32), np.asarray(sbm.edge_index, dtype=np.int64)
    theirs = graphmill.predict(tmp_path / "run", dataset=sbm, kind="probabilities")
    classes = graphmill.predict(tmp_path / "run", dataset=sbm)
    rng = np.random.default_rng(2)
    for seeds in [rng.choice(len(x), size, replace=False) for size in (1, 7, 40)] + [np.arange(len(x))]:
        (scores,) = model.run(None, feed(model, x, edge_index, seeds, blocks))
        ours = softmax(scores)
        assert np.abs(ours - theirs[seeds]).max() < 1e-4
    # of all nodes, those agree whose two best classes are not a rounding apart
    best = np.sort(theirs, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-3
    assert (ours.argmax(1) == classes)[clear].all() and clear.mean() > 0.9


@pytest.mark.parametrize("transform", ["none", "standard", "log", "quantile"])
def test_values_are_at_the_scale_of_the_targets(tmp_path, transform):
    rng = np.random.default_rng(3)
    size = rng.normal(size=200).round(3)
    values = np.stack([100.5 + 20 * size, np.sinh(3 * size)], axis=1)
    nodes = {"id": np.arange(200), "size": size, "value": values[:, 0], "other": values[:, 1]}
    edges = {"a": rng.integers(0, 200, 800), "b": rng.integers(0, 200, 800)}
    how = {"id": "id", "label": ["value", "other"], "task": "regression", "src": "a", "dst": "b"}
    data = graphmill.Dataset.from_tables(nodes, edges, **how)
    graphmill.train(data, out=tmp_path / "run", target_transform=transform, **OPTIONS)
    graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    model = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    x, edge_index = np.asarray(data.x, dtype=np.float32), np.asarray(data.edge_index, dtype=np.int64)
    (ours,) = model.run(None, feed(model, x, edge_index, np.arange(len(x)), layers=2))
    theirs = np.asarray(graphmill.predict(tmp_path / "run", dataset=data))
    assert ours.shape == theirs.shape == (200, 2)
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-2)
    if transform != "none":
        assert abs(theirs[:, 0].mean() - 100) < 30


def test_scores_of_several_columns_of_classes_lie_side_by_side(sectors, tmp_path):
    sectors.save(tmp_path / "data")
    graphmill.train(tmp_path / "data", out=tmp_path / "run", **OPTIONS)
    graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    model = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    described = json.loads(model.get_modelmeta().custom_metadata_map["model"])
    assert described["columns"] == [{"name": "sector", "classes": 3}, {"name": "region", "classes": 2}]
    x, edge_index = np.asarray(sectors.x, dtype=np.float32), np.asarray(sectors.edge_index, dtype=np.int64)
    (scores,) = model.run(None, feed(model, x, edge_index, np.arange(len(x)), layers=2))
    theirs = graphmill.predict(tmp_path / "run", kind="probabilities")
    for part in graphmill.Predictor(tmp_path / "run").class_slices.values():
        assert np.abs(softmax(scores[:, part]) - theirs[:, part]).max() < 1e-4


def test_what_a_block_cannot_carry_is_refused(sbm, tmp_path):
    graphmill.train(sbm, out=tmp_path / "run", **OPTIONS, model="sage")
    with pytest.raises(ValueError, match="ends in .onnx"):
        graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.bin")
    graphmill.train(sbm, out=tmp_path / "walks", **OPTIONS, model="pinsage", sampler="random-walk")
    with pytest.raises(ValueError, match="sampler random-walk weights the neighbours"):
        graphmill.export_model(tmp_path / "walks", "onnx", tmp_path / "walks.onnx")
