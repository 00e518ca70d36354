"""Functions of commands: sweeps, public datasets, and the service."""

import http.server
import json
import os
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import graphmill
from conftest import ROOT

#: the program under test, which cargo has built for other tests
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug/graphmill"
OPTIONS = {"epochs": 3, "hidden": 8, "fanout": [3, 2], "batch_size": 128, "seed": 1}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    out = tmp_path_factory.mktemp("commands") / "data"
    return graphmill.generate(nodes=300, classes=4, dim=8, signal=0.5, seed=2, out=out)


def test_sweeps_try_all_values_and_resume(data, tmp_path):
    tried = {"lr": [0.001, 0.01], "norm": ["none", "layer"], "fanout": [[3, 2], [5, 2]]}
    options = {name: value for name, value in OPTIONS.items() if name != "fanout"}
    steps = []
    record = graphmill.sweep(data, tried, out=tmp_path / "s", min_epochs=1, sweep_eta=2, repeat=2, callback=steps.append, **options)
    assert len(record.trials) == 8 and record.rungs[-1] == 3
    best = record.trials[record.best - 1]
    assert best.is_finished and best.test is not None and "--lr" in record.command
    assert {(trial["values"]["lr"], trial["values"]["norm"]) for trial in record.trials} == {(a, b) for a in tried["lr"] for b in tried["norm"]}
    assert [step.event for step in steps[:8]] == ["trial"] * 8 and steps[-1].event == "seed"
    assert graphmill.predict(tmp_path / "s" / best.run).shape == (300,)
    # an exception in the callback ends a sweep, which resumes to the same record

    class Enough(Exception):
        pass

    def stop(step):
        raise Enough

    with pytest.raises(Enough):
        graphmill.sweep(data, tried, out=tmp_path / "t", min_epochs=1, sweep_eta=2, repeat=2, callback=stop, **options)
    again = graphmill.sweep(out=tmp_path / "t", resume=True)
    assert [trial.to_dict() for trial in again.trials] == [trial.to_dict() for trial in record.trials]
    assert json.loads((tmp_path / "t/sweep.json").read_text())["best"] == record.best


def test_the_report_of_a_sweep_is_rewritten(data, tmp_path):
    graphmill.sweep(data, {"lr": [0.001, 0.01]}, out=tmp_path / "s", min_epochs=3, **OPTIONS)
    page = tmp_path / "s/report.html"
    text = page.read_text()
    page.unlink()
    assert graphmill.report(tmp_path / "s") == str(page) and page.read_text() == text


def test_graphs_of_several_types_are_generated(tmp_path):
    made = graphmill.generate("typed", nodes=200, classes=4, dim=4, seed=3)
    assert isinstance(made, graphmill.TypedDataset) and made.path is None and len(made.node_types) == 4
    stored = graphmill.generate("typed", tmp_path / "shop", nodes=200, classes=4, dim=4, seed=3)
    assert stored.name == "shop" and stored.num_edges == made.num_edges
    other = graphmill.generate("igbh", tmp_path / "other", scale=7, dim=4, memory=1 << 26)
    assert other.node_types == ["paper", "author", "institute", "fos"] and len(other.edge_types) == 8
    with pytest.raises(ValueError, match="memory: .* pass out"):
        graphmill.generate("igbh", scale=7, memory=1 << 26)
    with pytest.raises(ValueError, match="already holds a dataset"):
        graphmill.generate("typed", tmp_path / "shop", nodes=200)
    report = graphmill.hotness_report(stored, fanout=[3, 2], batch_size=32, epochs=1, ratios=[0.5])
    rates = {row.policy: row.hit_rate for row in report.results}
    assert rates["optimal"] >= rates["random"] > 0 and report.types


def test_plans_take_a_profile_or_a_partition(data, tmp_path):
    options = {"fanout": [3, 2], "batch_size": 128, "hidden": 8}
    first = graphmill.plan(data, "v100x8", **options)
    again = graphmill.plan(hardware="v100x8", profile=first.profile)
    assert [one.to_dict() for one in again.strategies] == [one.to_dict() for one in first.strategies]
    (tmp_path / "profile.json").write_text(json.dumps(first.profile.to_dict()))
    assert graphmill.plan(hardware="v100x8", profile=tmp_path / "profile.json").recommended == first.recommended
    graphmill.partition_report(data, 2, methods=["hash"], out=tmp_path / "parts", batches=2, fanout=[3, 2], batch_size=128)
    machines = graphmill.plan(data, partition=tmp_path / "parts", network="125M,50us", **options)
    assert machines.machines == 2 and machines.method == "hash" and machines.strategies
    apart = graphmill.plan(data, partition=tmp_path / "parts", machines=3, graph_stores=1, **options)
    assert apart.machines == 3 and apart.stores.count == 1 and apart.strategies[0].trainers == 2
    for call, error, message in [
        (partial(graphmill.plan, data), TypeError, "either hardware"),
        (partial(graphmill.plan, data, "v100x8", network="1G,1us"), TypeError, "partition="),
        (partial(graphmill.plan, data, "v100x8", machines=2), TypeError, "partition="),
        (partial(graphmill.plan, data, partition=tmp_path / "parts", machines=3), ValueError, "3 ranks share 2 parts"),
        (partial(graphmill.plan, data, "v100x8", profile=first.profile), TypeError, "leave out dataset"),
        (partial(graphmill.plan, hardware="v100x8", profile=first.profile, hidden=8), ValueError, "hidden: profile already holds"),
        (partial(graphmill.plan, data, partition=tmp_path / "parts", network="fast"), ValueError, "network"),
        (partial(graphmill.plan, data, "v100x8", partition=tmp_path / "parts"), ValueError, "add devices='cuda:0'"),
        (partial(graphmill.plan, data, partition=tmp_path / "parts", cache="lru"), ValueError, "cache_ratio"),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_wrong_sweeps_are_refused(data, tmp_path):
    out = tmp_path / "s"
    memory = graphmill.generate(nodes=100, classes=2, dim=4)
    for call, error, message in [
        (partial(graphmill.sweep, data, out=out), TypeError, "needs values to try"),
        (partial(graphmill.sweep, data, {"lr": 0.1}, out=out), TypeError, "a list of values or a range"),
        (partial(graphmill.sweep, data, {"rate": [1, 2]}, out=out), ValueError, "no such option"),
        (partial(graphmill.sweep, data, {"lr": "0.1..0.5"}, out=out), ValueError, "trials"),
        (partial(graphmill.sweep, data, {"lr": [1, 2]}, out=out, lr=0.1), ValueError, "both set and tried"),
        (partial(graphmill.sweep, data, {"lr": [1, 2]}, out=out, sweep_eta=1), ValueError, "sweep_eta 1"),
        (partial(graphmill.sweep, {"edge_index": memory.edge_index, "x": memory.x}, {"lr": [1, 2]}, out=out), ValueError, r"call save\(path\)"),
        (partial(graphmill.sweep, data, out=out, resume=True), TypeError, "leave them out"),
        (partial(graphmill.sweep, out=out, resume=True), ValueError, "no sweep here"),
    ]:
        with pytest.raises(error, match=message):
            call()
    assert not out.exists()


def test_public_datasets_are_listed():
    known = {entry.name: entry for entry in graphmill.datasets()}
    assert known["cora"].nodes == 2708 and known["cora"].download_bytes > 0 and known["cora"].files[0].name
    with pytest.raises(ValueError, match="unknown dataset 'cpra', did you mean 'cora'"):
        graphmill.download("cpra")
    with pytest.raises(ValueError, match="must start with http"):
        graphmill.download("cora", mirror="ftp://there")


def test_downloads_come_from_a_mirror(tmp_path):
    entry = next(e for e in graphmill.datasets() if e.files and not any(f.name.endswith((".zip", ".gz", ".tgz", ".tar")) for f in e.files))
    served = tmp_path / "mirror" / entry.name
    served.mkdir(parents=True)
    for file in entry.files:
        (served / file.name).write_bytes(b"x" * 100)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "mirror")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        mirror = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(OSError, match="verify=False"):
            graphmill.download(entry.name, tmp_path / "checked", mirror=mirror)
        got = graphmill.download(entry.name, tmp_path / "raw", mirror=mirror, verify=False)
    finally:
        server.shutdown()
        server.server_close()
    assert got.directory == str(tmp_path / "raw") and [file.bytes for file in got.files] == [100] * len(entry.files)
    assert got.format == entry.format and Path(got.source).parent == tmp_path / "raw" and isinstance(got["options"], dict)


def test_words_of_imports_are_keywords():
    words = graphmill.catalogue.options_of_words(["--undirected", "--split", "random:1,2,3", "--largest-component"])
    assert words == {"undirected": True, "split": "random:1,2,3", "largest_component": True}


def ask(service, token=None, **question):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"{service.url}/v1/predict", json.dumps(question).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())["predictions"]


def has_service():
    """True if the program is built with the service."""
    return PROGRAM.exists() and b"/v1/predict" in PROGRAM.read_bytes() and b"openapi.json" in PROGRAM.read_bytes()


@pytest.mark.skipif(not has_service(), reason="the program graphmill is not built with the service")
def test_services_answer_as_predict_and_stop(data, tmp_path):
    run = graphmill.train(data, out=tmp_path / "run", **OPTIONS)
    expected = graphmill.predict(run, kind="probabilities")
    with graphmill.serve(run, program=PROGRAM, token="0123456789abcdef", max_nodes=10) as service:
        assert service.is_running and service.url.startswith("http://127.0.0.1:")
        answers = ask(service, token="0123456789abcdef", ids=[3, 5])
        np.testing.assert_array_equal(np.array([one["probabilities"] for one in answers], np.float32), expected[[3, 5]])
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(service, ids=[1])
        with pytest.raises(urllib.error.HTTPError, match="413"):
            ask(service, token="0123456789abcdef", ids=list(range(11)))
    assert not service.is_running and "stopped" in repr(service)
    service.stop()
    with pytest.raises(RuntimeError, match="max-nodes"):
        graphmill.serve(run, program=PROGRAM, max_nodes="many")


@pytest.mark.skipif(not has_service(), reason="the program graphmill is not built with the service")
def test_options_of_the_service_are_those_of_the_command():
    text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    flags = {flag.replace("-", "_") for flag in re.findall(r"^ +(?:-\w, )?--([a-z-]+)", text, re.MULTILINE)}
    assert flags - {"listen", "dataset", "help"} == set(graphmill.ServeOptions.__annotations__)


def test_services_need_a_run_and_the_program(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="serve\\(\\) has no option 'max_node'"):
        graphmill.serve(tmp_path, max_node=3)
    with pytest.raises(FileNotFoundError, match="no such run directory"):
        graphmill.serve(tmp_path / "nowhere", program=shutil.which("true"))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(FileNotFoundError, match="the program graphmill is not on the path"):
        graphmill.serve(tmp_path)


def test_typed_datasets_are_reordered_and_partitioned(tmp_path):
    shop = graphmill.generate("typed", tmp_path / "shop", nodes=400, classes=4, dim=4, seed=3)
    whole = tmp_path / "memory"
    for dataset, out in ((shop, tmp_path / "bfs"), (graphmill.generate("typed", nodes=400, classes=4, dim=4, seed=3), whole)):
        ordered = graphmill.reorder(dataset, out, by="bfs", progress=False)
        assert isinstance(ordered, graphmill.TypedDataset) and ordered.num_edges == shop.num_edges
        for kind in shop.node_types:
            old, new = shop.nodes(kind), ordered.nodes(kind)
            ids = new.original_ids
            assert sorted(ids.tolist()) == list(range(old.num_nodes)) and new.num_nodes == old.num_nodes
            if old.x is not None:
                assert (old.x[ids] == new.x).all()
    hot = graphmill.reorder(tmp_path / "shop", tmp_path / "hot", by="presc:1", fanout=[3, 2], task="area", progress=False)
    assert hot.num_edges == shop.num_edges
    with pytest.raises(ValueError, match="call save"):
        graphmill.reorder(graphmill.generate("typed", nodes=200), tmp_path / "no", by="presc:1", progress=False)
    with pytest.raises(ValueError, match="unknown task 'price'"):
        graphmill.reorder(shop, tmp_path / "no", by="presc:1", task="price", progress=False)

    parts = graphmill.partition(shop, 3, method="bgl")
    assert list(parts) == list(shop.node_types)
    assert all(parts[kind].shape == (shop.nodes(kind).num_nodes,) and parts[kind].max() < 3 for kind in parts)
    report = graphmill.partition_report(shop, 3, methods=["bgl"], out=tmp_path / "parts", fanout=[3, 2], task="area")
    cut, edges = 0, 0
    for of in shop.edge_types:
        source, destination = shop.edges(of).edge_index
        cut += (parts[of[0]][source] != parts[of[2]][destination]).sum()
        edges += len(source)
    assert report.results[0].edge_cut == pytest.approx(cut / edges)
    assert len(report.results[0].node_types) == len(shop.node_types) and (tmp_path / "parts").is_dir()
    with pytest.raises(ValueError, match="unknown task 'price'"):
        graphmill.partition(shop, 3, task="price")
    with pytest.raises(ValueError, match="one type and one task"):
        graphmill.partition(None, 3, task="price")
