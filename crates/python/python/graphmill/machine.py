"""Commands about machines: their state, their speed, and epoch times of others."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Sequence

from . import _graphmill
from ._frameworks import options_of
from .given import DatasetLike, one_type
from .record import Record, record_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .option_types import BenchOptions, PlanOptions


def doctor() -> list[Record]:
    """Examines the machine: parts that a run can use, parts that it cannot, and remedies.

    Returns:
        A record per part, with ``part``, ``state`` (``"good"``, ``"note"`` or ``"fault"``),
        ``found`` and, if there is one, ``remedy``.
    """
    findings: list[Record] = record_of(_graphmill.doctor())
    return findings


def bench(
    name: str = "all",
    dataset: DatasetLike | None = None,
    *,
    dim: int | None = None,
    repeat: int | None = None,
    scale: int | None = None,
    **options: Unpack[BenchOptions],
) -> Record:
    """Measures hot paths of training beside the machine's limit, like ``graphmill bench``.

    Args:
        name: A bench, such as ``"gather"`` or ``"sample"``, or ``"all"``.
        dataset: A dataset, its directory, or ``None`` for a generated R-MAT graph.
        dim: Feature width, of the rows that are copied and of the generated graph.
        repeat: Measured runs of each case.
        scale: Generates a graph of ``2^scale`` nodes.
        **options: Options of the run, as in :func:`train`.

    Returns:
        The fields that ``graphmill bench --json`` prints.

    Raises:
        TypeError, ValueError: The bench or an option is unknown, or a value is out of range.
    """
    native = None if dataset is None else one_type(dataset)._native
    record: Record = record_of(_graphmill.bench(name, native, dim, repeat, scale, options_of(options)))
    return record


def plan(
    dataset: DatasetLike | None,
    hardware: str | os.PathLike[str],
    *,
    device_counts: Sequence[int] | None = None,
    **options: Unpack[PlanOptions],
) -> Record:
    """Predicts epoch times on another machine and the best strategy, like ``graphmill plan``.

    Measures a few minibatches here, and scales them to the other machine.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        hardware: Machine to predict for: a known name such as ``"v100x8"``, or a TOML or JSON file.
        device_counts: Numbers of devices to predict for, too.
        **options: Options of the run to predict, as in :func:`train`.

    Returns:
        The fields that ``graphmill plan --json`` prints, such as ``strategies`` and ``profile``.

    Raises:
        TypeError, ValueError: The machine or an option is unknown, a value is out of range, or no
            prediction reads an option.
    """
    given = one_type(dataset)
    counts = None if device_counts is None else ",".join(str(count) for count in device_counts)
    path = None if given.path is None else os.fspath(given.path)
    record: Record = record_of(_graphmill.plan(given._native, path, os.fspath(hardware), counts, options_of(options)))
    return record
