"""Graphs of several node types and edge types."""

from __future__ import annotations

import json
import os
import warnings
from types import SimpleNamespace
from typing import Any, Iterator, Sequence

import numpy as np

from . import _graphmill, show
from ._frameworks import array_of, edge_list, find
from .loader import input_nodes_of
from .stores import Stores

#: Name of an edge type: source type, name, destination type
EdgeType = tuple[str, str, str]


def edge_type_of(given: Any, edge_types: Sequence[EdgeType]) -> int:
    """Number of an edge type, by its three names, or by its ends or its name if they are unique.

    Raises:
        ValueError: The type is unknown or ambiguous.
    """
    names = tuple(given.split("__")) if isinstance(given, str) else tuple(given)
    found = [r for r, kind in enumerate(edge_types) if names in (kind, (kind[0], kind[2]), (kind[1],))]
    if len(found) != 1:
        why = "is ambiguous" if found else "is unknown"
        raise ValueError(f"edge type {names} {why}; the types are {', '.join(map(str, edge_types))}")
    return found[0]


def _floats(x: Any, name: str, rows: int) -> np.ndarray:
    """Feature rows as float32 or float16."""
    x = array_of(x, name)
    if x.dtype.kind not in "fiub" or x.ndim not in (1, 2):
        raise TypeError(f"{name}: expected two dimensions of numbers, not shape {x.shape} of {x.dtype}")
    x = x.reshape(-1, 1) if x.ndim == 1 else x
    if len(x) != rows:
        raise ValueError(f"{name}: {len(x)} rows for {rows} nodes or edges")
    return np.ascontiguousarray(x if x.dtype in (np.float32, np.float16) else x.astype(np.float32))


def _vector(values: Any, name: str, dtype: Any) -> np.ndarray:
    """Column of one dimension as ``dtype``."""
    array = array_of(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected one dimension of numbers, not shape {array.shape} of {array.dtype}")
    if np.dtype(dtype).kind == "i" and array.dtype.kind == "f" and (array != np.floor(array)).any():
        raise ValueError(f"{name}: expected integers, but there are fractions")
    return np.ascontiguousarray(array.astype(dtype))


def _seeds(given: Any, name: str, names: int) -> list[np.ndarray]:
    """Seeds of a task: nodes of a type of one name, or sources and destinations of one of three names."""
    seeds, shape = array_of(given, name), "(R,)" if names == 1 else "(R, 2)"
    if (seeds.ndim != 1 if names == 1 else seeds.ndim != 2 or seeds.shape[1] != 2) or seeds.size and seeds.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers of shape {shape}, not {seeds.dtype} of shape {seeds.shape}")
    return [np.ascontiguousarray(column.astype(np.int64)) for column in seeds.reshape(len(seeds), 1 if names == 1 else 2).T]


def targets_of(y: Any, name: str) -> tuple[np.ndarray, bool]:
    """Targets as classes (int64), sets of classes (uint8, 2-D) or values (float32, 2-D), and true for values."""
    y = array_of(y, name)
    if y.ndim == 2 and y.shape[1] == 1:
        y = np.ascontiguousarray(y[:, 0])
    if y.ndim == 1 and y.dtype.kind in "iub":
        return y.astype(np.int64), False
    if y.ndim == 2 and y.dtype.kind in "iubf" and np.isin(y, (0, 1)).all():
        return y.astype(np.uint8), False
    if y.ndim in (1, 2) and y.dtype.kind == "f":
        return np.ascontiguousarray(y.reshape(len(y), -1).astype(np.float32)), True
    raise TypeError(f"{name}: expected classes, zeros and ones by class, or numbers, not shape {y.shape} of {y.dtype}")


def _values(y: Any, name: str) -> np.ndarray:
    """Targets that are values, whatever the numbers (float32, 2-D)."""
    y = array_of(y, name)
    return _floats(y, name, len(y)).astype(np.float32, copy=False)


class TypedDataset(Stores):
    """A graph of several node types and edge types with tasks, in memory or mapped from a directory.

    ``TypedDataset(path)`` opens a directory that ``graphmill import`` or :meth:`save` wrote. Columns
    of nodes, edges and tasks are read by :meth:`nodes`, :meth:`edges` and :meth:`task`; arrays are
    read-only views of Rust's memory.

    Args:
        path: Dataset directory.
        verify: Reads every byte and compares the checksums first.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is damaged or inconsistent.
    """

    #: Copy in a temporary directory, if a command needed one
    _stored: TypedDataset | None = None

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False):
        if not os.path.isdir(path):
            raise FileNotFoundError(f"{os.fspath(path)}: no such directory; graphmill.import_dataset() creates datasets")
        self._native = _graphmill.TypedDataset.open(os.fspath(path), verify)
        self._owner: Any = None

    @classmethod
    def _of(cls, native: _graphmill.TypedDataset, owner: Any = None) -> TypedDataset:
        self = cls.__new__(cls)
        self._native, self._owner = native, owner
        return self

    @classmethod
    def from_arrays(
        cls,
        nodes: dict[str, dict[str, Any]],
        edges: dict[EdgeType, dict[str, Any]],
        tasks: dict[str, dict[str, Any]] | None = None,
        *,
        name: str = "arrays",
    ) -> TypedDataset:
        """Creates a dataset from arrays or tensors, which are copied.

        Args:
            nodes: By node type: ``num_nodes`` (default: the rows of ``x`` or ``keys``), ``x``
                (features), ``keys`` (original keys: integers or texts) and ``time`` (integers).
            edges: By edge type ``(source, name, destination)``: ``edge_index`` (``2 x E``: sources
                and destinations, each counted within its type), ``x`` (features), ``weight`` and
                ``time``.
            tasks: By name: ``on`` (node type, or edge type for targets of edges in the order of
                ``edge_index``), ``y`` (classes, -1 if unknown; zeros and ones by class; or numbers,
                NaN if unknown), ``values`` (true if several columns of ``y`` are numbers although
                all of them are 0 or 1), ``num_classes``, ``names`` (of the classes), ``metric``
                (its customary metric), and ``train``, ``valid`` and ``test`` (masks or rows).
                Without ``y``, a task on an edge type predicts which edges exist. ``seeds`` are the
                rows instead of all of the type: nodes (``R``), of which one may occur several
                times, or pairs of a source and a destination (``R x 2``), which need not be edges;
                targets and the split then follow their order. ``time`` (integers) is the time of
                each row: a prediction sees what existed then.
            name: Name of the dataset.

        Raises:
            TypeError: An array has a wrong type.
            ValueError: Arrays disagree in length, or an id is out of range.
        """
        counts, native_nodes = {}, []
        for kind, given in nodes.items():
            columns = dict(given)
            x, keys, time, count = (columns.pop(column, None) for column in ("x", "keys", "time", "num_nodes"))
            if count is None and x is None and keys is None:
                raise ValueError(f"nodes '{kind}': give num_nodes, x or keys")
            counts[kind] = count = int(count if count is not None else len(x if x is not None else keys))
            _refuse(columns, f"nodes '{kind}'")
            x = None if x is None else _floats(x, f"x of '{kind}'", count)
            if keys is not None:
                keys = np.asarray(keys)
                keys = keys.astype(np.int64) if keys.dtype.kind in "iu" else [str(key) for key in keys.tolist()]
            time = None if time is None else _vector(time, f"time of '{kind}'", np.int64)
            native_nodes.append((kind, count, x, time, keys))
        native_edges, edge_counts = [], {}
        for (source, relation, destination), given in edges.items():
            of = f"({source}, {relation}, {destination})"
            columns = dict(given)
            index = edge_list(columns.pop("edge_index"), f"edge_index of {of}")
            ends = [np.ascontiguousarray(end.astype(np.int64)) for end in index]
            edge_counts[source, relation, destination] = index.shape[1]
            found = {}
            for column, dtype in (("weight", np.float32), ("time", np.int64)):
                value = columns.pop(column, None)
                if value is not None:
                    found[column] = _vector(value, f"{column} of {of}", dtype)
            x = columns.pop("x", None)
            if x is not None:
                found["x"] = _floats(x, f"x of {of}", index.shape[1])
            _refuse(columns, f"edges {of}")
            native_edges.append(([source, relation, destination], *ends, found))
        native_tasks = []
        for task, given in (tasks or {}).items():
            columns = dict(given)
            on, y, are_values = columns.pop("on"), columns.pop("y", None), columns.pop("values", False)
            if y is not None:
                y = _values(y, f"y of task '{task}'") if are_values else targets_of(y, f"y of task '{task}'")[0]
            on, rows = ([on], counts.get(on)) if isinstance(on, str) else (list(on), edge_counts.get(tuple(on)))
            if rows is None:
                kind, known = ("node", counts) if len(on) == 1 else ("edge", map(":".join, edge_counts))
                raise ValueError(f"task '{task}': the {kind} type '{':'.join(on)}' is unknown; the types are {', '.join(known)}")
            seeds, time = columns.pop("seeds", None), columns.pop("time", None)
            if seeds is not None:
                seeds = _seeds(seeds, f"seeds of task '{task}'", len(on))
                rows = len(seeds[0])
            time = None if time is None else _vector(time, f"time of task '{task}'", np.int64)
            parts = []
            for part in ("train", "valid", "test"):
                value = columns.pop(part, None)
                parts.append(np.zeros(0, np.int64) if value is None else input_nodes_of(value, rows, f"{part} of task '{task}'")[0])
            classes, names = columns.pop("num_classes", None), list(columns.pop("names", None) or [])
            metric = columns.pop("metric", None)
            _refuse(columns, f"task '{task}'")
            native_tasks.append({
                "name": task, "on": on, "y": y, "num_classes": classes, "names": names, "parts": parts, "seeds": seeds, "time": time,
                "metric": metric,
            })  # fmt: skip
        return cls._of(_graphmill.TypedDataset.build(name, native_nodes, native_edges, native_tasks))

    name = property(lambda self: self._native.name, doc="Name of the dataset.")
    path = property(lambda self: self._native.path, doc="Directory that it was opened from or written to, or ``None``.")
    node_types = property(lambda self: [name for name, _ in self._native.node_types], doc="Names of the node types.")
    edge_types = property(lambda self: [name for name, _ in self._native.edge_types], doc="Edge types ``(source, name, destination)``.")
    tasks = property(lambda self: self._native.tasks, doc="Names of the tasks.")
    num_nodes = property(lambda self: sum(n for _, n in self._native.node_types), doc="Number of nodes of all types.")
    num_edges = property(lambda self: sum(n for _, n in self._native.edge_types), doc="Number of edges of all types.")

    def nodes(self, node_type: str) -> SimpleNamespace:
        """Columns of a node type.

        Returns:
            ``num_nodes``, ``x`` (features or ``None``), ``feature_names``, ``keys`` (original keys
            or ``None``), ``time`` and ``original_ids``.
        """
        columns = self._native.nodes(node_type)
        columns["keys"] = None if columns["keys"] is None else np.asarray(columns["keys"])
        return SimpleNamespace(**columns)

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as models of PyTorch Geometric take them."""
        return self.node_types, self.edge_types

    def edges(self, edge_type: str | Sequence[str]) -> SimpleNamespace:
        """Columns of an edge type, by destination.

        Args:
            edge_type: ``(source, name, destination)``, or the name if only one type has it.

        Returns:
            ``edge_index`` (``2 x E``: sources and destinations), ``x`` (features or ``None``),
            ``feature_names``, ``weight``, ``time`` and ``reverse`` (name of the edge type with the
            reverse edges).
        """
        columns = self._native.edges(list(self.edge_types[edge_type_of(edge_type, self.edge_types)]))
        degrees = np.diff(columns.pop("indptr").view(np.int64))
        destinations = np.repeat(np.arange(len(degrees)), degrees)
        columns["edge_index"] = np.stack([columns.pop("src").astype(np.int64), destinations])
        return SimpleNamespace(**columns)

    def task(self, name: str) -> SimpleNamespace:
        """Targets and split of a task.

        Returns:
            ``kind``, ``on`` (type of its rows), ``seeds`` (nodes or pairs, or ``None`` for all of
            the type), ``time`` (of the rows, or ``None``), ``y`` (targets), ``num_classes``,
            ``names`` (of the classes), ``metric``, and ``train``, ``valid`` and ``test`` (rows).
        """
        return SimpleNamespace(**self._native.task(name))

    def _store_columns(self) -> dict[Any, dict[str, Any]]:
        from .hetero import open_hetero

        graph = open_hetero(self)
        columns: dict[Any, dict[str, Any]] = {}
        for name, whose, number, array in graph.tables:
            group = graph.types[number][0] if whose == "nodes" else graph.edge_types[number]
            columns.setdefault(group, {})[name] = array
        return columns

    def _store_edges(self) -> dict[tuple[str, str, str], tuple[Any, Any, tuple[int, int]]]:
        counts, found = dict(self._native.node_types), {}
        for kind in self.edge_types:
            native = self._native.edges(list(kind))
            found[tuple(kind)] = (native["indptr"], native["src"], (counts[kind[0]], counts[kind[2]]))
        return found

    @property
    def info(self) -> dict[str, Any]:
        """Figures of the dataset, as ``graphmill info --json`` prints them."""
        return json.loads(self._native.info())

    @property
    def import_report(self) -> dict[str, Any] | None:
        """Counts of merged, dropped, added and ignored items of an import, or ``None``."""
        report = self._native.import_report()
        return None if report is None else json.loads(report)

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Writes the dataset as a directory, which appears whole or not at all.

        Args:
            path: Directory to write.
            replace: Replaces a dataset at ``path``.

        Raises:
            OSError: The directory cannot be written.
            ValueError: The directory exists, and ``replace`` is not given.
        """
        self._native.save(os.fspath(path), replace)

    def to_dataset(self) -> Any:
        """Converts a dataset of one node type, one edge type and at most one classification of nodes.

        Raises:
            ValueError: It has several types or another task.
        """
        from .dataset import Dataset

        return Dataset._of(self._native.to_dataset(), self._owner)

    def to_pyg(self) -> Any:
        """Converts the dataset to a ``torch_geometric.data.HeteroData``, which shares its memory.

        The targets of the first task on a node type become its ``y`` and masks.
        """
        torch, pyg = find("torch"), find("torch_geometric.data")
        if torch is None or pyg is None:
            raise ImportError("to_pyg() needs torch and torch_geometric; install them with pip")

        def tensor(array: np.ndarray) -> Any:
            with warnings.catch_warnings():
                # torch warns about tensors over read-only memory
                warnings.simplefilter("ignore", UserWarning)
                return torch.from_numpy(array)

        data = pyg.HeteroData()
        for kind in self.node_types:
            columns, store = self.nodes(kind), data[kind]
            store["num_nodes"] = columns.num_nodes
            for name in ("x", "time"):
                if getattr(columns, name) is not None:
                    store[name] = tensor(getattr(columns, name))
        for kind, targets in self._targets():
            for name, values in targets.items():
                data[kind][name] = torch.from_numpy(values)
        for kind in self.edge_types:
            columns, store = self.edges(kind), data[kind]
            store["edge_index"] = torch.from_numpy(columns.edge_index)
            for name, theirs in (("x", "edge_attr"), ("weight", "edge_weight"), ("time", "time")):
                if getattr(columns, name) is not None:
                    store[theirs] = tensor(getattr(columns, name))
        return data

    def to_dgl(self) -> Any:
        """Converts the dataset to a heterogeneous ``dgl.DGLGraph``, which :meth:`Dataset.from_dgl` reads.

        Nodes have ``feat`` and ``time``, and edges ``feat``, ``weight`` and ``time``, which share the
        memory of the dataset: do not write to them. The targets of the first task on a node type
        become its ``label`` and masks.

        Raises:
            ImportError: DGL or torch is not installed.
        """
        from .convert import typed_to_dgl

        return typed_to_dgl(self)

    def _targets(self) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
        """Node types with the targets and masks of a task, by the names of PyTorch Geometric; the first task of a type is last."""
        for name in reversed(self.tasks):
            task = self.task(name)
            if task.on in self.node_types and task.seeds is None and task.y is not None:
                y = np.array(task.y)
                found = {"y": y.astype(np.int64) if y.dtype == np.int32 else y}
                for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
                    found[mask] = np.zeros(len(y), bool)
                    found[mask][getattr(task, part)] = True
                yield task.on, found

    def __getstate__(self) -> dict[str, Any]:
        if self.path is not None:
            return {"path": os.path.abspath(self.path)}

        def copied(columns: dict[str, Any]) -> dict[str, Any]:
            return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in columns.items() if value is not None}

        nodes, edges, tasks = {}, {}, {}
        for kind in self.node_types:
            of = self.nodes(kind)
            nodes[kind] = copied({"num_nodes": of.num_nodes, "x": of.x, "keys": of.keys, "time": of.time})
        for kind in self.edge_types:
            of = self.edges(kind)
            edges[kind] = copied({"edge_index": of.edge_index, "x": of.x, "weight": of.weight, "time": of.time})
        for name in self.tasks:
            of = self.task(name)
            if of.y is None:
                raise TypeError(f"task '{name}': only tasks with targets can be pickled; save() the dataset, and pickle the opened one")
            if of.y.ndim == 2 and of.y.dtype.kind == "i":
                raise TypeError(f"task '{name}': classes in several columns cannot be pickled; save() the dataset, and pickle the opened one")
            on = next((kind for kind in self.edge_types if ":".join(kind) == of.on), of.on)
            tasks[name] = copied({
                "on": on, "seeds": of.seeds, "time": of.time, "y": of.y, "num_classes": of.num_classes or None, "names": list(of.names),
                "train": of.train, "valid": of.valid, "test": of.test, "metric": of.metric, "values": of.y.dtype.kind == "f",
            })  # fmt: skip
        return {"arrays": (nodes, edges, tasks), "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._owner = None
        if "path" in state:
            self._native = _graphmill.TypedDataset.open(state["path"], False)
            return
        nodes, edges, tasks = state["arrays"]
        self._native = TypedDataset.from_arrays(nodes, edges, tasks, name=state["name"])._native

    def __repr__(self) -> str:
        return f"TypedDataset('{self.name}', node_types={self.node_types}, edge_types={self.edge_types}, tasks={self.tasks})"

    def _repr_html_(self) -> str:
        info, rows = self.info, [("directory", self.path)]
        for kind in info["node_types"]:
            features = f"{kind['features']['columns']:,} features" if kind["features"] else None
            keys = f"keys: {kind['keys']}" if kind["keys"] else None
            parts = [f"{kind['nodes']:,} nodes", features, keys]
            rows.append((f"node type {kind['name']}", ", ".join(part for part in parts if part)))
        for kind in info["edge_types"]:
            name = f"edge type ({kind['source']}, {kind['name']}, {kind['destination']})"
            rows.append((name, f"{kind['edges']:,} edges"))
        for task in info["tasks"]:
            split = ", ".join(f"{part} {task[part]:,}" for part in ("train", "valid", "test"))
            rows.append((f"task {task['name']}", f"{task['kind']} on {task['on']}; {split}"))
        return show.table(f"TypedDataset {self.name}", rows)

    def __str__(self) -> str:
        return str(self._native)


def _refuse(columns: dict[str, Any], place: str) -> None:
    for column in columns:
        raise TypeError(f"{place}: there is no column '{column}' here; leave it out")
