#!/usr/bin/env python3
"""Serves a model of `graphmill export-model` by PyTorch Geometric behind FastAPI.

    graphmill export-model RUN --to pyg MODEL
    serve.py MODEL DATASET --fanout 15,10 --listen 127.0.0.1:8081

It answers `POST /v1/predict` with the probabilities of the nodes in `ids`, from neighbours that
PyTorch Geometric's loader draws. `benchmarks/service/load.py` measures it beside `graphmill serve`.
`cargo xtask bench setup` installs what it needs.
"""

import argparse


def pyg(options):
    """Serves an exported model with PyTorch Geometric's sampler."""
    import importlib.util

    import torch
    import uvicorn
    from common import features, pyg_data, pyg_sampler
    from fastapi import FastAPI
    from torch_geometric.loader import NeighborLoader

    spec = importlib.util.spec_from_file_location("model", f"{options.model}/model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.load().eval()
    pyg_sampler()
    data = pyg_data(options.dataset)
    data.x = features(options.dataset)
    fanout = [int(count) for count in options.fanout.split(",")]
    # made once: a loader sorts all edges when it is made
    loader = NeighborLoader(data, fanout, input_nodes=None, batch_size=64)
    app = FastAPI()

    @app.post("/v1/predict")
    def predict(question: dict):
        ids = torch.tensor(question["ids"])
        with torch.inference_mode():
            batch = loader(ids)
            scores = model(batch.x, batch.edge_index)[: len(ids)].softmax(-1)
        return {"predictions": [{"id": i, "probabilities": s} for i, s in zip(ids.tolist(), scores.tolist())]}

    host, port = options.listen.rsplit(":", 1)
    uvicorn.run(app, host=host, port=int(port), log_level="warning")


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("model")
parser.add_argument("dataset")
parser.add_argument("--fanout", default="15,10")
parser.add_argument("--listen", default="127.0.0.1:8081")
pyg(parser.parse_args())
