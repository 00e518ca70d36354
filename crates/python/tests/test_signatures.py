"""Types of options: those of the option table, and mistakes that mypy finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphmill
from conftest import ROOT

GOOD = """
import numpy as np
import graphmill

options: graphmill.TrainOptions = {"model": "gcn", "fanout": [10, 5]}
run = graphmill.train(graphmill.Dataset.demo(), **options)
run = graphmill.train(graphmill.Dataset.demo(), epochs=2, lr=1, residual="none")
loss: float = run.history[0].loss
run = graphmill.train({"edge_index": [[0], [1]]}, fanout="10,5", host_budget="4G", out="run")
classes: np.ndarray = run.predict([1, 2], kind="classes")
graphmill.hotness(graphmill.Dataset.demo(), "presc:1", epochs=2)
small: graphmill.Dataset = graphmill.generate(nodes=10)
several: graphmill.TypedDataset = graphmill.generate("typed")
scores: np.ndarray = graphmill.recommend("run", [1], k=3).scores
"""
#: mistakes, and words of the message about each
BAD = [
    ('graphmill.train(data, modle="gcn")', 'Unexpected keyword argument "modle"'),
    ('graphmill.train(data, model="gnc")', "has incompatible type"),
    ('graphmill.train(data, residual="always")', "has incompatible type"),
    ('graphmill.train(data, epochs="many")', "has incompatible type"),
    ("graphmill.train(data, input_layer=3)", "has incompatible type"),
    ("graphmill.train(42)", "has incompatible type"),
    ('graphmill.hotness(data, model="gcn")', 'Unexpected keyword argument "model"'),
    ('graphmill.predict("run", kind="colours")', "has incompatible type"),
    ('graphmill.serve("run", max_node=3)', 'Unexpected keyword argument "max_node"'),
]


def test_the_types_are_those_of_the_option_table():
    script = ROOT / "crates/python/signatures.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_all_options_have_types():
    for of, kind in {"train": graphmill.TrainOptions, "reorder": graphmill.ReorderOptions}.items():
        assert set(graphmill.options(of)) == set(kind.__annotations__)
    known = graphmill.options()
    assert known["model"].choices[:2] == ["sage", "gcn"] and known["residual"].choices == ["none", "identity", "linear"]
    assert known["cache"].choices is None and known["task"].choices is None
    with pytest.raises(ValueError, match="of 'nothing'"):
        graphmill.options("nothing")


def test_mypy_finds_mistakes(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    lines = ["import graphmill", "data = graphmill.Dataset.demo()", *(line for line, _ in BAD)]
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text("\n".join(lines) + "\n")
    package = Path(graphmill.__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-error-summary", "good.py", "bad.py"]
    path = {} if package.name == "site-packages" else {"MYPYPATH": str(package)}
    done = subprocess.run(
        [*command, "--follow-imports=silent"], capture_output=True, text=True, timeout=300, cwd=tmp_path, env={**os.environ, **path}
    )
    found = done.stdout.splitlines()
    assert not [line for line in found if not line.startswith("bad.py:")], done.stdout + done.stderr
    for number, (line, message) in enumerate(BAD, 3):
        assert any(of.startswith(f"bad.py:{number}:") and message in of for of in found), (line, done.stdout)
