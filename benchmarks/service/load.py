#!/usr/bin/env python3
"""Measures `graphmill serve` beside the same model in PyTorch Geometric behind FastAPI, in turns.

    cargo xtask bench setup                       # once: the environment of PyTorch Geometric
    python3 benchmarks/service/load.py            # builds, generates, trains and measures
    python3 benchmarks/service/load.py --quick    # the same with tiny settings: a smoke test

It writes `benchmarks/record/service.json` (of `--quick` a temporary file) and prints the table of
`book/src/results/peers.md`. `--python` or `GRAPHMILL_PEERS_PYG` names another interpreter with
PyTorch Geometric, fastapi and uvicorn. `--run` and `--dataset` measure a run of your own, whose
weights `graphmill export-model --to pyg` can write.

Both services draw neighbours by the run's fanout. First a closed loop at theirs gives its capacity
for each size of a request (one node, 64 nodes). Then the rounds begin with either side in turn, and
measure for each size:

- requests a second, in a closed loop: a connection asks again after its answer;
- p50 and p99 of the times in an open loop at the same rate for both sides, half of the capacity of
  theirs. A time counts from the moment at which its request was due if the connection still waited
  for an answer then, and otherwise from the moment at which it is sent.

The figures are medians over the rounds. The services run one after the other, so that neither takes
cores from the other, and the classes that they predict are compared for 256 nodes.
"""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS, THEIRS = "graphmill", "pyg"
PORTS = {OURS: 18080, THEIRS: 18081}
SIZES = (1, 64)
#: graph (of `graphmill-kernels`) and training of the run that is measured by default, and of `--quick`
GRAPH = "w1 {data} --scale 20"
TRAIN = "train {data} --out {run} --fanout {fanout} --epochs 1 --max-batches 200 --eval-nodes 1000 --seed 1"
QUICK_GRAPH = "generate sbm {data} --nodes 2000 --degree 8 --feature-dim 8 --classes 4 --seed 1"
QUICK_TRAIN = "train {data} --out {run} --fanout {fanout} --epochs 1 --hidden 16 --seed 1"


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
                    self.process.kill()
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


def capacity(options, service):
    """Requests a second in a closed loop, by size of a request, after a warm-up."""
    rates = {}
    for size in SIZES:
        load(options, service, size, options.seconds / 4)
        rates[size] = load(options, service, size, options.seconds)["requests_per_second"]
    return rates


def measure(options, service, rates):
    """Throughput, and times at the rate of each size."""
    figures = {}
    for size, closed in capacity(options, service).items():
        opened = load(options, service, size, options.seconds, rates[size])
        figures[size] = {"requests_per_second": closed, "rate": rates[size], "p50_ms": opened["p50_ms"], "p99_ms": opened["p99_ms"]}
    return figures


def commands(options, model):
    """Commands of both services."""
    listen = {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}
    peer = ROOT / "benchmarks/peers/serve.py"
    ours = [options.graphmill, "serve", options.run, "--listen", listen[OURS]]
    theirs = [options.python, peer, model, options.dataset, "--fanout", options.fanout, "--listen", listen[THEIRS]]
    return {THEIRS: theirs, OURS: ours}


def compare(options, temporary, log):
    """Figures of all rounds, and the share of the nodes for which both sides predict the same class."""
    model, ids = temporary / "model", random.Random(1).sample(range(options.nodes), min(256, options.nodes))
    subprocess.run([options.graphmill, "export-model", options.run, "--to", "pyg", model], check=True, stdout=log)
    of = commands(options, model)
    with Service(THEIRS, of[THEIRS], log) as service:
        rates = {size: closed / 2 for size, closed in capacity(options, service).items()}
    rounds, classes = {OURS: [], THEIRS: []}, {}
    for number in range(options.rounds):
        for name in (THEIRS, OURS) if number % 2 == 0 else (OURS, THEIRS):
            with Service(name, of[name], log) as service:
                classes[name] = ask(service.port, ids, service.fields)
                rounds[name].append(measure(options, service, rates))
    agree = sum(a == b for a, b in zip(*classes.values())) / len(ids)
    return rounds, agree


def prepare(options, temporary, log):
    """Fills in the programs, the dataset and the run that were not given."""
    if options.graphmill is None or options.load is None:
        build = ["cargo", "build", "--release", "-p", "graphmill", "--features", "serve", "-p", "graphmill-benchmarks"]
        subprocess.run(build, cwd=ROOT, check=True)
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release"
        options.graphmill = options.graphmill or target / "graphmill"
        options.load = options.load or target / "graphmill-load"
    options.python = options.python or os.environ.get("GRAPHMILL_PEERS_PYG") or ROOT / "target/peers/pyg/bin/python"
    packages = "import torch_geometric, fastapi, uvicorn"
    if subprocess.run([options.python, "-c", packages], stdout=log, stderr=log).returncode != 0:
        raise SystemExit(f"{options.python}: '{packages}' fails; run cargo xtask bench setup, or pass --python")
    if options.run is None:
        where = {"data": temporary / "data", "run": temporary / "run", "fanout": options.fanout}
        for command in (QUICK_GRAPH, QUICK_TRAIN) if options.quick else (GRAPH, TRAIN):
            words = [str(where.get(word.strip("{}"), word)) for word in command.split()]
            program = options.graphmill.with_name("graphmill-kernels") if words[0] == "w1" else options.graphmill
            subprocess.run([program, *words], check=True, stdout=log, stderr=log)
        options.dataset, options.run = where["data"], where["run"]
    info = subprocess.run([options.graphmill, "info", options.dataset, "--json"], check=True, capture_output=True, text=True)
    options.nodes = json.loads(info.stdout)["nodes"]


def table(record):
    """Rows of the page of results, a median over the rounds in each cell."""
    lines = ["| nodes of a request | side | requests a second | rate | p50, ms | p99, ms |", "| --- | --- | --- | --- | --- | --- |"]
    for size in SIZES:
        for name in (OURS, THEIRS):
            of = record["medians"][name][size]
            lines.append(f"| {size} | {name} | {of['requests_per_second']:.0f} | {of['rate']:.0f} | {of['p50_ms']:.2f} | {of['p99_ms']:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="run to measure; one is trained by default")
    parser.add_argument("--dataset", help="dataset of --run")
    parser.add_argument("--graphmill", type=pathlib.Path, help="program with the service; built by default")
    parser.add_argument("--load", help="program graphmill-load; built by default")
    parser.add_argument("--python", help="interpreter with PyTorch Geometric, fastapi and uvicorn")
    parser.add_argument("--fanout", default="15,10", help="of the run")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4, help="an even number begins equally often with either side")
    parser.add_argument("--seconds", type=float, default=10, help="of a load")
    parser.add_argument("--quick", action="store_true", help="tiny settings, whose figures mean nothing")
    parser.add_argument("--out", help="record to write")
    options = parser.parse_args()
    if (options.run is None) != (options.dataset is None):
        raise SystemExit("--run and --dataset: pass both, or neither")
    if options.quick:
        options.rounds, options.seconds = 2, 0.5
    with tempfile.TemporaryDirectory() as made:
        temporary = pathlib.Path(made)
        out = options.out or (temporary / "service.json" if options.quick else ROOT / "benchmarks/record/service.json")
        with open(temporary / "log" if options.quick else f"{out}.log", "w") as log:
            prepare(options, temporary, log)
            rounds, agree = compare(options, temporary, log)
        medians = {
            name: {size: {key: statistics.median(round[size][key] for round in of) for key in of[0][size]} for size in SIZES}
            for name, of in rounds.items()
        }
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        record = {
            "commit": commit.stdout.strip(),
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
            "nodes": options.nodes,
            "fanout": options.fanout,
            "connections": options.connections,
            "seconds": options.seconds,
            "agreeing_classes": agree,
            "medians": medians,
            "rounds": rounds,
        }
        pathlib.Path(out).write_text(json.dumps(record, indent=1) + "\n")
        print(f"{record['commit']}, {record['machine']}; same class for {agree:.1%} of the nodes\n\n{table(record)}")


main()
