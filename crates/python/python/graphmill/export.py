"""Commands on datasets: figures, exports and other orders of the nodes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import _graphmill
from ._frameworks import options_of
from .dataset import Dataset
from .given import DatasetLike, any_types
from .progress import watch
from .record import Record, record_of
from .typed import TypedDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .option_types import ReorderOptions


def info(dataset: DatasetLike | None = None) -> Record:
    """Figures of a dataset: sizes, degrees, homophily, components, or those of each type and task.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.

    Returns:
        The fields that ``graphmill info --json`` prints.
    """
    given = any_types(dataset)
    return record_of(given._native.info() if isinstance(given, TypedDataset) else _graphmill.info(given._native))


def export_dataset(
    dataset: DatasetLike,
    format: str,
    out: str | os.PathLike[str],
    *,
    replace: bool = False,
    undirected_once: bool = False,
    compress: bool = False,
) -> list[str]:
    """Exports a dataset to another format, like ``graphmill export``.

    Args:
        dataset: A dataset, or its directory.
        format: A format of ``graphmill export``: ``"npz"``, ``"edges"``, ``"csv"``, ...
        out: File or directory to write, which appears whole or not at all.
        replace: Replaces an earlier export.
        undirected_once: Writes each edge of a symmetric graph once (``"edges"``).
        compress: Compresses the output (``"npz"`` and ``"edges"``).

    Returns:
        A sentence for each part of the dataset that the format cannot hold.

    Raises:
        ValueError: The format is unknown, an option does not fit it, or ``out`` exists.
        OSError: A file cannot be written.
    """
    native = any_types(dataset)._native
    return _graphmill.export_dataset(native, format, os.fspath(out), replace, undirected_once, compress)


def reorder(
    dataset: DatasetLike,
    out: str | os.PathLike[str],
    *,
    by: str,
    seed: int | None = None,
    replace: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
    **options: Unpack[ReorderOptions],
) -> Any:
    """Writes a dataset with its nodes renumbered, so that rows that are read together lie together.

    Of several node types, each keeps its place, and its nodes are renumbered.

    Args:
        dataset: A dataset of one type or of several, or its directory.
        out: Directory to write.
        by: Order of the nodes: ``"bfs"``, ``"degree"``, ``"rcm"``, ``"random"``, ...; or a metric as
            of :func:`hotness`, the hottest nodes first.
        seed: Seed of random orders and of metrics that sample.
        replace: Replaces a dataset at ``out``.
        memory: Memory budget in bytes.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook.
        **options: Options of the run whose reads a metric predicts, as in :func:`train`. ``task``
            chooses one of a dataset of several types.

    Returns:
        The reordered dataset, a :class:`Dataset` or a :class:`TypedDataset`. Its ``original_ids``
        (of several types, those of ``nodes(type)``) are the numbers before.

    Raises:
        TypeError, ValueError: The order or an option is unknown, or the order does not use it.
        OSError: The directory cannot be written.
    """
    native = any_types(dataset)._native
    with watch(progress) as observe:
        one, several = _graphmill.reorder(native, os.fspath(out), (by, seed), options_of(options), (replace, memory), observe)
    return Dataset._of(one) if one is not None else TypedDataset._of(several)
