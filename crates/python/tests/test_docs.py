"""The code of the documentation runs: docstrings, Python blocks of pages, notebooks of tutorials, examples."""

import doctest
import importlib
import json
import os
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import graphmill
from conftest import HAS_PYG, ROOT

MODULES = [f"graphmill.{module.name}" for module in pkgutil.iter_modules(graphmill.__path__)]
#: the program under test, which cargo has built for other tests
PROGRAMS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "debug"
NEEDS_PYG = re.compile(r"^\s*(import torch|from torch)", re.MULTILINE)


@pytest.mark.parametrize("name", ["graphmill", *MODULES])
def test_docstrings(name):
    if name.endswith("_graphmill") or name.endswith(".sampler") and not HAS_PYG:
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


def run(code, where, given="", needs_pyg=False):
    """Runs a program in a directory with this standard input; returns what it prints."""
    if (needs_pyg or NEEDS_PYG.search(code)) and not HAS_PYG:
        pytest.skip("torch and torch_geometric are not installed")
    # threads of torch wait for each other, so that one is faster than two on a busy machine
    path = os.pathsep.join([str(PROGRAMS), os.environ["PATH"]])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=200, cwd=where, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_blocks(text):
    """Python blocks of a page, without interpreter sessions, which are doctests of the package."""
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block for block in blocks if not block.startswith(">>>")]


#: pages with Python blocks by path; tutorials run as notebooks
PAGES = {path.relative_to(ROOT).as_posix(): python_blocks(path.read_text(encoding="utf-8")) for path in [ROOT / "README.md", *sorted((ROOT / "book/src").rglob("*.md"))]}
NOTEBOOKS = sorted((ROOT / "book/notebooks").glob("*.ipynb"))
#: runs the cells of a notebook one after the other, Python in one namespace, as Jupyter does
RUN_CELLS = """
import json, subprocess, sys
names = {"__name__": "__main__"}
for number, cell in enumerate(json.loads(sys.stdin.read())):
    magic, _, commands = cell.partition("\\n")
    if magic.startswith("%%bash"):
        done = subprocess.run(["bash", "-e", "-c", commands], stdin=subprocess.DEVNULL)
        assert done.returncode == 0 or "--no-raise-error" in magic, f"cell {number}: {commands}"
    else:
        exec(compile(cell, f"cell {number}", "exec"), names)
"""


@pytest.mark.parametrize("name", [name for name, blocks in PAGES.items() if blocks and "/tutorials/" not in name])
def test_pages(name, tmp_path):
    # of a page all blocks, in order, are one program
    run("\n".join(PAGES[name]), tmp_path)


# a notebook without Python has the commands of its page alone, which the check of the book runs
@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if PAGES[f"book/src/tutorials/{path.stem}.md"]], ids=lambda path: path.stem)
def test_notebooks(path, tmp_path):
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    is_command = [source.startswith("%%bash") for source in sources]
    code = [source.strip() for source, command in zip(sources, is_command) if not command]
    assert code == [block.strip() for block in PAGES[f"book/src/tutorials/{path.stem}.md"]]
    if any(is_command) and not (PROGRAMS / "graphmill").exists():
        pytest.skip("the program graphmill is not built")
    if not HAS_PYG:
        # cells without torch do not depend on those with it
        sources = [source for source in sources if not NEEDS_PYG.search(source)]
    run(RUN_CELLS, tmp_path, given=json.dumps(sources), needs_pyg=not any(source.strip() for source in sources))


def test_the_notebooks_are_as_the_tutorials_are():
    done = subprocess.run([sys.executable, ROOT / "book/notebooks/make.py", "--check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [path.stem for path in NOTEBOOKS] == sorted(path.stem for path in (ROOT / "book/src/tutorials").glob("*.md"))


@pytest.mark.parametrize("gap", ["", "\n", "\n\n"])
def test_comments_belong_to_the_blocks_of_notebooks_across_blank_lines(gap):
    parts = runpy.run_path(str(ROOT / "book/notebooks/make.py"))["parts"]
    code = [text for kind, text in parts(f"<!-- not run: long -->\n{gap}```console\n$ sleep 1\n```\n<!-- fails -->\n{gap}```console\n$ false\n```\n") if kind == "code"]
    assert code == ["%%bash --no-raise-error\nfalse"]


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
