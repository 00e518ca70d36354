"""Memory, threads, signals and forks of loaders."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import graphmill
from conftest import loader_of, make_data

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def native_threads():
    return len(os.listdir("/proc/self/task"))


@LINUX
def test_memory_is_flat_over_ten_thousand_batches():
    data = make_data(nodes=5000, edges=40_000)
    data.x = np.zeros((5000, 64), np.float32)

    def run(batches):
        done = 0
        while done < batches:
            for batch in loader_of(data, [5, 5], shuffle=True, batch_size=50, num_threads=2):
                done += 1
            assert batch.x.shape[1] == 64

    run(3000)  # until the pools have the most batches in flight
    before = resident()
    run(10_000)
    # leaking the smallest array of each batch (50 ids) would take 4 MB, its features 100 MB
    assert resident() - before < 3e6, f"{(resident() - before) / 1e6:.1f} MB more"


@LINUX
def test_threads_end_with_their_epoch(data):
    before = native_threads()
    options = {"num_threads": 4, "prefetch_factor": 1, "batch_size": 1}
    loader = loader_of(data, **options)
    list(loader)
    assert native_threads() == before
    iterator = iter(loader)
    next(iterator)
    assert native_threads() > before
    del iterator
    assert native_threads() == before
    iterator = iter(loader)
    next(iterator)
    loader.close()
    assert native_threads() == before and list(iterator) == []
    # dropped with its loader when an exception leaves the frame
    with pytest.raises(ZeroDivisionError):
        for _ in loader_of(data, **options):
            1 / 0
    del loader
    assert native_threads() == before


@LINUX
def test_many_iterators_at_once(data):
    before = native_threads()
    iterators = [iter(loader_of(data, num_threads=2, seed=seed)) for seed in range(20)]
    firsts = [next(iterator).n_id for iterator in iterators]
    del iterators
    assert len(firsts) == 20 and native_threads() == before


def test_python_threads_may_share_a_loader(data):
    loader = loader_of(data, num_threads=2)
    expected = [batch.n_id.tolist() for batch in loader]
    got = []

    def run():
        got.append([batch.n_id.tolist() for batch in loader])

    threads = [threading.Thread(target=run) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(got) == 4 and all(len(one) == len(expected) for one in got)


def in_process(code, **options):
    text = textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100, **options)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_processes_neither_hang_nor_crash():
    done = in_process("""
        import os, sys, numpy as np, graphmill
        ring = np.arange(1000)
        data = {"edge_index": np.stack([ring, (ring + 1) % 1000]), "x": np.zeros((1000, 8), np.float32)}
        loader = graphmill.NeighborLoader(data, [2, 2], batch_size=10, num_threads=3, output="numpy", seed=1)
        for _ in range(20):
            iterator = iter(loader)
            batch = next(iterator)
            child = os.fork()
            if child == 0:
                try:
                    next(iterator)
                    os._exit(3)
                except ValueError as error:
                    assert "forked" in str(error)
                del iterator, batch
                # a new iterator works in the child
                assert len(list(loader)) == 100
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            next(iterator)
        print("done")
    """)
    assert done.stdout == "done\n", done.stderr


def interrupt(code):
    """Runs code that prints "ready", then sends SIGINT; returns the exit status and the output."""
    # background jobs of a shell ignore the signal, and their children inherit that
    prologue = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    child = subprocess.Popen(
        [sys.executable, "-c", prologue + textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_an_epoch():
    # the batch takes many seconds: the consumer waits in Rust when the signal arrives, and must not
    # wait for the thread
    code, out, err = interrupt("""
        import numpy as np, graphmill, threading, time
        n = 3000
        rng = np.random.default_rng(0)
        data = {"edge_index": rng.integers(0, n, (2, 2_000_000)), "num_nodes": n}
        loader = graphmill.NeighborLoader(data, [-1, -1], batch_size=n, num_threads=1, output="numpy", disjoint=True, seed=0)
        print("ready", flush=True)
        try:
            for batch in loader:
                pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    assert (code, out) == (0, "interrupted\n"), err


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_ends_training_with_a_checkpoint(tmp_path):
    code, out, err = interrupt(f"""
        import graphmill
        data = graphmill.generate(nodes=20_000, seed=1)
        print("ready", flush=True)
        try:
            graphmill.train(data, epochs=10_000, hidden=32, out={str(tmp_path / "run")!r})
        except KeyboardInterrupt as error:
            print("interrupted:", error, flush=True)
    """)
    assert code == 0 and out.startswith("interrupted: interrupted in epoch "), (out, err)
    remedy = f"all of them saved; continue with the same call and resume=True, out={str(tmp_path / 'run')!r}"
    assert out.strip().endswith(remedy), (out, err)
    assert list((tmp_path / "run").glob("checkpoint*"))


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_without_a_directory_says_that_nothing_is_saved():
    code, out, err = interrupt("""
        import graphmill
        data = graphmill.generate(nodes=20_000, seed=1)
        print("ready", flush=True)
        try:
            graphmill.train(data, epochs=10_000, hidden=32)
        except KeyboardInterrupt as error:
            print("interrupted:", error, flush=True)
    """)
    assert code == 0 and "nothing is saved without out=" in out and "resume=True" not in out, (out, err)


def test_interrupts_of_a_callback_keep_their_message(sbm, tmp_path):
    def stop(record):
        raise KeyboardInterrupt("enough")

    with pytest.raises(KeyboardInterrupt, match="^enough; continue with the same call and resume=True"):
        graphmill.train(sbm, epochs=1000, hidden=8, fanout=[2, 2], out=tmp_path / "run", progress=False, callback=stop)


def test_rust_releases_the_interpreters_lock():
    """Another Python thread keeps counting while the consumer waits for a slow batch."""
    n = 1500
    data = {"edge_index": np.random.default_rng(0).integers(0, n, (2, 400_000)), "num_nodes": n}
    ticks, stop = [], threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.perf_counter()
    next(iter(loader_of(data, [-1, -1], batch_size=30, disjoint=True, num_threads=1)))
    seconds = time.perf_counter() - began
    stop.set()
    thread.join()
    gaps = np.diff([t for t in ticks if t >= began])
    assert seconds < 0.1 or gaps.max() < seconds / 2, (seconds, gaps.max())


def test_the_version_has_three_parts():
    assert graphmill.__version__.count(".") == 2
