"""Sweeps over values of options, by successive halving."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Mapping

from . import _graphmill
from ._frameworks import options_of
from .dataset import Dataset
from .given import DatasetLike, in_directory, native_of
from .progress import watch
from .record import Record, record_of
from .typed import TypedDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .option_types import TrainOptions


def sweep(
    dataset: DatasetLike | None = None,
    tried: Mapping[str, Any] | None = None,
    *,
    out: str | os.PathLike[str],
    trials: int | None = None,
    sweep_eta: int | None = None,
    min_epochs: int | None = None,
    sweep_seed: int | None = None,
    repeat: int | None = None,
    resume: bool = False,
    progress: bool | None = None,
    callback: Callable[[Record], Any] | None = None,
    **options: Unpack[TrainOptions],
) -> Record:
    """Tries values of options, and trains the better ones longer, like ``graphmill sweep``.

    Every combination of values is a trial. All trials are trained for a few epochs; the best third
    by validation score goes on for three times the epochs, and so on up to ``epochs``. Each trial is
    a run directory below ``out``. Ctrl-C stops after the current batch, and ``resume=True`` ends with
    the record of a sweep that was never interrupted.

    Args:
        dataset: A dataset or its directory, or ``None`` for the built-in demo. One in memory is
            written to a temporary directory, which ends with the dataset.
        tried: Values to try by option: a list, ``{"lr": [0.001, 0.01], "fanout": [[10, 5], [15,
            10]]}``; a range, ``"0..0.6"``; or a range by the logarithm, ``"log:1e-4..1e-1"``. Ranges
            need ``trials``.
        out: Directory of the sweep.
        trials: Number of trials. Default: all combinations.
        sweep_eta: One in so many trials goes on after each comparison. Default 3.
        min_epochs: Epochs before the first comparison. Default: by the number of trials.
        sweep_seed: Seed of the values that are drawn. Default 0.
        repeat: Trains the best trial with so many seeds in the end. Default 1.
        resume: Continues the sweep in ``out``, whose record has the dataset and all options.
        progress: Shows a line for each step. ``None`` shows it on a terminal or in a notebook.
        callback: Called after each step, with a record whose ``event`` is ``"trial"`` (``trial``,
            ``epochs``) or ``"seed"`` (``seed``, ``test``). An exception that it raises ends the
            sweep.
        **options: Options of all trials, as in :func:`train`.

    Returns:
        The fields of ``sweep.json``: ``trials``, a record per trial with ``values``, ``scores``,
        ``test`` and ``run``, its directory in ``out``; ``best``, the number of the best one, from 1;
        ``command``, its command line; ``metric``; and with ``repeat`` ``repeated``.

    Raises:
        TypeError: An option is unknown, or ``tried`` is missing.
        ValueError: A value is out of range, options do not go together, or ``out`` holds another
            sweep.
        OSError: A file cannot be read or written.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    own = {"trials": trials, "eta": sweep_eta, "min_epochs": min_epochs, "seed": sweep_seed, "repeat": repeat}
    own = {name: value for name, value in own.items() if value is not None}
    if resume and (dataset is not None or tried or own or options):
        raise TypeError("resume: the record of the sweep has the dataset and all options; leave them out")
    if not resume and not tried:
        raise TypeError('tried: a sweep needs values to try, such as {"lr": [0.001, 0.01]}')
    words = [f"{name}={spec_of(values)}" for name, values in (tried or {}).items()]
    if isinstance(dataset, (Dataset, TypedDataset)):
        dataset = in_directory(dataset)
    native = native_of(dataset)
    with watch(progress) as line:

        def observe(message: str) -> None:
            event = record_of(message)
            if line is not None:
                line(json.dumps({"event": "note", "message": text_of(event)}))
            if callback is not None:
                callback(event)

        how = (words, json.dumps(own), options_of(options))
        record: Record = record_of(_graphmill.sweep(native, how, os.fspath(out), resume, observe))
        return record


def spec_of(values: Any) -> str:
    """Values to try, as the command line writes them."""
    if isinstance(values, str):
        return values
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"tried: expected a list of values or a range such as '0..0.6', not {values!r}")
    return "|".join(word_of(value) for value in values)


def word_of(value: Any) -> str:
    """A value as the command line writes it."""
    if isinstance(value, (list, tuple)):
        return ",".join(word_of(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def text_of(event: Record) -> str:
    """A finished step in one line."""
    if event.event == "seed":
        return f"best trial with seed {event.seed}: test {event.metric} {event.test}"
    trial = event.trial
    values = ", ".join(f"{name} {word_of(value)}" for name, value in trial.values.to_dict().items())
    start = f"trial {trial.trial}/{event.trials}, {values}:"
    if "failed" in trial:
        return f"{start} dropped, {trial.failed}"
    return f"{start} valid {event.metric} {trial.scores[-1].valid} in {event.epochs} epochs"
