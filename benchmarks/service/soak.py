#!/usr/bin/env python3
"""Soaks a service: clients, kills, reloads and malformed requests; every answer is compared.

    soak.py target/release/graphmill --seconds 3600 --out soak.json

It makes a dataset from tables and two runs in a temporary directory, serves them in turn, and ends
with status 1 if an exact answer or one for new nodes differs from `graphmill predict` by a bit, a
drawn answer differs from the service's first answer under its seed, a request gets an undocumented
status, a connection breaks without a kill, or memory or file descriptors grow beyond their bounds.
Connections that send garbage may break. It needs no package. `--out` is renewed every 10 seconds.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

NODES, NEW, SEEDS = 2000, 20, 4
TYPE = {"Content-Type": "application/json"}


def bits(values):
    """Bits of 32-bit floats."""
    return struct.pack(f"<{len(values)}f", *values)


def rows_of(path):
    """Rows of a .npy file of 32-bit floats, as bytes."""
    data = path.read_bytes()
    header, start = data[10 : 10 + int.from_bytes(data[8:10], "little")], 10 + int.from_bytes(data[8:10], "little")
    shape = eval(header)["shape"]  # written by the program above
    return [data[start + i * shape[1] * 4 : start + (i + 1) * shape[1] * 4] for i in range(shape[0])]


class World:
    """Dataset, runs, and the answers that are expected of each run."""

    def __init__(self, program, directory):
        self.program, self.dir = program, directory
        draw = random.Random(1)
        total = NODES + NEW
        self.account = [
            {"id": f"acc-{i}", "country": "DE FR IT".split()[i // 3 % 3], "age": 20 + 15 * (i % 4) + draw.randrange(9)}
            for i in range(total)
        ]
        pairs = {(i, draw.randrange(total)) for i in range(total) for _ in range(8)}
        edges = sorted((s, d) for s, d in pairs if s != d)
        self.new_edges = [{"src": f"acc-{s}", "dst": f"acc-{d}"} for s, d in edges if max(s, d) >= NODES]
        self.table("known.csv", "id,country,age,segment", range(NODES))
        self.table("new.csv", "id,country,age,segment", range(NODES, total))
        for file, wanted in [("old-edges.csv", False), ("new-edges.csv", True)]:
            lines = [f"acc-{s},acc-{d}" for s, d in edges if (max(s, d) >= NODES) == wanted]
            (directory / file).write_text("src,dst\n" + "\n".join(lines) + "\n")
        self.run("import tables data --nodes known.csv --id id --label segment --edges old-edges.csv --src src --dst dst")
        self.exact, self.on, self.drawn = {}, {}, {}
        for name in "ab":
            self.run(f"train data --out {name} --seed {ord(name)} --epochs 2 --hidden 16 --fanout 4,4")
            self.run(f"predict {name} --probabilities --out exact.npy --force")
            self.run(f"predict {name} --on new.csv --edges new-edges.csv --probabilities --out on.npy --force")
            self.exact[name] = rows_of(directory / "exact.npy")
            self.on[name] = rows_of(directory / "on.npy")
        self.point("a")

    def table(self, file, header, numbers):
        rows = [self.account[i] for i in numbers]
        lines = [f"{r['id']},{r['country']},{r['age']},s{i % 4}" for i, r in zip(numbers, rows)]
        (self.dir / file).write_text("\n".join([header, *lines]) + "\n")

    def run(self, arguments):
        done = subprocess.run([self.program, *arguments.split()], cwd=self.dir, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"graphmill {arguments}: {done.stderr}")

    def point(self, name):
        """Lets the link that is served name a run, in one step."""
        (self.dir / "next").unlink(missing_ok=True)
        (self.dir / "next").symlink_to(name)
        (self.dir / "next").rename(self.dir / "current")


class Service:
    """The service and its restarts."""

    def __init__(self, world):
        self.world, self.port, self.epoch, self.process = world, None, 0, None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def start(self, cache):
        command = [self.world.program, "serve", "current", "--listen", f"127.0.0.1:{self.port}", "--threads", "1"]
        command += ["--max-body", "64K", "--cache-embeddings", cache]
        log = open(self.world.dir / "service.log", "a")
        self.process = subprocess.Popen(command, cwd=self.world.dir, stderr=log)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"the service ended: {(self.world.dir / 'service.log').read_text()}")
                time.sleep(0.05)
        raise SystemExit("the service does not listen after 60 s")

    def kill(self, cache):
        self.epoch += 1
        self.process.kill()
        self.process.wait()
        self.start(cache)
        self.epoch += 1

    def usage(self):
        """Resident bytes and open file descriptors."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(resident.split()[1]) * 1024, len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Soak:
    """Counts of a soak, and its faults."""

    def __init__(self, world, service, options):
        self.world, self.service, self.options = world, service, options
        self.counts, self.faults, self.lock = {}, [], threading.Lock()
        self.stopped = threading.Event()
        self.rss, self.fds = [], []

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + number

    def fault(self, what):
        with self.lock:
            self.faults.append(what)
        if len(self.faults) > 20:
            self.stopped.set()

    def guarded(self, work, draw):
        """Runs requests on connections that only a kill may break."""
        connection = None
        while not self.stopped.is_set():
            if connection is None or work == self.malformed:
                # a kill since then breaks the connection, also while this client sleeps
                epoch = self.service.epoch
                connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
            try:
                work(connection, draw)
            except (OSError, http.client.HTTPException) as error:
                connection = None
                if epoch == self.service.epoch and epoch % 2 == 0:
                    time.sleep(0.3)  # a kill may be counted a moment after the connection broke
                    if epoch == self.service.epoch:
                        self.fault(f"a connection broke without a kill: {error!r}")
                self.count("requests cut by kills")
                time.sleep(0.05)
            time.sleep(draw.random() * 2 * self.options.pause)

    def ask(self, connection, question):
        connection.request("POST", "/v1/predict", json.dumps(question), TYPE)
        reply = connection.getresponse()
        return reply.status, reply.read()

    def compare(self, connection, draw):
        """Asks for known or new nodes and compares the answer with that of one run."""
        kind = draw.choices(["exact", "drawn", "new"], [6, 6, 1])[0]
        seed, total = draw.randrange(SEEDS), len(self.world.exact["a"])
        nodes = [draw.randrange(total) for _ in range(draw.choice([1, 1, 3, 64]))]
        if kind == "new":
            rows = self.world.account[NODES:]
            question = {"new": {"rows": rows, "edges": self.world.new_edges}}
        elif draw.random() < 0.5:
            question = {"keys": [f"acc-{v}" for v in nodes]}
        else:
            question = {"ids": nodes}
        if kind == "drawn":
            question["seed"] = seed
        status, body = self.ask(connection, question)
        if status != 200:
            return self.fault(f"status {status} for {kind}: {body[:300]}")
        found = [bits(one["probabilities"]) for one in json.loads(body)["predictions"]]
        if kind == "drawn":
            expected = [[self.world.drawn[run, seed][v] for v in nodes] for run in "ab"]
        elif kind == "exact":
            expected = [[self.world.exact[run][v] for v in nodes] for run in "ab"]
        else:
            expected = [self.world.on[run] for run in "ab"]
        if found not in expected:
            self.fault(f"a wrong answer: {kind} {nodes[:5]} seed {seed}")
        self.count(f"{kind} answers compared")

    def malformed(self, _, draw):
        """Sends what no client should, on a connection of its own."""
        question = b'{"ids": [1, 2, 3]}'
        garbage = bytes(draw.randrange(256) for _ in range(draw.randrange(1, 400)))
        body, kind, allowed = draw.choice([
            (question[: draw.randrange(1, len(question))], "application/json", {400}),
            (garbage, "application/json", {400}),
            (garbage, "application/vnd.apache.arrow.stream", {415}),
            (b'{"ids": [99999999]}', "application/json", {422}),
            (b'{"new": {"rows": [{"id": 1}]}}', "application/json", {422}),
            (b'{"new": {"features": [[1, 2]], "edges": [[0, 1]]}}', "application/json", {422}),
            (b"[" * 60_000, "application/json", {400}),
            (b" " * 100_000, "application/json", {413}),
        ])
        if draw.random() < 0.2:
            with socket.create_connection(("127.0.0.1", self.service.port), 60) as plain:
                answer = b""
                try:
                    plain.sendall(garbage + b"\r\n\r\n")
                    plain.shutdown(socket.SHUT_WR)
                    answer = plain.recv(64)
                except OSError:
                    pass  # the service may end the connection at the first wrong byte
            if answer and b" 400 " not in answer and b" 4" not in answer[:16]:
                self.fault(f"garbage was answered with {answer[:64]}")
            return self.count("connections of garbage")
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
        try:
            connection.request("POST", "/v1/predict", body, {"Content-Type": kind})
            reply = connection.getresponse()
            if reply.status not in allowed:
                self.fault(f"status {reply.status} for {body[:60]}: {reply.read()[:200]}")
            reply.read()
        except (BrokenPipeError, ConnectionResetError):
            if allowed != {413}:  # a refused body may not be read to its end
                raise
        finally:
            connection.close()
        self.count("malformed requests refused")

    def disturb(self, draw):
        """Kills and reloads."""
        at = time.monotonic()
        next_kill = at + self.options.kill_every * (0.5 + draw.random())
        while not self.stopped.wait(self.options.reload_every * (0.5 + draw.random())):
            try:
                resident, descriptors = self.service.usage()
                self.rss.append(resident)
                self.fds.append(descriptors)
            except (OSError, StopIteration):
                pass
            if time.monotonic() > next_kill:
                self.world.point(draw.choice("ab"))
                self.service.kill(draw.choice(["none", "bottom"]))
                self.count("kills")
                next_kill = time.monotonic() + self.options.kill_every * (0.5 + draw.random())
                continue
            target = draw.choice(["a", "b", "a", "b", "data"])
            self.world.point(target)
            if draw.random() < 0.5:
                self.service.process.send_signal(signal.SIGHUP)
                self.count("reloads by SIGHUP")
                time.sleep(1)
            else:
                connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
                connection.request("POST", "/v1/reload", "{}", TYPE)
                status = connection.getresponse().status
                allowed = {422, 409} if target == "data" else {200, 409}
                if status not in allowed:
                    self.fault(f"status {status} for a reload of {target}")
                self.count("reloads by HTTP")
            if target == "data":  # the link names no run: the old one stays, and a kill needs a run
                self.world.point("a")

    def references(self):
        """Answers for seeds, from a service that nothing disturbs."""
        for run in "ab":
            self.world.point(run)
            self.service.start("none")
            connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=60)
            for seed in range(SEEDS):
                rows = []
                for first in range(0, NODES, 500):
                    status, body = self.ask(connection, {"ids": list(range(first, first + 500)), "seed": seed})
                    assert status == 200, body
                    rows += [bits(one["probabilities"]) for one in json.loads(body)["predictions"]]
                self.world.drawn[run, seed] = rows
            self.service.process.kill()
            self.service.process.wait()

    def record(self, began):
        """The outcome so far."""
        if len(self.rss) > 8:
            early = max(self.rss[: max(8, len(self.rss) // 4)])
            if max(self.rss) > 2 * early + (64 << 20):
                self.fault(f"memory grew from {early} to {max(self.rss)} bytes")
        if self.fds and max(self.fds) > 64 + 4 * self.options.clients:
            self.fault(f"{max(self.fds)} file descriptors are open")
        cpu = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        record = {
            "seconds": round(time.monotonic() - began, 1),
            "counts": self.counts,
            "faults": self.faults,
            "max_resident_mib": round(max(self.rss, default=0) / 2**20, 1),
            "max_descriptors": max(self.fds, default=0),
            "samples_of_usage": len(self.rss),
            "cpu_seconds_of_ended_processes": round(cpu, 1),
        }
        if self.options.out:
            pathlib.Path(self.options.out).write_text(json.dumps(record, indent=1) + "\n")
        return record

    def run(self):
        self.references()
        self.service.start("none")
        began, threads = time.monotonic(), []
        for c in range(self.options.clients):
            work = self.malformed if c == 0 else self.compare
            threads.append(threading.Thread(target=self.guarded, args=(work, random.Random(c))))
        threads.append(threading.Thread(target=self.disturb, args=(random.Random(99),)))
        for thread in threads:
            thread.start()
        while not self.stopped.is_set() and time.monotonic() < began + self.options.seconds:
            self.stopped.wait(min(10, max(0.1, began + self.options.seconds - time.monotonic())))
            self.record(began)
        self.stopped.set()
        for thread in threads:
            thread.join()
        self.service.process.send_signal(signal.SIGTERM)
        if self.service.process.wait(60) != 0:
            self.fault(f"the service ended with status {self.service.process.returncode} after SIGTERM")
        return self.record(began)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.01, help="mean seconds between requests of a client")
    parser.add_argument("--reload-every", type=float, default=8, help="mean seconds between reloads")
    parser.add_argument("--kill-every", type=float, default=60, help="mean seconds between kills")
    parser.add_argument("--out", help="file of the outcome, JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graphmill-soak-") as directory:
        world = World(os.path.abspath(options.program), pathlib.Path(directory))
        soak = Soak(world, Service(world), options)
        try:
            record = soak.run()
        finally:
            if soak.service.process and soak.service.process.poll() is None:
                soak.service.process.kill()
    print(json.dumps(record, indent=1))
    sys.exit(bool(record["faults"]))


if __name__ == "__main__":
    main()
