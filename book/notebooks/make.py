#!/usr/bin/env python3
"""Writes the tutorials as notebooks beside this file; with ``--check`` reports those that differ from their pages.

Markdown becomes Markdown cells, each Python block a code cell, and the commands of a console block
a cell of bash. Other blocks stay in the Markdown, and so do blocks that the book does not run."""

import json
import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: folder of the pages
PAGES = HERE.parent / "src/tutorials"
#: a Python or console block, with the comment above it, its language and its text. Blank lines may
#: lie between, as in the builder of the book
BLOCK = re.compile(r"^(?:<!-- ([^\n]*) -->\s*\n)?```(python|console)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
#: target of a link to another page
LINK = re.compile(r"\]\((?!\w+:|#)([^)]*)\)")


def pages():
    """Tutorials by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("*.md"))}


def commands(text):
    """Commands of a console block, without their output."""
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith(("$ ", "> ")))


def relative(link):
    """Link from the notebook's folder in place of the page's."""
    path, hash_sign, anchor = link[1].partition("#")
    return f"]({os.path.relpath(PAGES / path, HERE)}{hash_sign}{anchor})"


def cell(kind, text, number):
    """Cell of a notebook."""
    lines = text.strip("\n").splitlines(keepends=True)
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, **code, "source": lines}


def parts(text):
    """Markdown and code of a page in order, as kinds of cells and their texts."""
    start = 0
    for block in BLOCK.finditer(text):
        comment, language, code = block.groups(default="")
        if comment.startswith("not run"):
            continue
        yield "markdown", LINK.sub(relative, text[start : block.start()])
        # a command that fails on purpose does not end the notebook
        magic = "%%bash --no-raise-error\n" if comment == "fails" else "%%bash\n"
        yield "code", code if language == "python" else magic + commands(code)
        start = block.end()
    yield "markdown", LINK.sub(relative, text[start:])


def notebook(text):
    """Notebook of a page, as JSON."""
    whole = ((kind, part) for kind, part in parts(text) if part.strip())
    cells = [cell(kind, part, number) for number, (kind, part) in enumerate(whole)]
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
