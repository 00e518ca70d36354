"""Progress in terminals and notebooks: one line, rewritten in place."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, Callable, Iterator, TextIO


def is_shown(progress: bool | None, stream: TextIO) -> bool:
    """Returns ``progress``, or by default true on a terminal or in a notebook."""
    return bool(progress) if progress is not None else stream.isatty() or "ipykernel" in sys.modules


@contextlib.contextmanager
def watch(progress: bool | None) -> Iterator[Callable[[str], None] | None]:
    """Yields a function that shows progress messages (JSON), or ``None`` to show nothing."""
    stream = sys.stderr
    if not is_shown(progress, stream):
        yield None
        return
    line = Line(stream)
    try:
        yield line
    finally:
        line.end()


class Line:
    """Shows progress messages in one line, rewritten in place."""

    def __init__(self, stream: TextIO):
        self.stream, self.width = stream, 0
        self.start: dict[str, Any] = {}
        self.stage: dict[str, Any] = {}

    def __call__(self, message: str) -> None:
        event = json.loads(message)
        kind = event.pop("event")
        if kind == "note":
            self.print(event["message"])
        elif kind == "start":
            self.start = event
        elif kind == "stage":
            self.stage = event
            self.write(event["what"])
        elif kind == "done":
            self.write(f"{self.stage.get('what', '')} {share(event['amount'], self.stage.get('total'))}")
        elif kind == "evaluate":
            self.write(f"scoring {event['nodes']:,} nodes")
        elif kind == "batch":
            start, rate = self.start, event["seeds"] / max(event["seconds"], 1e-9)
            self.write(
                f"epoch {event['epoch'] + 1}/{start['epochs']}  {bar(event['batches'], start['batches'])} "
                f"{event['batches']}/{start['batches']}  loss {event['loss']:.4f}  {rate:,.0f} seeds/s"
            )
        elif kind == "epoch":
            record, name = event["record"], self.start.get("metric", "score")
            score = "" if record["valid_score"] is None else f"  valid {name} {record['valid_score']:.4f}"
            epochs = self.start.get("epochs", "?")
            self.print(f"epoch {record['epoch']}/{epochs}  loss {record['loss']:.4f}{score}  {record['seconds']:.1f} s")

    def write(self, text: str) -> None:
        """Replaces the text of the line."""
        print("\r" + text.ljust(self.width), end="", file=self.stream, flush=True)
        self.width = len(text)

    def print(self, text: str) -> None:
        """Prints a text that stays, and starts a new line."""
        self.write(text)
        print(file=self.stream, flush=True)
        self.width = 0

    def end(self) -> None:
        """Clears the line."""
        if self.width:
            self.write("")
            print("\r", end="", file=self.stream, flush=True)
            self.width = 0


def bar(done: int, total: int, width: int = 20) -> str:
    """Progress bar of ``width`` characters."""
    full = width * done // max(total, 1)
    return "[" + "#" * full + "." * (width - full) + "]"


def share(done: int, total: int | None) -> str:
    """Percentage of the total, or the amount if the total is unknown."""
    return f"{done:,}" if not total else f"{100 * done / total:.0f} %"
