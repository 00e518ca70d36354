"""Models of several types, and of edge features, as ONNX, run by onnxruntime on blocks."""

import json

import numpy as np
import pytest
from test_onnx import softmax

import graphmill

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

OPTIONS = {"epochs": 2, "hidden": 8, "fanout": [5, 5], "batch_size": 32, "seed": 1, "progress": False}
MODELS = [
    {"model": "rsage", "norm": "batch"},
    {"model": "rsage", "no_own_rows": True, "head_layers": 1, "activation": "elu"},
    {"model": "rsage", "fanout": "5,5;paper:cites:paper=5,0"},
    {"model": "rgcn", "norm": "layer"},
    {"model": "rgcn", "bases": 2},
    {"model": "rgcn", "bases": 1, "layers": 1, "fanout": [5]},
    {"model": "rgcn", "blocks": 2, "head_layers": 2, "norm": "l2"},
    {"model": "rgat", "heads": 2, "out_heads": 3},
    {"model": "rgat", "heads": 4, "no_own_rows": True, "layers": 3, "fanout": [3, 3, 3]},
    {"model": "hgt", "heads": 2, "head_layers": 1, "sampler": "hgt", "fanout": [20, 20]},
    {"model": "hgt", "heads": 4, "head_layers": 1, "norm": "layer", "fanout": "5,5;venue:holds:paper=0,5"},
    {"model": "simple-hgn", "heads": 2, "out_heads": 2, "activation": "elu"},
    {"model": "simple-hgn", "heads": 2, "head_layers": 1, "layers": 3, "fanout": [3, 3, 3]},
    {"model": "gine", "head_layers": 1, "norm": "batch"},
    {"model": "gine", "head_layers": 2, "fanout": "5,5;paper:cites:paper=5,0"},
    {"model": "gatv2-edge", "heads": 2, "out_heads": 3, "activation": "elu"},
    {"model": "gatv2-edge", "heads": 4, "head_layers": 1, "fanout": "5,5;author:writes:paper=0,5"},
    {"model": "sage-edge", "norm": "layer"},
    {"model": "edge-gated", "norm": "batch"},
    {"model": "edge-gated", "head_layers": 1, "layers": 3, "fanout": [3, 3, 3]},
]


def feed(model, data, seeds):
    """All in-neighbours of the seeds by the edge types that each layer reads, as inputs of the model."""
    options = json.loads(model.get_modelmeta().custom_metadata_map["model"])
    nodes, inputs = {kind["name"]: np.zeros(0, np.int64) for kind in options["node_types"]}, {}
    nodes[options["predicts"]] = np.asarray(seeds)
    for layer in reversed(range(options["layers"])):
        chosen, own = {}, nodes
        for kind, is_read in zip(options["edge_types"], options["followed"][layer]):
            edges = data.edges(kind)
            at = np.flatnonzero(np.isin(edges.edge_index[1], own[kind[2]]))
            if is_read:
                chosen[tuple(kind)] = edges.edge_index[:, at], None if edges.x is None else edges.x[at]
        nodes = {}
        for kind, rows in own.items():
            read = [ends[0] for of, (ends, _) in chosen.items() if of[0] == kind]
            others = np.setdiff1d(np.concatenate([*read, np.zeros(0, np.int64)]), rows)
            nodes[kind] = np.concatenate([rows, np.random.default_rng(1).permutation(others)]).astype(np.int64)
            inputs[f"num_dst.{layer}.{kind}"] = np.array([len(rows)])
        row = {kind: {node: row for row, node in enumerate(ids.tolist())} for kind, ids in nodes.items()}
        for kind, (ends, attr) in chosen.items():
            local = [[row[of][node] for node in ids] for of, ids in zip((kind[0], kind[2]), ends.tolist())]
            inputs[f"edge_index.{layer}.{':'.join(kind)}"] = np.array(local, dtype=np.int64).reshape(2, -1)
            inputs[f"edge_attr.{layer}.{':'.join(kind)}"] = attr
    for kind, ids in nodes.items():
        x = data.nodes(kind).x
        inputs[f"nodes.{kind}"], inputs[f"x.{kind}"] = ids, None if x is None else np.asarray(x)[ids]
    return {value.name: inputs[value.name] for value in model.get_inputs()}


def opened(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("options", MODELS, ids=str)
def test_random_blocks_and_every_node_agree_with_predict(library, tmp_path, options):
    graphmill.train(library, out=tmp_path / "run", task="topic", **{**OPTIONS, **options})
    graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    model = opened(tmp_path / "model.onnx")
    theirs = graphmill.predict(tmp_path / "run", dataset=library, kind="probabilities")
    rng = np.random.default_rng(2)
    for seeds in [rng.choice(90, size, replace=False) for size in (1, 7, 40)] + [np.arange(90)]:
        (scores,) = model.run(None, feed(model, library, seeds))
        assert scores.shape == (len(seeds), 3)
        assert np.abs(softmax(scores) - theirs[seeds]).max() < 1e-4


def test_inputs_are_those_that_the_scores_depend_on(library, tmp_path):
    graphmill.train(library, out=tmp_path / "run", task="topic", model="rsage", layers=1, **{**OPTIONS, "fanout": [5]})
    graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    names = {value.name for value in opened(tmp_path / "model.onnx").get_inputs()}
    relations = {f"edge_index.0.{name}" for name in ("author:writes:paper", "paper:cites:paper", "venue:holds:paper")}
    assert names == {"x.paper", "x.author", "nodes.venue", "num_dst.0.paper"} | relations


def test_values_are_at_the_scale_of_the_targets(library, tmp_path):
    graphmill.train(library, out=tmp_path / "run", task="value", model="rsage", **OPTIONS)
    graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "model.onnx")
    model = opened(tmp_path / "model.onnx")
    (ours,) = model.run(None, feed(model, library, np.arange(90)))
    theirs = np.asarray(graphmill.predict(tmp_path / "run", dataset=library))
    assert ours.shape == theirs.shape == (90, 2)
    assert np.allclose(ours, theirs, rtol=1e-4, atol=1e-3)


def test_blocks_without_edges_give_scores(library, tmp_path):
    for model in ("rsage", "rgat", "hgt", "simple-hgn", "gine", "gatv2-edge", "sage-edge", "edge-gated"):
        graphmill.train(library, out=tmp_path / model, task="topic", model=model, head_layers=1, layers=1, **{**OPTIONS, "fanout": [5]})
        graphmill.export_model(tmp_path / model, "onnx", tmp_path / "model.onnx", force=True)
        session = opened(tmp_path / "model.onnx")
        inputs = feed(session, library, [0, 4])
        # the features of other types have no rows, and the blocks no edges
        empty = {name: value if name in ("x.paper", "num_dst.0.paper") else value[..., :0] if name.startswith("edge_index") else value[:0] for name, value in inputs.items()}
        (scores,) = session.run(None, empty)
        assert scores.shape == (2, 3) and np.isfinite(scores).all()
