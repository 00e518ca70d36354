#!/usr/bin/env python3
"""Writes book/src/reference/python.md from the docstrings of the installed package.

With `--check` it compares them instead.
"""

import inspect
import re
import sys
from pathlib import Path

import graphmill
from graphmill import dgl, loader

PAGE = Path(__file__).parents[2] / "book/src/reference/python.md"
INTRODUCTION = """\
This page is for users of the Python package: it lists every class and function with its arguments.
The [tutorial](../tutorials/python.md) shows them at work. `python crates/python/reference.py`
generates the page from the docstrings."""
#: headings, and the classes and functions under each
PARTS = [
    ("Loaders", [graphmill.NeighborLoader, loader.Loader, graphmill.ShaDowKHopSampler, graphmill.graphsaint.GraphSAINTSampler,
                 graphmill.GraphSAINTNodeSampler, graphmill.GraphSAINTEdgeSampler, graphmill.GraphSAINTRandomWalkSampler,
                 graphmill.ClusterData, graphmill.ClusterLoader, graphmill.Data]),
    ("Datasets", [graphmill.Dataset, graphmill.generate, graphmill.import_dataset]),
    ("Runs", [graphmill.train, graphmill.evaluate, graphmill.predict, graphmill.hotness, graphmill.hotness_report,
              graphmill.partition, graphmill.partition_report, graphmill.options]),
    ("graphmill.dgl", [dgl.NeighborSampler, dgl.MultiLayerFullNeighborSampler, dgl.DataLoader, dgl.minibatches, dgl.Block, dgl.MiniBatch]),
]  # fmt: skip


def plain(text):
    """Converts a docstring to Markdown."""
    text = re.sub(r":(?:class|func|meth|mod):`~?(?:graphmill\.)?([^`]*)`", r"`\1`", inspect.cleandoc(text)).replace("``", "`")
    lines, block = [], False
    for line in text.splitlines():
        heading = re.fullmatch(r"(Args|Returns|Warns|Raises|Example):", line)
        if line.startswith("    >>> ") and not block:
            lines, block = [*lines, "```python"], True
        if block and not line.strip():
            lines, block = [*lines, "```"], False
        argument = re.fullmatch(r"    ([\w*][\w*, ]*): (.*)", line)
        if heading:
            lines += [f"**{heading[1]}**", ""]
        elif block:
            lines.append(line[4:])
        elif argument:
            lines.append(f"- `{argument[1]}`: {argument[2]}")
        else:
            lines.append(line[4:] if line.startswith("    ") and not line.startswith("        ") else line.replace("        ", "  "))
    return "\n".join([*lines, "```"] if block else lines)


def signature(thing):
    """Name and arguments of a function or class, without types."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return thing.__name__
    words = [str(p.replace(annotation=inspect.Parameter.empty)).replace("=<factory>", "") for p in parameters]
    kinds = [p.kind for p in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        words.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    return f"{thing.__name__}({', '.join(words)})"


def members(thing):
    """Public methods and properties of a class, with their docstrings."""
    for name, value in vars(thing).items():
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if name.startswith("_") or not getattr(function, "__doc__", None) or issubclass(thing, tuple) and name in ("count", "index"):
            continue
        if inspect.isfunction(function):
            yield f"**`.{signature(function).replace('(self, ', '(').replace('(self)', '()').replace('(cls, ', '(').replace('(cls)', '()')}`**", function.__doc__
        elif isinstance(value, property) or type(value).__name__ == "cached_property":
            yield f"**`.{name}`**", value.__doc__


def page():
    """The whole page."""
    lines = ["# Python: reference", "", INTRODUCTION, ""]
    for heading, things in PARTS:
        lines += [f"## {heading}", ""]
        for thing in things:
            lines += [f"### `{signature(thing)}`", "", plain(thing.__doc__), ""]
            if inspect.isclass(thing):
                for name, text in members(thing):
                    lines += [f"{name}: " + plain(text).replace("\n\n**", "\n\n**"), ""]
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(PAGE.read_text() != page() and "book/src/reference/python.md differs from the docstrings; run python crates/python/reference.py")
    PAGE.write_text(page())
