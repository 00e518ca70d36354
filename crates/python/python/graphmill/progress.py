"""Progress: one line in terminals, rewritten in place, and bars of tqdm in notebooks."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, Callable, Iterator, TextIO

from ._frameworks import find


def is_shown(progress: bool | None, stream: TextIO) -> bool:
    """Returns ``progress``, or by default true on a terminal or in a notebook."""
    return bool(progress) if progress is not None else stream.isatty() or is_notebook()


def is_notebook() -> bool:
    """Returns true in a notebook."""
    return "ipykernel" in sys.modules


@contextlib.contextmanager
def watch(progress: bool | None) -> Iterator[Callable[[str], None] | None]:
    """Yields a function that shows progress messages (JSON), or ``None`` to show nothing."""
    stream = sys.stderr
    if not is_shown(progress, stream):
        yield None
        return
    tqdm = find("tqdm.auto") if is_notebook() else None
    line = Line(stream) if tqdm is None else Bars(tqdm.tqdm)
    try:
        yield line
    finally:
        line.end()


def epoch_text(record: dict[str, Any], start: dict[str, Any]) -> str:
    """Result of an epoch in one line."""
    name = start.get("metric", "score")
    score = "" if record["valid_score"] is None else f"  valid {name} {record['valid_score']:.4f}"
    return f"epoch {record['epoch']}/{start.get('epochs', '?')}  loss {record['loss']:.4f}{score}  {record['seconds']:.1f} s"


class Bars:
    """Shows progress messages as a bar of tqdm: the epochs of a run, or the amount of a stage of work.

    Args:
        tqdm: Class of the bars.
    """

    def __init__(self, tqdm: Any):
        self.tqdm, self.bar = tqdm, None
        self.start: dict[str, Any] = {}

    def __call__(self, message: str) -> None:
        event = json.loads(message)
        kind = event.pop("event")
        if kind == "note":
            self.tqdm.write(event["message"])
        elif kind == "start":
            self.start = event
            self.open(desc="train", total=event["epochs"], initial=event["from_epoch"], unit="epoch")
        elif kind == "stage":
            self.open(desc=event["what"], total=event["total"], unit=f" {event['unit']}", unit_scale=True)
        elif self.bar is None:
            return
        elif kind == "done":
            self.bar.update(event["amount"] - self.bar.n)
        elif kind == "evaluate":
            self.bar.set_postfix_str(f"scoring {event['nodes']:,} nodes")
        elif kind == "batch":
            done = f"batch {event['batches']}/{self.start['batches']}"
            self.bar.set_postfix_str(f"{done}, loss {event['loss']:.4f}")
        elif kind == "epoch":
            self.bar.set_postfix_str(epoch_text(event["record"], self.start).split("  ", 1)[1])
            self.bar.update(event["record"]["epoch"] - self.bar.n)

    def open(self, **how: Any) -> None:
        """Starts a bar in the place of the last one."""
        self.end()
        self.bar = self.tqdm(**how)

    def end(self) -> None:
        """Ends the bar, which stays."""
        if self.bar is not None:
            self.bar.close()
            self.bar = None


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
            self.print(epoch_text(event["record"], self.start))

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
