"""Commands about machines: their state, their speed, and epoch times of others."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Sequence, Union, cast

from . import _graphmill
from ._frameworks import options_of
from .given import DatasetLike, any_types, in_directory, one_type
from .record import Record, record_of
from .typed import TypedDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .option_types import BenchOptions, PlanOptions

#: Link of the machines of a partition.
DEFAULT_NETWORK = "12.5G,20us"


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


_Measured = Union["tuple[_graphmill.Dataset, str | None]", "tuple[_graphmill.TypedDataset, str]"]


def _measured(dataset: DatasetLike | None) -> _Measured:
    """A dataset of one type or of several as the library measures it, with its directory."""
    given = any_types(dataset)
    if isinstance(given, TypedDataset):
        given = in_directory(given)
        assert given.path is not None
        return given._native, os.fspath(given.path)
    return given._native, None if given.path is None else os.fspath(given.path)


def plan(
    dataset: DatasetLike | None = None,
    hardware: str | os.PathLike[str] | None = None,
    *,
    profile: str | os.PathLike[str] | Record | None = None,
    partition: str | os.PathLike[str] | None = None,
    machines: int | None = None,
    network: str | None = None,
    device_counts: Sequence[int] | None = None,
    **options: Unpack[PlanOptions],
) -> Record:
    """Predicts epoch times on another machine and the best strategy, like ``graphmill plan``.

    Measures a few minibatches here, and scales them to the other machine. (The tables of papers
    that ``graphmill plan --paper`` prints are left to the program.)

    Args:
        dataset: A dataset of one type or several, its directory, or ``None`` for the built-in demo.
        hardware: Machine to predict for: a known name such as ``"v100x8"``, or a TOML or JSON file.
            Left out for a stream of events (``model="tgn"`` and others), which is planned for this
            machine.
        profile: Measurements to use instead: the field ``profile`` of an earlier plan, or a file of
            it. The same profile gives the same plan.
        partition: Directory of a partition: predicts for machines like this that share its parts.
            With the option ``graph_stores``, the last ones hold the parts and the others train.
            With the option ``devices="cuda:0"``, they train on NVIDIA devices of ``hardware``,
            which is left out otherwise.
        machines: Number of these machines, graph stores included. Default: one for each part.
        network: Link of each of these machines: bytes a second each way and a latency, such as
            ``"125M,50us"``. Default ``"12.5G,20us"``.
        device_counts: Numbers of devices to predict for, too.
        **options: Options of the run to predict, as in :func:`train`.

    Returns:
        The fields that ``graphmill plan --json`` prints, such as ``strategies`` and ``profile``, or
        ``threads`` and ``memory`` of a stream of events.

    Raises:
        TypeError, ValueError: The machine or an option is unknown, a value is out of range, no
            prediction reads an option, or the partition is of another dataset.
    """
    if partition is not None:
        if profile is not None or device_counts is not None:
            raise TypeError("partition: predictions for it measure here, with the machines of its parts; leave out profile and device_counts")
        cluster = os.fspath(partition), machines, None if hardware is None else os.fspath(hardware)
        text = _graphmill.plan_machines(_measured(dataset), cluster, network or DEFAULT_NETWORK, options_of(options))
        return cast(Record, record_of(text))
    if network is not None:
        raise TypeError("network: it joins the machines of partition=; leave it out")
    if machines is not None:
        raise TypeError("machines: they share the parts of partition=; leave it out")
    counts = None if device_counts is None else ",".join(str(count) for count in device_counts)
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        measured: _Measured | str
        if profile is None:
            measured = _measured(dataset)
        elif dataset is not None:
            raise TypeError("profile: it holds the measurements of a dataset; leave out dataset")
        elif isinstance(profile, (str, os.PathLike)):
            measured = os.fspath(profile)
        else:
            measured = os.path.join(scratch, "profile.json")
            with open(measured, "w", encoding="utf-8") as file:
                json.dump(profile.to_dict(), file)
        machine = None if hardware is None else os.fspath(hardware)
        return cast(Record, record_of(_graphmill.plan(measured, machine, counts, options_of(options))))
