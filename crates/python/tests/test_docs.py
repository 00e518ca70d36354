"""Code in the documentation runs: docstrings, Python blocks of the tutorials, examples."""

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys

import pytest

import graphmill
from conftest import HAS_PYG, ROOT

MODULES = [f"graphmill.{module.name}" for module in pkgutil.iter_modules(graphmill.__path__)]
NEEDS_PYG = re.compile(r"^\s*(import torch|from torch)", re.MULTILINE)


@pytest.mark.parametrize("name", ["graphmill", *MODULES])
def test_docstrings(name):
    if name.endswith("_graphmill"):
        return
    module = importlib.import_module(name)
    assert module.__doc__
    assert doctest.testmod(module).failed == 0


def test_everything_public_is_documented():
    for name in graphmill.__all__:
        thing = getattr(graphmill, name)
        assert isinstance(thing, str) or thing.__doc__, name
        if isinstance(thing, type):
            for member, value in vars(thing).items():
                public = not member.startswith("_") and (callable(value) or isinstance(value, property))
                assert not public or value.__doc__, f"{name}.{member}"


def run(code, where):
    if NEEDS_PYG.search(code) and not HAS_PYG:
        pytest.skip("torch and torch_geometric are not installed")
    # threads of torch wait for each other, so that one is faster than two on a busy machine
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=where, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["python", "from-pyg", "from-dgl", "../../../README"])
def test_pages(name, tmp_path):
    text = (ROOT / f"book/src/tutorials/{name}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks
    # the blocks of a page form one program
    run("\n".join(blocks), tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples/python").glob("*.py")), ids=lambda path: path.stem)
def test_examples(path, tmp_path):
    out = run(path.read_text(), tmp_path)
    claim = re.search(r"accuracy of at least ([0-9.]+)", path.read_text())
    if claim:
        reached = float(re.findall(r"test accuracy ([0-9.]+)", out)[-1])
        assert reached >= float(claim[1].rstrip(".")), out


def test_the_reference_page_matches_the_docstrings():
    done = subprocess.run([sys.executable, ROOT / "crates/python/reference.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
