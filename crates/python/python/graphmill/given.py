"""Datasets and runs that callers pass to the commands."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Union

from . import _graphmill
from .dataset import Dataset
from .typed import TypedDataset

if TYPE_CHECKING:
    from .result import Run

AnyDataset = TypeVar("AnyDataset", Dataset, TypedDataset)

#: Run, or its directory
RunLike = Union[str, "os.PathLike[str]", "Run"]


class GraphLike(Protocol):
    """Graph of another library: anything with ``edge_index``; ``x``, ``y`` and masks are read if there are any."""

    @property
    def edge_index(self) -> Any:
        """Sources and destinations (``2 x E``)."""


#: Dataset, its directory, or a graph of another library
DatasetLike = Union[Dataset, TypedDataset, str, "os.PathLike[str]", GraphLike, "dict[str, Any]"]


def run_directory(run: RunLike) -> str:
    """Directory of a run."""
    path = run if isinstance(run, (str, os.PathLike)) else getattr(run, "path", run)
    if path is None:
        raise ValueError("the run has no directory, because it was trained with out=None; pass out= to train")
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"run: expected a graphmill.Run or the path of its directory, not {type(run).__name__}")
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{os.fspath(path)}: no such run directory; graphmill.train(out=...) writes one")
    return os.fspath(path)


def one_type(dataset: Any) -> Dataset:
    """A dataset of one type; ``None`` is the demo."""
    if dataset is None:
        return Dataset.demo()
    if isinstance(dataset, Dataset):
        return dataset
    if isinstance(dataset, TypedDataset):
        # several types are refused, with a message that lists them
        return dataset.to_dataset()
    if isinstance(dataset, (str, os.PathLike)):
        return Dataset(dataset)
    made = _of_object(dataset)
    return made.to_dataset() if isinstance(made, TypedDataset) else made


def any_types(dataset: Any) -> Dataset | TypedDataset:
    """A dataset of one type or of several; ``None`` is the demo."""
    if isinstance(dataset, TypedDataset) and not dataset._native.is_one_type:
        return dataset
    if isinstance(dataset, (str, os.PathLike)) and _graphmill.is_typed(os.fspath(dataset)):
        return TypedDataset(dataset)
    if dataset is None or isinstance(dataset, (Dataset, TypedDataset, str, os.PathLike)):
        return one_type(dataset)
    return _of_object(dataset)


def in_directory(dataset: AnyDataset) -> AnyDataset:
    """The dataset, or if it is in memory its copy in a temporary directory, which ends with the dataset."""
    if dataset.path is not None:
        return dataset
    if dataset._stored is None:
        place = tempfile.TemporaryDirectory(prefix="graphmill-")
        path = os.path.join(place.name, "dataset")
        dataset.save(path)
        stored = type(dataset)(path)
        # the owner of a temporary directory removes it
        stored._owner = (stored._owner, place)
        dataset._stored = stored
    return dataset._stored


def for_run(dataset: Any, run: RunLike) -> tuple[Any, Any]:
    """The dataset for a command on a run, which the caller holds during the command, and its native form."""
    if dataset is None or isinstance(dataset, (str, os.PathLike)):
        return dataset, native_of(dataset)
    given = any_types(dataset)
    if isinstance(given, TypedDataset):
        given = in_directory(given)
        return given, given._native
    return from_files(given) if _graphmill.needs_directory("{}", run_directory(run)) else (given, given._native)


def from_files(dataset: Dataset) -> tuple[Dataset, str]:
    """A dataset of one type in a directory, and that directory, which a run opens by itself."""
    stored = in_directory(dataset)
    return stored, os.fspath(stored.path)  # type: ignore[arg-type]


def native_of(dataset: Any) -> _graphmill.AnyDataset | None:
    """A dataset for a command on a run: an open one, or the path of a directory of any kind, which is opened as the run needs it."""
    if not isinstance(dataset, (str, os.PathLike)):
        return None if dataset is None else any_types(dataset)._native
    if not os.path.isdir(dataset):
        raise FileNotFoundError(f"{os.fspath(dataset)}: no such directory; graphmill.import_dataset() and generate() create datasets")
    return os.fspath(dataset)


def _of_object(data: Any) -> Dataset | TypedDataset:
    """Dataset of another library's graph, or of any object or dict with ``edge_index``."""
    has_edges = "edge_index" in data if isinstance(data, dict) else hasattr(data, "edge_index") or hasattr(data, "edge_types")
    if not has_edges:
        raise TypeError(
            "dataset: expected a graphmill.Dataset, the path of its directory, or an object with edge_index, x and y, "
            f"not {type(data).__name__}"
        )
    return Dataset.from_pyg(data, name=type(data).__name__.lower())
