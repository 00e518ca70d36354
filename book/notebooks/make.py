#!/usr/bin/env python3
"""Writes the tutorials that contain Python as notebooks beside this file; with ``--check`` reports those that differ from their pages.

Markdown becomes Markdown cells, each Python block a code cell. Other blocks stay in the Markdown."""

import json
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: folder of the pages
PAGES = HERE.parent / "src/tutorials"
#: a Python block, with its code
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
#: target of a link to another page
LINK = re.compile(r"\]\((?!\w+:|#)([^)]*)\)")


def pages():
    """Tutorials with Python blocks, by name."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md"))}
    return {name: text for name, text in texts.items() if BLOCK.search(text)}


def relative(link):
    """Link from the notebook's folder in place of the page's."""
    path, hash_sign, anchor = link[1].partition("#")
    return f"]({os.path.relpath(PAGES / path, HERE)}{hash_sign}{anchor})"


def cell(kind, text, number):
    """Cell of a notebook."""
    lines = text.strip("\n").splitlines(keepends=True)
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, **code, "source": lines}


def notebook(text):
    """Notebook of a page, as JSON."""
    cells = []
    for at, part in enumerate(BLOCK.split(text)):
        is_code = at % 2 == 1
        if part.strip():
            cells.append(cell("code", part, len(cells)) if is_code else cell("markdown", LINK.sub(relative, part), len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def main():
    made = {HERE / f"{name}.ipynb": notebook(text) for name, text in pages().items()}
    if "--check" not in sys.argv:
        for path, text in made.items():
            path.write_text(text, encoding="utf-8")
        return None
    found = {path: path.read_text(encoding="utf-8") for path in HERE.glob("*.ipynb")}
    wrong = sorted(path.name for path in {*made, *found} if made.get(path) != found.get(path))
    return f"{', '.join(wrong)}: not as the tutorials are; run book/notebooks/make.py and remove notebooks without a page" if wrong else None


if __name__ == "__main__":
    sys.exit(main())
