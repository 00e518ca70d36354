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
    ],
    ids=str,
)
def test_outputs_agree_with_predict_on_every_node(sbm, tmp_path, options):
    import torch

    graphmill.train(sbm, out=tmp_path / "run", **OPTIONS, **options)
    model = graphmill.load_model(tmp_path / "run")
    assert isinstance(model, torch.nn.Module) and not model.training
    x, edge_index = torch.as_tensor(np.asarray(sbm.x)), torch.as_tensor(np.asarray(sbm.edge_index), dtype=torch.int64)
    with torch.no_grad():
        ours = model(x, edge_index).softmax(1).numpy()
    theirs = graphmill.predict(tmp_path / "run", dataset=sbm, kind="probabilities")
    assert np.abs(ours - theirs).max() < 1e-4
    classes = graphmill.predict(tmp_path / "run", dataset=sbm)
    assert (ours.argmax(1) == classes).mean() > 0.999


def test_exports_are_not_replaced_silently(sbm, tmp_path):
    graphmill.train(sbm, out=tmp_path / "run", **OPTIONS)
    written = graphmill.export_model(tmp_path / "run", "pyg", tmp_path / "module")
    assert len(written.files) == 3 and written.values > 0
    with pytest.raises(FileExistsError, match="pass force=True"):
        graphmill.export_model(tmp_path / "run", "pyg", tmp_path / "module")
    with pytest.raises(ValueError, match="known: safetensors, pyg, onnx"):
        graphmill.export_model(tmp_path / "run", "tvm", tmp_path / "other")
