#!/usr/bin/env python3
"""Measures `graphmill serve` beside the same model in PyTorch Geometric behind FastAPI, in turns.

    load.py RUN DATASET --nodes V --graphmill target/release/graphmill --load target/release/graphmill-load
            --python VENV/bin/python --out load.json

RUN has weights that `graphmill export-model --to pyg` can write. Both services draw neighbours by
the run's fanout. Each size of a request (one node, 64 nodes) is measured in rounds: theirs, ours,
theirs, ... First a closed loop gives requests a second. Then an open loop asks both at the same
rate, half of theirs in that round, and gives p50 and p99 of the times from the moment at which a
request was due. The ratios are those of the medians over the rounds. Before, the classes of both
services are compared for 256 nodes. The services run one after the other, so that neither takes
cores from the other.
"""

import argparse
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

OURS, THEIRS = "graphmill", "pyg"
PORTS = {OURS: 18080, THEIRS: 18081}


def ask(port, ids, fields):
    """The most likely class of each node."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/v1/predict", json.dumps({"ids": ids} | fields), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    body = reply.read()
    if reply.status != 200:
        raise SystemExit(f"status {reply.status}: {body.decode()}")
    rows = [answer["probabilities"] for answer in json.loads(body)["predictions"]]
    rows = [list(row.values()) if isinstance(row, dict) else row for row in rows]
    return [row.index(max(row)) for row in rows]


class Service:
    """A service while it runs."""

    def __init__(self, name, command, log):
        self.port, self.fields = PORTS[name], {"seed": 1} if name == OURS else {}
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + 300
        while True:
            try:
                ask(self.port, [0], self.fields)
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise SystemExit(f"{name} does not answer; its messages are in {log.name}")
                time.sleep(0.2)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def load(options, service, size, seconds, rate=None):
    """Figures of a load."""
    command = [options.load, f"127.0.0.1:{service.port}", "--nodes", options.nodes, "--size", size]
    command += ["--connections", options.connections, "--seconds", seconds]
    command += ["--rate", rate] if rate else []
    command += ["--seed", service.fields["seed"]] if service.fields else []
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def measure(options, service, rates):
    """Throughput, and times at the rate of each size of a request, by default half of the throughput."""
    figures = {}
    for size in (1, 64):
        load(options, service, size, options.seconds / 4)
        closed = load(options, service, size, options.seconds)
        rate = rates.setdefault(size, closed["requests_per_second"] / 2)
        opened = load(options, service, size, options.seconds, rate)
        figures[size] = {
            "requests_per_second": closed["requests_per_second"],
            "rate": rate,
            "p50_ms": opened["p50_ms"],
            "p99_ms": opened["p99_ms"],
        }
    return figures


def commands(options, model):
    """Commands of both services."""
    listen = {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}
    peer = pathlib.Path(__file__).parent.parent / "peers" / "serve.py"
    ours = [options.graphmill, "serve", options.run, "--listen", listen[OURS]]
    theirs = [options.python, peer, model, options.dataset, "--fanout", options.fanout, "--listen", listen[THEIRS]]
    return {THEIRS: theirs, OURS: ours}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("dataset")
    parser.add_argument("--nodes", type=int, required=True, help="nodes of the graph")
    parser.add_argument("--graphmill", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--python", required=True, help="interpreter with PyTorch Geometric, fastapi and uvicorn")
    parser.add_argument("--fanout", default="15,10", help="of the run")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    rounds, classes = {OURS: [], THEIRS: []}, {}
    ids = random.Random(1).sample(range(options.nodes), 256)
    with tempfile.TemporaryDirectory() as temporary, open(f"{options.out}.log", "w") as log:
        model = pathlib.Path(temporary) / "model"
        subprocess.run([options.graphmill, "export-model", options.run, "--to", "pyg", model], check=True, stdout=log)
        for _ in range(options.rounds):
            rates = {}
            for name, command in commands(options, model).items():
                with Service(name, command, log) as service:
                    classes[name] = ask(service.port, ids, service.fields)
                    rounds[name].append(measure(options, service, rates))
    agree = sum(a == b for a, b in zip(*classes.values())) / len(ids)
    medians = {
        name: {
            size: {key: statistics.median(round[size][key] for round in of) for key in of[0][size]} for size in of[0]
        }
        for name, of in rounds.items()
    }
    ratios = {
        size: {
            "throughput": medians[OURS][size]["requests_per_second"] / medians[THEIRS][size]["requests_per_second"],
            "p99": medians[THEIRS][size]["p99_ms"] / medians[OURS][size]["p99_ms"],
        }
        for size in medians[OURS]
    }
    record = {"agreeing_classes": agree, "ratios": ratios, "medians": medians, "rounds": rounds}
    pathlib.Path(options.out).write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps({"agreeing_classes": agree, "ratios": ratios, "medians": medians}, indent=1))


main()
