"""Progress: one line in terminals, rewritten in place, bars of tqdm in notebooks, and plain lines in log files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from typing import Any, Callable, Iterator, TextIO

from ._frameworks import find


#: Forms of the progress, and the environment variable that chooses one, also for the command line
FORMS = ("auto", "bar", "plain", "json", "none")
VARIABLE = "GRAPHMILL_PROGRESS"
#: Seconds between two plain lines
INTERVAL = 60.0
#: Control characters, without line ends and tabs
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def form_of(progress: bool | None, stream: TextIO) -> str:
    """Form of the progress: ``bar``, ``plain``, ``json`` or ``none``.

    ``True`` takes a form that the stream can show, ``False`` none, and ``None`` the environment's, by
    default a bar on a terminal or in a notebook.

    Raises:
        ValueError: The environment names an unknown form.
    """
    if progress is False:
        return "none"
    form = os.environ.get(VARIABLE) or "auto"
    if form not in FORMS:
        raise ValueError(f"{VARIABLE}={form}: no such form; set it to auto, bar, plain, json or none")
    has_bar = stream.isatty() or is_notebook()
    if progress is None and form == "none":
        return "none"
    if form in ("plain", "json"):
        return form
    return "bar" if has_bar else "plain" if progress else "none"


def is_notebook() -> bool:
    """Returns true in a notebook."""
    return "ipykernel" in sys.modules


@contextlib.contextmanager
def watch(progress: bool | None) -> Iterator[Callable[[str], None] | None]:
    """Yields a function that shows progress messages (JSON), or ``None`` to show nothing."""
    stream = sys.stderr
    form = form_of(progress, stream)
    if form == "none":
        yield None
        return
    line: Line | Bars | Lines
    if form == "bar":
        tqdm = find("tqdm.auto") if is_notebook() else None
        line = Line(stream) if tqdm is None else Bars(tqdm.tqdm)
    else:
        line = Lines(stream, is_json=form == "json")
    try:
        yield line
    finally:
        line.end()


def epoch_text(record: dict[str, Any], start: dict[str, Any]) -> str:
    """Result of an epoch in one line."""
    name = start.get("metric", "score")
    score = "" if record["valid_score"] is None else f"  valid {name} {record['valid_score']:.4f}"
    return f"epoch {record['epoch']}/{start.get('epochs', '?')}  loss {record['loss']:.4f}{score}  {record['seconds']:.1f} s"


def printable(text: str) -> str:
    """Text for a terminal: control characters are escapes, as the command line shows them.

    Names of files and types are part of some texts.
    """
    return CONTROLS.sub(lambda found: "\\r" if found[0] == "\r" else f"\\u{{{ord(found[0]):x}}}", text)


def event_of(message: dict[str, Any]) -> dict[str, Any]:
    """Event that ``graphmill train --progress json`` prints for a message."""
    kind = message["event"]
    if kind == "start":
        event = {name: value for name, value in message.items() if name not in ("from_epoch", "from_batch")}
        return {**event, "from": [message["from_epoch"], message["from_batch"]]}
    if kind == "stage":
        return {"event": kind, "message": message["what"]}
    if kind == "batch":
        return {**message, "epoch": message["epoch"] + 1}
    if kind == "evaluate":
        return {"event": kind, "rows": message["nodes"]}
    if kind == "epoch":
        return {**message["record"], "event": kind}
    if kind == "warning":
        return {"event": "note", "message": f"warning: {message['message']}"}
    return message


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
            self.tqdm.write(printable(event["message"]))
        elif kind == "start":
            self.start = event
            self.open(desc="train", total=event["epochs"], initial=event["from_epoch"], unit="epoch")
        elif kind == "stage":
            what, unit = printable(event["what"]), f" {event['unit']}"
            self.open(desc=what, total=event["total"], unit=unit, unit_scale=True)
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
        text = printable(text)
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


class Lines:
    """Prints progress messages as lines for log files: notes, stages, and about one epoch a minute.

    These are the first and the last epoch, those that end a minute or more after the last one printed,
    and once a minute the batches within a longer epoch.

    Args:
        stream: File to print to.
        is_json: Prints the events of all epochs as JSON, as the command line does.
    """

    def __init__(self, stream: TextIO, is_json: bool = False):
        self.stream, self.is_json = stream, is_json
        self.start: dict[str, Any] = {}
        #: Time of the last line of an epoch, and the line of the last epoch if it was not printed
        self.printed: float | None = None
        self.held_back: str | None = None
        #: Seconds of the epoch at which a line about its batches is due
        self.due = INTERVAL

    def __call__(self, message: str) -> None:
        event = json.loads(message)
        kind = event.pop("event")
        is_due = kind == "batch" and event["seconds"] >= self.due
        if is_due:
            self.due = event["seconds"] + INTERVAL
        if kind == "epoch":
            self.due = INTERVAL
        if self.is_json:
            if is_due or kind not in ("batch", "done"):
                self.print(json.dumps(event_of({"event": kind, **event})))
        elif kind == "note":
            self.print(event["message"])
        elif kind == "start":
            self.start = event
        elif kind == "stage":
            self.print(event["what"])
        elif is_due:
            self.flush()
            self.print(
                f"epoch {event['epoch'] + 1}/{self.start['epochs']}  loss {event['loss']:.4f}  "
                f"batch {event['batches']}/{self.start['batches']}  {event['seconds']:.0f} s"
            )
        elif kind == "evaluate" and self.due > INTERVAL:
            self.print(f"scoring {event['nodes']:,} nodes")
        elif kind == "epoch":
            self.held_back = epoch_text(event["record"], self.start)
            now = time.monotonic()
            if self.printed is None or now - self.printed >= INTERVAL:
                self.printed = now
                self.flush()

    def print(self, text: str) -> None:
        """Prints a line."""
        print(printable(text), file=self.stream, flush=True)

    def flush(self) -> None:
        """Prints the line of the last epoch if it was not printed."""
        if self.held_back is not None:
            self.print(self.held_back)
            self.held_back = None

    def end(self) -> None:
        """Prints the last epoch."""
        self.flush()


def bar(done: int, total: int, width: int = 20) -> str:
    """Progress bar of ``width`` characters."""
    full = width * done // max(total, 1)
    return "[" + "#" * full + "." * (width - full) + "]"


def share(done: int, total: int | None) -> str:
    """Percentage of the total, or the amount if the total is unknown."""
    return f"{done:,}" if not total else f"{100 * done / total:.0f} %"
