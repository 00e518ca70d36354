#!/usr/bin/env python3
"""Loads a service, and serves the same model by PyTorch Geometric behind FastAPI.

    graphmill serve RUN --listen 127.0.0.1:8080
    serve.py load http://127.0.0.1:8080 --nodes 1000000 --seed 1

    graphmill export-model RUN --to pyg MODEL
    serve.py pyg MODEL DATASET --fanout 15,10 --listen 127.0.0.1:8081
    serve.py load http://127.0.0.1:8081 --nodes 1000000 --seed 1

`load` asks from several connections for single nodes and for batches of 64, and prints requests a second, p50 and
p99 as JSON. It counts every answer but those of the warm-up, and any other status than 200 ends it. It needs no
package. `pyg` needs `pip install fastapi uvicorn` beside the packages of PyTorch Geometric.
"""

import argparse
import http.client
import json
import random
import threading
import time
import urllib.parse


def ask(options, size, seconds, index, results, start):
    """Asks for `size` nodes at a time on one connection; appends the times of the answers."""
    address = urllib.parse.urlsplit(options.address)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=60)
    draw = random.Random(index)
    headers = {"Content-Type": "application/json"}
    if options.token:
        headers["Authorization"] = f"Bearer {options.token}"
    times = []
    start.wait()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        question = {"ids": [draw.randrange(options.nodes) for _ in range(size)]}
        if options.seed is not None:
            question["seed"] = options.seed
        body = json.dumps(question)
        began = time.perf_counter()
        connection.request("POST", "/v1/predict", body, headers)
        reply = connection.getresponse()
        text = reply.read()
        times.append(time.perf_counter() - began)
        if reply.status != 200:
            results.append(f"status {reply.status}: {text.decode()}")
            return
    results.append(times)


def measure(options, size, seconds):
    """Times of all answers within `seconds`, and the time that passed."""
    results, start = [], threading.Event()
    arguments = [(options, size, seconds, i, results, start) for i in range(options.connections)]
    threads = [threading.Thread(target=ask, args=arguments) for arguments in arguments]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    start.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - began
    faults = [result for result in results if isinstance(result, str)]
    if faults or len(results) < len(threads):
        raise SystemExit(faults[0] if faults else "a connection failed")
    return sorted(x for times in results for x in times), took


def load(options):
    """Prints a line of JSON for each size of a request."""
    for size in options.sizes:
        measure(options, size, options.warm_up)
        times, took = measure(options, size, options.seconds)
        at = lambda share: 1e3 * times[min(int(share * len(times)), len(times) - 1)]
        figures = {"requests_per_second": len(times) / took, "p50_ms": at(0.5), "p99_ms": at(0.99)}
        print(json.dumps({"nodes": size, "connections": options.connections, "requests": len(times), **figures}))


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
    app = FastAPI()

    @app.post("/v1/predict")
    def predict(question: dict):
        ids = torch.tensor(question["ids"])
        loader = NeighborLoader(data, fanout, input_nodes=ids, batch_size=len(ids))
        with torch.inference_mode():
            batch = next(iter(loader))
            scores = model(batch.x, batch.edge_index)[: len(ids)].softmax(-1)
        return {"predictions": [{"id": i, "probabilities": s} for i, s in zip(ids.tolist(), scores.tolist())]}

    host, port = options.listen.rsplit(":", 1)
    uvicorn.run(app, host=host, port=int(port), log_level="warning")


parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
commands = parser.add_subparsers(dest="command", required=True)
of_load = commands.add_parser("load")
of_load.add_argument("address")
of_load.add_argument("--nodes", type=int, required=True, help="nodes of the graph")
of_load.add_argument("--seed", type=int, help="seed of drawn neighbours; without it, answers are exact")
of_load.add_argument("--sizes", type=int, nargs="+", default=[1, 64])
of_load.add_argument("--connections", type=int, default=8)
of_load.add_argument("--seconds", type=float, default=10)
of_load.add_argument("--warm-up", type=float, default=2)
of_load.add_argument("--token")
of_pyg = commands.add_parser("pyg")
of_pyg.add_argument("model")
of_pyg.add_argument("dataset")
of_pyg.add_argument("--fanout", default="15,10")
of_pyg.add_argument("--listen", default="127.0.0.1:8081")
options = parser.parse_args()
{"load": load, "pyg": pyg}[options.command](options)
