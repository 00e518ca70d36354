"""Tables in notebooks."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable


def table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """HTML of a table with a name and a value per row; all texts are escaped."""
    cells = "".join(
        f"<tr><th style='text-align: left'>{escape(name)}</th><td style='text-align: left'>{escape(str(value))}</td></tr>"
        for name, value in rows
        if value is not None
    )
    return f"<table><caption style='text-align: left'><b>{escape(title)}</b></caption>{cells}</table>"
