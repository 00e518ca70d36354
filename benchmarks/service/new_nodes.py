#!/usr/bin/env python3
"""Times requests with new nodes to two builds of `graphmill serve`, in turns.

    python3 benchmarks/service/new_nodes.py BEFORE AFTER

BEFORE and AFTER are programs with the service; BEFORE trains the runs, too. Both serve one run on a
generated graph at the same time, and one client asks them in turns: a new node with feature rows
and edges from known nodes, read exactly. Answers of both must be equal to the bit. It prints the
table of `book/src/results/peers.md`: median and 90th percentile of the times from request to
answer, for graphs of several sizes.
"""

import argparse
import http.client
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

PORTS = (18082, 18083)
GRAPH = "generate sbm {data} --nodes {nodes} --degree 20 --feature-dim 100 --classes 40 --seed 1"
TRAIN = "train {data} --out {run} --fanout 15,10 --epochs 1 --max-batches 50 --eval-nodes 1000 --seed 1"


class Service:
    """A service with a client that keeps its connection."""

    def __init__(self, program, port, run, log):
        command = [program, "serve", run, "--listen", f"127.0.0.1:{port}"]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.port, end = port, time.monotonic() + 300
        while True:
            try:
                self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                self.ask({"ids": [0]})
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.process.kill()
                    sys.exit(f"{program} does not answer; its messages are in {log.name}")
                time.sleep(0.2)

    def ask(self, question):
        """The bytes of the predictions, and the milliseconds from the request to them."""
        body, began = json.dumps(question), time.perf_counter()
        self.connection.request("POST", "/v1/predict", body, {"Content-Type": "application/json"})
        reply = self.connection.getresponse()
        answer = reply.read()
        took = 1000 * (time.perf_counter() - began)
        if reply.status != 200:
            sys.exit(f"status {reply.status}: {answer.decode()}")
        return answer, took

    def stop(self):
        self.process.terminate()
        self.process.wait()


def question(draw, nodes, edges):
    """A new node with this number of edges from known nodes."""
    row = [draw.uniform(-1, 1) for _ in range(100)]
    return {"new": {"features": [row], "edges": [[v, nodes] for v in draw.sample(range(nodes), edges)]}}


def measure(options, nodes, temporary, log):
    """Times by program."""
    data, run = temporary / f"data-{nodes}", temporary / f"run-{nodes}"
    for command in (GRAPH, TRAIN):
        words = command.format(data=data, run=run, nodes=nodes).split()
        subprocess.run([options.before, *words], check=True, stdout=log, stderr=log)
    programs = (options.before, options.after)
    services = [Service(program, port, run, log) for program, port in zip(programs, PORTS)]
    times, draw = ([], []), random.Random(1)
    for number in range(options.warm_up + options.requests):
        asked = question(draw, nodes, options.edges)
        answers = [service.ask(asked) for service in (services if number % 2 == 0 else services[::-1])]
        answers = answers if number % 2 == 0 else answers[::-1]
        if answers[0][0] != answers[1][0]:
            sys.exit("the answers differ")
        if number >= options.warm_up:
            for of, (_, took) in zip(times, answers):
                of.append(took)
    for service in services:
        service.stop()
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="program with the service")
    parser.add_argument("after", help="program with the service")
    parser.add_argument("--nodes", type=int, nargs="+", default=[100_000, 1_000_000], help="sizes of the graphs")
    parser.add_argument("--edges", type=int, default=20, help="edges of the new node")
    parser.add_argument("--requests", type=int, default=100, help="to each program")
    parser.add_argument("--warm-up", type=int, default=10, help="requests that do not count")
    options = parser.parse_args()
    print("| nodes | before, ms | 90th percentile | after, ms | 90th percentile | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as made, open(pathlib.Path(made) / "log", "w") as log:
        for nodes in options.nodes:
            times = measure(options, nodes, pathlib.Path(made), log)
            figures = [(statistics.median(of), sorted(of)[len(of) * 9 // 10]) for of in times]
            (old, old_p90), (new, new_p90) = figures
            cells = [f"{ms:.2f}" for ms in (old, old_p90, new, new_p90)]
            print(f"| {nodes} | {' | '.join(cells)} | {old / new:.1f} |", flush=True)


main()
