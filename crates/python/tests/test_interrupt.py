"""Ctrl-C while Rust works: KeyboardInterrupt follows soon, and nothing is left half-written."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import graphmill

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT to a process")

#: Seconds within which an interrupted call ends. The calls below take several times as long.
SOON = 10


def interrupt(code, where, ready="started"):
    """Runs ``code`` in a new process and sends SIGINT half a second after it prints ``ready``.

    Asserts that the process then ends soon, with KeyboardInterrupt.
    """
    # background jobs of a shell ignore the signal, and their children inherit that
    prologue = f"""
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import numpy as np
    import graphmill

    def interrupted(work):
        print({ready!r}, flush=True)
        try:
            work()
        except KeyboardInterrupt:
            print("KeyboardInterrupt", flush=True)
        else:
            print("finished", flush=True)
    """
    text = textwrap.dedent(prologue) + textwrap.dedent(code)
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=where)
    try:
        assert process.stdout.readline().strip() == ready, process.stderr.read()
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        began = time.perf_counter()
        output, errors = process.communicate(timeout=100)
        seconds = time.perf_counter() - began
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert output.strip() == "KeyboardInterrupt", output
    assert seconds < SOON, seconds


@pytest.mark.parametrize("out", ["", "'it', memory=1 << 26, "], ids=["memory", "directory"])
def test_generate(tmp_path, out):
    # seconds of work, and less than a gigabyte of disk space
    interrupt(f"interrupted(lambda: graphmill.generate('kronecker', {out}scale=20, degree=64, dim=4, progress=False))", tmp_path)
    assert os.listdir(tmp_path) == []


def test_an_interrupted_replacement_keeps_the_old_dataset(tmp_path):
    made = graphmill.generate(out=tmp_path / "it", nodes=100, dim=2, seed=1, progress=False)
    before = made.x.copy()
    interrupt("interrupted(lambda: graphmill.generate('kronecker', 'it', replace=True, scale=20, degree=64, dim=4))", tmp_path)
    assert os.listdir(tmp_path) == ["it"]
    assert (graphmill.Dataset(tmp_path / "it", verify=True).x == before).all()


def test_import_dataset(tmp_path):
    # a hundred million edges in a sparse file
    code = """
    np.lib.format.open_memmap("edges.npy", "w+", np.int32, (100_000_000, 2))
    interrupted(lambda: graphmill.import_dataset("edges", "edges.npy", "out", memory=1 << 26, progress=False))
    """
    interrupt(code, tmp_path)
    assert os.listdir(tmp_path) == ["edges.npy"]


@pytest.mark.parametrize(
    "work",
    [
        "graphmill.hotness(data, 'presc:1000', fanout=[15, 10, 5])",
        "graphmill.hotness_report(data, policies=['optimal'], epochs=100000)",
        "graphmill.partition_report(data, 4, methods=['hash'] * 100000)",
        "graphmill.train(data, epochs=100000, hidden=16)",
        "graphmill.sweep(path, {'lr': [0.01, 0.1]}, out='sweep', cache='presc:1000', cache_ratio=0.1, devices='virtual:1', batch_size=8)",
        "graphmill.GraphSAINTNodeSampler(data, 500, sample_coverage=1_000_000, output='numpy')",
        "list(graphmill.NeighborLoader(path, [5], output='numpy', cache_ratio=0.1, cache='presc:1000'))",
    ],
    ids=["hotness", "hotness_report", "partition_report", "train", "sweep", "coverage", "tiers"],
)
def test_computations(tmp_path, work):
    code = f"""
    data = graphmill.Dataset.demo()
    data.save("demo")
    path = graphmill.Dataset("demo")
    interrupted(lambda: {work})
    """
    interrupt(code, tmp_path)


def test_evaluate_and_predict(tmp_path):
    code = """
    data = graphmill.generate("kronecker", scale=19, degree=32, dim=64, classes=8)
    graphmill.train(graphmill.generate(nodes=1000, classes=8, dim=64), out="run", epochs=1, model="gat", hidden=64, heads=8, fanout=[2, 2, 2], eval_chunk=256)
    interrupted(lambda: WORK)
    """
    interrupt(code.replace("WORK", "graphmill.predict('run', dataset=data)"), tmp_path)
    os.rename(tmp_path / "run", tmp_path / "first")
    interrupt(code.replace("WORK", "graphmill.evaluate('run', data)"), tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["first", "run"]
