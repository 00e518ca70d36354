"""Graphs with features, labels and a split."""

from __future__ import annotations

import json
import os
import warnings
from functools import cached_property
from typing import Any, Literal, Sequence, overload

import numpy as np

from . import _graphmill, convert, show, tables
from ._frameworks import array_of, edge_list, edges_of_scipy, find, is_pyg, is_scipy
from .loader import input_nodes_of
from .progress import watch
from .stores import Stores
from .typed import TypedDataset


def sources_of(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Source of each edge of a CSR matrix."""
    if indptr.dtype.kind not in "iu" or indptr.ndim != 1 or not len(indptr):
        raise ValueError(f"indptr: expected one dimension of integers, not shape {indptr.shape} of {indptr.dtype}")
    indptr = indptr.astype(np.int64)
    for v in np.flatnonzero(indptr < 0)[:1]:
        raise ValueError(f"indptr[{v}] is {indptr[v]}: row starts must not be negative")
    counts = np.diff(indptr)
    if indptr[0] != 0 or indptr[-1] != len(indices) or (counts < 0).any():
        raise ValueError(f"indptr: expected ascending row starts from 0 to {len(indices)}, the length of indices")
    return np.repeat(np.arange(len(counts)), counts)


def targets_of(values: Any) -> np.ndarray:
    """Values to predict, with a row per node (``V x T``, float32)."""
    array = array_of(values, "values")
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or array.size and not array.shape[-1]:
        raise TypeError(f"values: expected a number or a row of numbers per node, not shape {array.shape} of {array.dtype}")
    return array.astype(np.float32)[:, None] if array.ndim == 1 else array.astype(np.float32)


class Dataset(Stores):
    """A graph with features, labels and a split, in memory or mapped from a directory.

    Arrays are read-only views of Rust's memory, without a copy: ``indptr`` (``V + 1``), ``indices``
    (``E``, the in-neighbours of each node), ``x`` (``V x F``), ``edge_weight`` (``E``), ``train``,
    ``valid`` and ``test`` (ids, ascending). An edge's number is its position in ``indices``;
    ``edge_index`` and a loader's ``e_id`` use the same numbers.

    ``Dataset(path)`` opens a directory that ``graphmill generate`` or ``graphmill import`` wrote.

    Args:
        path: Dataset directory.
        verify: Reads every byte and compares the checksums first.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is damaged or inconsistent.
    """

    #: Copy in a temporary directory, if a command needed one
    _stored: Dataset | None = None

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False):
        if not os.path.isdir(path):
            raise FileNotFoundError(f"{os.fspath(path)}: no such directory; graphmill.import_dataset() and generate() create datasets")
        self._native = _graphmill.Dataset.open(os.fspath(path), verify)
        self._owner: Any = None

    @classmethod
    def _of(cls, native: _graphmill.Dataset, owner: Any = None) -> Dataset:
        self = cls.__new__(cls)
        # the owner of a temporary directory removes it
        self._native, self._owner = native, owner
        return self

    @classmethod
    def from_tables(
        cls,
        nodes: Any = None,
        edges: Any = None,
        targets: Any = None,
        *,
        id: str | list[str] | None = None,
        node_time: str | None = None,
        label: str | Sequence[str] | None = None,
        task: str | None = None,
        split: str | None = None,
        features: list[str] | None = None,
        ignore: list[str] | None = None,
        columns: dict[str, str] | None = None,
        missing: str | None = None,
        category_limit: int | None = None,
        formats: dict[str, str] | None = None,
        nulls: dict[str, str | list[str]] | None = None,
        node_type: str | None = None,
        src: str | list[str] | None = None,
        dst: str | list[str] | None = None,
        src_type: str | None = None,
        dst_type: str | None = None,
        edge_time: str | None = None,
        edge_weight: str | None = None,
        edge_label: str | Sequence[str] | None = None,
        edge_task: str | None = None,
        edge_split: str | None = None,
        edge_features: list[str] | None = None,
        edge_columns: dict[str, str] | None = None,
        edge_formats: dict[str, str] | None = None,
        edge_nulls: dict[str, str | list[str]] | None = None,
        edge_type: str | None = None,
        reverse: str | None = None,
        undirected: bool = False,
        keep_duplicates: bool = False,
        target_id: str | list[str] | None = None,
        target_time: str | None = None,
        target_label: str | Sequence[str] | None = None,
        target_task: str | None = None,
        target_split: str | None = None,
        target_name: str | None = None,
        target_formats: dict[str, str] | None = None,
        target_nulls: dict[str, str | list[str]] | None = None,
        separator: str | None = None,
        quote: str | None = None,
        schema: Any = None,
        like: str | os.PathLike[str] | Dataset | TypedDataset | None = None,
        dangling: str | None = None,
        seed: int | None = None,
        name: str | None = None,
        path: str | os.PathLike[str] | None = None,
        replace: bool = False,
        memory: int | None = None,
        progress: bool | None = None,
    ) -> Dataset | TypedDataset:
        """Creates a dataset from tables of nodes, edges and targets, like ``graphmill import tables``.

        A table is a DataFrame of pandas or Polars, a table of PyArrow, a relation of DuckDB, any
        other object with Arrow's C stream interface (``__arrow_c_stream__``), a dict of columns by
        name, or the path of a CSV, JSON lines, Parquet or Arrow file, of a directory, or several
        paths. The memory of Arrow's columns is shared while they are encoded. Keys have any type,
        and numbers, categories, dates, lists and missing values are encoded by their statistics;
        :func:`plan_tables` says what each column becomes.

        Args:
            nodes: Table with a row per node. ``None`` takes the keys that edges name.
            edges: Table with a row per edge.
            targets: Table with a row per node and time: the target of a task, of which a prediction
                sees what existed at the time.
            id: Column of the key, or columns.
            node_time: Column of the time from which a node exists.
            label: Column to predict, or several of numbers or of classes; rows without a label are predicted.
            task: ``"classification"`` or ``"regression"``. Default: by the label; several labels of
                numbers are a regression.
            split: ``"random:60,20,20"`` (the default), ``"stratified:60,20,20"``,
                ``"column:NAME"``, ``"masks:TRAIN,VALID,TEST"`` or ``"time:COLUMN:60,20,20"``.
            features: Columns to use. Default: all others.
            ignore: Columns not to use.
            columns: Treatment of single columns, such as ``{"age": "quantile, indicator"}``.
            missing: Missing values: ``"mean"`` (the default), ``"zero"`` or ``"indicator"``.
            category_limit: Largest number of values of a category.
            formats: Formats of single columns of texts: ``"decimal-comma"`` (1.234,56) or
                ``"decimal-point"`` (1,234.56), with the sign of a unit as in ``"decimal-comma €"``;
                a pattern of dates such as ``"%d.%m.%Y"``; ``"unix-s"``, ``"unix-ms"``, ``"unix-us"``
                or ``"unix-ns"``. Default: the only one that reads all values of a column.
            nulls: Texts that stand for a missing value in single columns, such as
                ``{"age": ["unknown", "<5"]}``.
            node_type: Name of the node type.
            src, dst: Columns of the keys of an edge's source and destination.
            src_type, dst_type: Node types of the sources and of the destinations, if these are two,
                such as ``"user"`` and ``"item"``. Default: ``node_type``.
            edge_time, edge_weight: Columns of an edge's time and weight.
            edge_label, edge_task, edge_split: Column of edges to predict, or several, with their
                kind and their split, as ``label``, ``task`` and ``split``. The default split is by
                the time, if edges have one.
            edge_features: Columns that become edge features.
            edge_columns, edge_formats, edge_nulls: Treatment of single edge features, as ``columns``,
                and formats and missing values of columns, as ``formats`` and ``nulls``.
            edge_type: Name of the edge type.
            reverse: Name of an edge type of the reverse edges, which is added.
            undirected: Stores every edge in both directions.
            keep_duplicates: Keeps parallel edges instead of merging them.
            target_id, target_time, target_label: Columns of the targets: the node's key, the time,
                and the target, or several. Without a time a node has one row.
            target_task, target_split: Kind and split of the targets, as ``edge_task`` and
                ``edge_split``.
            target_name: Name of the task. Default: that of the label.
            target_formats, target_nulls: Formats and missing values of columns of the targets, as
                ``formats`` and ``nulls``.
            separator, quote: Of CSV files; found by default.
            schema: Several tables, instead of the arguments above: the path of a schema file, or a
                dict with the same entries, whose ``files`` may be tables.
            like: Dataset, or its directory, by whose statistics the columns are encoded.
            dangling: Edges to nodes without a row: ``"error"`` (the default), ``"drop"`` or
                ``"add"``.
            seed: Seed of random splits.
            name: Name of the dataset. Default: that of the directory.
            path: Directory to write. ``None`` writes a temporary one, which is removed with the
                dataset; :meth:`save` keeps a copy.
            replace: Replaces a dataset at ``path``.
            memory: Memory budget in bytes.
            progress: Shows progress. ``None`` shows it on a terminal or in a notebook.

        Returns:
            A :class:`Dataset` if there is one node type, one edge type and no task but the
            classification of nodes, and else a :class:`TypedDataset`.

        Raises:
            TypeError: A table has a type that is not read, or an argument is missing.
            ValueError: Tables have faults; all of them are listed.
            OSError: A file cannot be read or written.

        Warns:
            UserWarning: A column determines the label, with the share of the labelled rows; or it
                became a category, although most of its values are numbers or dates.

        Example:
            >>> import graphmill
            >>> nodes = {"id": ["a", "b", "c"], "age": [31, None, 45], "kind": ["x", "y", "x"]}
            >>> edges = {"from": ["a", "b"], "to": ["b", "c"]}
            >>> data = graphmill.Dataset.from_tables(nodes, edges, id="id", label="kind", src="from", dst="to")
            >>> data.keys.tolist(), data.class_names
            (['a', 'b', 'c'], ['x', 'y'])
        """
        described = tables.schema_of(
            nodes, edges, {option: value for option, value in locals().items() if option in tables.OPTIONS}, schema
        )
        like = getattr(like, "path", None) or like
        if isinstance(like, (Dataset, TypedDataset)):
            raise ValueError(f"like: the dataset {like.name} is in memory, without statistics of columns; pass one of from_tables")
        one, several, owner = tables.import_tables(
            described, like=like, path=path, replace=replace, memory=memory, progress=progress
        )
        made = TypedDataset._of(several, owner) if one is None else cls._of(one, owner)
        tables.warn_of_leaks(made.import_report or {})
        return made

    @classmethod
    def from_networkx(cls, graph: Any, *, weight: str | None = "weight", **options: Any) -> Dataset | TypedDataset:
        """Creates a dataset from a graph of NetworkX, as :meth:`from_tables` does from its attributes.

        Nodes keep their names as :attr:`keys` and their order. Messages flow along directed edges;
        edges of undirected graphs are stored in both directions, and parallel edges are merged
        unless ``keep_duplicates=True``. Attributes of nodes are columns: numbers, texts, dates,
        lists of numbers, or missing.

        Args:
            graph: A ``Graph``, ``DiGraph`` or one of the multigraphs.
            weight: Attribute of the edges that is their weight; edges without it have weight 1.
                ``None`` ignores weights.
            **options: Arguments of :meth:`from_tables`: ``label``, ``split``, ``columns``,
                ``edge_time``, ``edge_features``, ``path``, ...
        """
        table, edges, described = convert.tables_of_networkx(graph, weight)
        for option in options:
            if option in ("nodes", "edges", "id", "src", "dst", "schema", "edge_weight"):
                raise TypeError(f"{option}: the graph determines it; leave it out")
        name = options.pop("name", None) or (None if options.get("path") else getattr(graph, "name", "") or "networkx")
        return cls.from_tables(table, edges, name=name, **{**described, **options})

    @classmethod
    def from_scipy(cls, matrix: Any, **arrays: Any) -> Dataset:
        """Creates a dataset from a sparse adjacency matrix of SciPy (``V x V``, any format).

        ``A[i, j]`` is an edge from ``i`` to ``j``: messages flow from the row to the column. Its
        value is the edge's weight, unless all values are 1; duplicate entries are summed, and
        entries of value 0 are not edges.

        Args:
            matrix: Sparse matrix or sparse array.
            **arrays: Arguments of :meth:`from_arrays`: ``x``, ``y``, ``train_mask``, ...
        """
        if not is_scipy(matrix):
            raise TypeError(f"matrix: expected a sparse matrix of SciPy, not {type(matrix).__name__}")
        return cls.from_arrays(matrix, **{"name": "scipy", **arrays})

    @classmethod
    def from_dgl(
        cls,
        graph: Any,
        *,
        features: str | None = "feat",
        label: str | None = "label",
        weight: str | None = None,
        edge_features: str | None = None,
        edge_time: str | None = None,
        metric: str | None = None,
        name: str = "dgl",
    ) -> Dataset | TypedDataset:
        """Creates a dataset from a ``dgl.DGLGraph``, also with several types.

        The masks ``train_mask``, ``val_mask`` and ``test_mask`` of nodes become the split. Other
        data of nodes and edges is named in a warning.

        Args:
            graph: Graph on the CPU.
            features, label: Names of the features and labels in ``ndata``.
            weight, edge_features, edge_time: Names of the weights, features and times in ``edata``.
            metric: Metric of the scores of a graph of one type.
            name: Name of the dataset.

        Returns:
            A :class:`Dataset` for a graph of one type without times and features of edges and
            without numbers as labels, and else a :class:`TypedDataset`.
        """
        names = {"features": features, "label": label, "weight": weight, "edge_features": edge_features, "edge_time": edge_time}
        names.update({mask: mask for mask in convert.PARTS})
        return convert.of_dgl(graph, names, {"metric": metric, "name": name})

    @classmethod
    def demo(cls) -> Dataset:
        """The built-in demo: 50,000 nodes in ten classes, generated in a tenth of a second."""
        return cls._of(_graphmill.Dataset.demo())

    @classmethod
    def from_arrays(
        cls,
        edge_index: Any = None,
        *,
        indptr: Any = None,
        indices: Any = None,
        num_nodes: int | None = None,
        x: Any = None,
        y: Any = None,
        values: Any = None,
        num_classes: int | None = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        split: str | None = None,
        split_seed: int = 0,
        edge_weight: Any = None,
        undirected: bool = False,
        layout: str | None = None,
        metric: str | None = None,
        name: str = "arrays",
    ) -> Dataset:
        """Creates a dataset from arrays or tensors, which are copied.

        Args:
            edge_index: Sources and destinations (``2 x E``). Edges are sorted by destination, then
                source. Or a sparse matrix of SciPy (``V x V``, any format): ``A[i, j]`` is an edge
                from ``i`` to ``j``, and its value the edge's weight unless all values are 1;
                duplicate entries are summed, and entries of value 0 are not edges.
            indptr, indices: Compressed rows or columns instead of ``edge_index``, by ``layout``.
            layout: ``"csc"``: ``indptr`` and ``indices`` hold the in-neighbours of each node, like
                :attr:`indptr` and :attr:`indices`; ``"csr"``: its out-neighbours, like SciPy's
                ``csr_matrix``.
            num_nodes: Number of nodes ``V``. Default: the length of ``x``, ``y``, ``values`` or
                ``indptr``.
            x: Features (``V x F``) as float32 or float16; others are converted to float32. They
                must be unscaled: arrays do not record how they were normalized. Features of a
                dataset that was imported with ``normalize`` are already standardized, and
                :func:`predict` would scale them a second time; pass it that dataset itself, or
                train on these arrays.
            y: Classes (``V``; -1 if unknown), or zeros and ones (``V x C``) for several labels per
                node.
            values: Numbers to predict instead of classes (``V``, or ``V x T`` for ``T`` targets), as
                float32; NaN if unknown. A node of a part of the split has at least one of its values.
            num_classes: Number of classes ``C``. Default: one more than the largest class.
            train_mask, val_mask, test_mask: Masks (``V``) or ids; they must not overlap.
            split: Rule that draws the split of the nodes with a class or a value, instead of masks:
                ``"random:60,20,20"`` (percentages or fractions) or ``"planetoid:20,30"`` (training
                and validation nodes of every class; all others test).
            split_seed: Seed of the rule.
            edge_weight: Weights of the edges (``E``), at least 0.
            undirected: Stores every edge in both directions, without duplicates and self-loops.
            metric: Metric of the scores: "accuracy", "f1-micro", "f1-macro", "roc-auc" or
                "average-precision"; of values "mae", "rmse" or "r2".
            name: Name of the dataset.

        Raises:
            TypeError: An array has a wrong type.
            ValueError: Arrays disagree in length, an id is out of range, features are not finite,
                or parts of the split overlap.

        Example:
            >>> import graphmill
            >>> ring = [[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]
            >>> data = graphmill.Dataset.from_arrays(ring, y=[0, 1, 0, 1, 0], split="random:60,20,20")
            >>> len(data.train), len(data.valid), len(data.test)
            (3, 1, 1)
        """
        masks = {"train_mask": train_mask, "val_mask": val_mask, "test_mask": test_mask}
        if split is not None:
            if given := [name for name, mask in masks.items() if mask is not None]:
                raise ValueError(f"split {split!r}: {given[0]} is the split already; leave out one of them")
            if y is None and values is None:
                raise ValueError(f"split {split!r}: it divides the nodes with a class or a value; give y or values, or masks")
        if (edge_index is None) == (indptr is None or indices is None):
            raise ValueError("give either edge_index, or indptr and indices")
        if edge_index is None and layout not in ("csc", "csr"):
            raise ValueError(
                f"layout {layout!r}: indptr and indices need layout='csc' (in-neighbours of each node) or "
                "layout='csr' (out-neighbours of each node, as in scipy.sparse.csr_matrix)"
            )
        if edge_index is not None and layout is not None:
            raise ValueError(f"layout {layout!r}: only indptr and indices have a layout; leave it out with edge_index")
        if is_scipy(edge_index):
            if edge_weight is not None:
                raise ValueError("edge_weight: the values of a sparse edge_index are the weights; leave it out")
            edge_index, edge_weight, nodes = edges_of_scipy(edge_index)
            if num_nodes is not None and num_nodes != nodes:
                raise ValueError(f"num_nodes {num_nodes}: the sparse edge_index has {nodes} rows")
            num_nodes = nodes
        x = None if x is None else array_of(x, "x")
        if x is not None and (x.ndim != 2 or x.dtype.kind not in "fiub"):
            raise TypeError(f"x: expected two dimensions of numbers, not shape {x.shape} of {x.dtype}")
        if x is not None and x.dtype not in (np.float32, np.float16):
            x = x.astype(np.float32)
        y = None if y is None else array_of(y, "y")
        if y is not None and y.ndim == 2 and y.shape[1] == 1:
            y = np.ascontiguousarray(y[:, 0])
        if y is not None and y.ndim == 2:
            if not np.isin(y, (0, 1)).all():
                raise ValueError("y: a matrix of labels must hold only zeros and ones")
            y = y.astype(np.uint8)
        elif y is not None:
            if y.dtype.kind not in "iu" or y.ndim != 1:
                raise TypeError(f"y: expected integers, not shape {y.shape} of {y.dtype}; numbers to predict are values=")
            y = y.astype(np.int64)
        if values is not None:
            if y is not None or num_classes is not None:
                raise ValueError("values: nodes have either classes or values; leave out y and num_classes")
            y = targets_of(values)
        columns = layout == "csc"
        if layout is not None:
            src, dst = array_of(indptr, "indptr"), array_of(indices, "indices")
            num_nodes = len(src) - 1 if num_nodes is None else num_nodes
            if num_nodes != len(src) - 1:
                raise ValueError(f"indptr: expected {num_nodes + 1} entries, one more than nodes, not {len(src)}")
            if columns and undirected:
                raise ValueError("undirected: reverse edges cannot be added to compressed columns; pass edge_index instead")
            if not columns:
                src = sources_of(src, dst)
        else:
            src, dst = edge_list(edge_index)
        if num_nodes is None:
            known = [len(a) for a in (x, y) if a is not None]
            if not known:
                raise ValueError("give num_nodes, x, y or values: edges do not determine the number of nodes")
            num_nodes = known[0]
        weight = None
        if edge_weight is not None:
            weight = array_of(edge_weight, "edge_weight").astype(np.float32)
            if weight.shape != (len(dst),):
                raise ValueError(f"edge_weight: expected shape ({len(dst)},), not {weight.shape}")
        parts = [
            np.zeros(0, np.int64) if part is None else input_nodes_of(part, num_nodes, name)[0]
            for name, part in masks.items()
        ]
        rule = None if split is None else (split, split_seed)
        return cls._of(
            _graphmill.Dataset.from_arrays(
                name, int(num_nodes), src=src, dst=dst, columns=columns, x=x, y=y, classes=num_classes, parts=parts,
                rule=rule, weight=weight, undirected=undirected, metric=metric,
            )
        )  # fmt: skip

    @classmethod
    def from_pyg(cls, data: Any, *, metric: str | None = None, name: str = "pyg") -> Dataset | TypedDataset:
        """Creates a dataset from a ``torch_geometric.data.Data`` or ``HeteroData``.

        Any object or dict with ``edge_index`` is read as a ``Data``, whose arrays may be tensors,
        NumPy arrays or lists. Of nodes ``x``, ``y`` and the masks are read, and of edges ``edge_weight``. Of a
        ``HeteroData`` also ``time`` and ``edge_attr`` are read; other attributes are named in a
        warning, and the result is a :class:`TypedDataset`.
        """
        if convert.is_hetero(data):
            if metric is not None:
                raise ValueError("metric: only a graph of one type has it; leave it out")
            return convert.typed_of_pyg(data, name)
        known = data if isinstance(data, dict) else data.to_dict() if is_pyg(data) else None
        get: Any = known.get if known is not None else lambda name: getattr(data, name, None)
        if get("edge_index") is None:
            raise TypeError(f"data: expected a torch_geometric.data.Data or HeteroData, or an object with edge_index, not {type(data).__name__}")
        num_nodes = data.num_nodes if is_pyg(data) else get("num_nodes")
        names = ("edge_index", "x", "y", "train_mask", "val_mask", "test_mask", "edge_weight")
        return cls.from_arrays(num_nodes=num_nodes, metric=metric, name=name, **{key: get(key) for key in names})

    def to_pyg(self) -> Any:
        """Converts the dataset to a ``torch_geometric.data.Data``.

        Dense float32 ``x`` shares the memory of the dataset: do not write to it.
        """
        torch, pyg = find("torch"), find("torch_geometric.data")
        if torch is None or pyg is None:
            raise ImportError("to_pyg() needs torch and torch_geometric; install them with pip")

        def tensor(array: np.ndarray | None) -> Any:
            return None if array is None else convert.tensor_of(torch, array)

        return pyg.Data(
            x=tensor(self.x),
            y=tensor(convert.labels_of(self.y)),
            edge_index=tensor(self.edge_index),
            edge_weight=tensor(self.edge_weight),
            train_mask=tensor(self.train_mask),
            val_mask=tensor(self.val_mask),
            test_mask=tensor(self.test_mask),
            num_nodes=self.num_nodes,
        )

    def to_networkx(self, *, node_attrs: Sequence[str] = (), to_undirected: bool = False) -> Any:
        """Converts the graph to a ``DiGraph`` of NetworkX, with weights as the attribute ``weight``.

        Nodes are named by ``keys``, or by their ids. Parallel edges make it a ``MultiDiGraph``.

        Args:
            node_attrs: Arrays that become attributes of the nodes: ``"x"``, ``"y"``,
                ``"train_mask"``, ``"val_mask"`` and ``"test_mask"``.
            to_undirected: Returns a ``Graph``, in which the edges between two nodes are one.

        Raises:
            ImportError: NetworkX is not installed.
            ValueError: An attribute is unknown or absent, or with ``to_undirected`` the edges between
                two nodes have several weights.
        """
        return convert.to_networkx(self, node_attrs, to_undirected)

    def to_scipy(self) -> Any:
        """Converts the graph to a sparse adjacency matrix of SciPy (``csc_array``, ``V x V``).

        ``A[i, j]`` is an edge from ``i`` to ``j``, as in :meth:`from_scipy`: its weight, or 1. Parallel
        edges are separate entries, which SciPy adds.

        Raises:
            ImportError: SciPy is not installed.
        """
        return convert.to_scipy(self)

    def to_dgl(self) -> Any:
        """Converts the dataset to a ``dgl.DGLGraph``, which :meth:`from_dgl` reads.

        ``ndata`` holds ``feat``, ``label``, ``train_mask``, ``val_mask`` and ``test_mask``, and
        ``edata`` the ``weight`` of edges that have weights. Dense float32 ``feat`` shares the memory of
        the dataset: do not write to it.

        Raises:
            ImportError: DGL or torch is not installed.
        """
        return convert.to_dgl(self)

    def save(self, path: str | os.PathLike[str], *, replace: bool = False, format: int = 1) -> None:
        """Writes the dataset as a directory, which appears whole or not at all.

        Args:
            path: Directory to write.
            replace: Replaces a dataset at ``path``.
            format: 1, or 2 for the format that also holds several types. A dataset with keys or
                values is always written in format 2.

        Raises:
            OSError: The directory cannot be written.
            ValueError: The directory exists, and ``replace`` is not given; the format is unknown.
        """
        if format not in (1, 2):
            raise ValueError(f"format {format!r}: expected 1 or 2")
        self._native.save(os.fspath(path), replace, format == 2)

    name = property(lambda self: self._native.name, doc="Name of the dataset.")
    path = property(lambda self: self._native.path, doc="Directory that it was opened from or written to, or ``None``.")
    metric = property(lambda self: self._native.metric, doc="Metric of the scores, or ``None`` if unknown.")
    num_nodes = property(lambda self: self._native.num_nodes, doc="Number of nodes ``V``.")
    num_edges = property(lambda self: self._native.num_edges, doc="Number of edges ``E``; every stored direction counts.")
    num_features = property(lambda self: self._native.num_features, doc="Number of features ``F``; 0 without features.")
    num_classes = property(lambda self: self._native.num_classes, doc="Number of classes ``C``, or of values per node; 0 without labels.")
    is_multilabel = property(lambda self: self._native.is_multilabel, doc="True if nodes have several labels.")

    @property
    def indptr(self) -> np.ndarray:
        """Start of each node's in-neighbours in ``indices`` (``V + 1``, uint64)."""
        return self._native.indptr()

    @property
    def indices(self) -> np.ndarray:
        """In-neighbours of all nodes, node by node (``E``, uint32)."""
        return self._native.indices()

    @cached_property
    def edge_index(self) -> np.ndarray:
        """Sources and destinations (``2 x E``, int64), computed on first access."""
        destinations = np.repeat(np.arange(self.num_nodes), np.diff(self.indptr.view(np.int64)))
        return np.stack([self.indices.astype(np.int64), destinations])

    @property
    def edge_weight(self) -> np.ndarray | None:
        """Weight of each edge (``E``, float32), or ``None``."""
        return self._native.edge_weight()

    @cached_property
    def x(self) -> np.ndarray | None:
        """Features (``V x F``); sparse rows are copied to a dense array on first access."""
        return self._native.x()

    @cached_property
    def y(self) -> np.ndarray | None:
        """Class of each node (``V``, int64; -1 if unknown) or in each of several columns (``V x K``), its labels (``V x C``, uint8), or its values (``V`` or ``V x T``, float32)."""
        y = self._native.y()
        return y.astype(np.int64) if y is not None and y.dtype == np.int32 else y

    @property
    def train(self) -> np.ndarray:
        """Training nodes, ascending (uint32)."""
        return self._native.part("train")

    @property
    def valid(self) -> np.ndarray:
        """Validation nodes, ascending (uint32)."""
        return self._native.part("valid")

    @property
    def test(self) -> np.ndarray:
        """Test nodes, ascending (uint32)."""
        return self._native.part("test")

    @cached_property
    def keys(self) -> np.ndarray | None:
        """Original keys of the nodes (``V``; integers or texts), or ``None`` if they have none.

        The parts of a key of several columns are separated by ``"\\x1f"``.
        """
        keys = self._native.keys()
        return None if keys is None else np.asarray(keys)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, for a dataset that was imported from tables; empty without names."""
        return self._native.names()[1]

    @property
    def class_columns(self) -> dict[str, int]:
        """Number of classes of each column; empty unless nodes have a class in each of several columns."""
        return dict(self._native.class_columns)

    @property
    def feature_names(self) -> list[str]:
        """Names of the feature columns, for a dataset that was imported from tables; empty without names."""
        return self._native.names()[0]

    def _mask(self, part: str) -> np.ndarray:
        mask = np.zeros(self.num_nodes, bool)
        mask[self._native.part(part)] = True
        return mask

    train_mask = cached_property(lambda self: self._mask("train"))
    val_mask = cached_property(lambda self: self._mask("valid"))
    test_mask = cached_property(lambda self: self._mask("test"))
    for _mask_of in (train_mask, val_mask, test_mask):
        _mask_of.__doc__ = "Mask of the nodes in the part (``V``, bool)."
        del _mask_of

    def _store_columns(self) -> dict[Any, dict[str, Any]]:
        columns: dict[str, Any] = {name: (lambda name=name: getattr(self, name)) for name in ("train_mask", "val_mask", "test_mask")}
        if self.num_features:
            columns["x"] = lambda: self.x
        if self.num_classes:
            columns["y"] = lambda: self.y
        return {None: columns}

    def _store_edges(self) -> dict[tuple[str, str, str], tuple[Any, Any, tuple[int, int]]]:
        return {("node", "to", "node"): (self.indptr, self.indices, (self.num_nodes, self.num_nodes))}

    @property
    def original_ids(self) -> np.ndarray | None:
        """Ids of the nodes before the dataset was reordered (``V``), or ``None``."""
        return self._native.original_ids()

    @property
    def import_report(self) -> dict[str, Any] | None:
        """Counts of merged, dropped, added and ignored items of an import.

        ``None`` for a dataset that an import did not return. Of :meth:`from_tables`: ``nodes`` and
        ``edges``, a dict per type with the roles of its ``columns``. Of :func:`import_dataset`: ``source_edges``,
        ``reverse_edges_added``, ``self_loops_removed``, ``self_loops_kept``,
        ``duplicate_edges_merged``, ``duplicate_edges_summed``, ``nodes_dropped``, ``edges_dropped``
        and ``missing_labels`` are counts, ``ignored_columns`` and ``ignored_parts`` lists of names,
        ``normalization`` describes the scaling of the features, and ``other`` holds counts of a
        single format.
        """
        report = self._native.import_report()
        return None if report is None else json.loads(report)

    def __getstate__(self) -> dict[str, Any]:
        if self.path is not None:
            return {"path": os.path.abspath(self.path)}
        y = self._native.y()
        csc = {"indptr": self.indptr, "indices": self.indices, "edge_weight": self.edge_weight}
        of_values = y is not None and y.dtype == np.float32
        arrays = {**csc, "x": self.x, "values" if of_values else "y": y}
        return {
            "arrays": {name: None if array is None else np.array(array) for name, array in arrays.items()},
            "parts": [np.array(self.train), np.array(self.valid), np.array(self.test)],
            "rest": {"layout": "csc", "num_classes": None if of_values else self.num_classes or None, "metric": self.metric, "name": self.name},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._owner = None
        if "path" in state:
            self._native = _graphmill.Dataset.open(state["path"], False)
            return
        train, valid, test = state["parts"]
        made = Dataset.from_arrays(**state["arrays"], train_mask=train, val_mask=valid, test_mask=test, **state["rest"])
        self._native = made._native

    def __repr__(self) -> str:
        return (
            f"Dataset('{self.name}', num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_features={self.num_features}, num_classes={self.num_classes})"
        )

    def _repr_html_(self) -> str:
        split = [(part, len(self._native.part(part))) for part in ("train", "valid", "test")]
        features, labels = "", ""
        if self.num_features:
            features = f"{self.num_features:,}{' (sparse)' if self._native.has_sparse_features else ''}"
        if self.num_classes:
            of_values = self._native.y().dtype == np.float32
            labels = f"{self.num_classes:,} {'labels per node' if self.is_multilabel else 'values per node' if of_values else 'classes'}"
        rows = [
            ("directory", self.path),
            ("nodes", f"{self.num_nodes:,}"),
            ("edges", f"{self.num_edges:,}"),
            ("features", features or "none"),
            ("targets", labels or "none"),
            ("split", ", ".join(f"{part} {nodes:,}" for part, nodes in split)),
            ("metric", self.metric),
            ("keys", self._native.key_type),
        ]
        return show.table(f"Dataset {self.name}", rows)

    def __str__(self) -> str:
        return str(self._native)


@overload
def generate(
    generator: Literal["typed", "igbh"],
    out: str | os.PathLike[str] | None = ...,
    *,
    replace: bool = ...,
    memory: int | None = ...,
    progress: bool | None = ...,
    **options: Any,
) -> TypedDataset: ...


@overload
def generate(
    generator: str = ...,
    out: str | os.PathLike[str] | None = ...,
    *,
    replace: bool = ...,
    memory: int | None = ...,
    progress: bool | None = ...,
    **options: Any,
) -> Dataset: ...


def generate(
    generator: str = "sbm",
    out: str | os.PathLike[str] | None = None,
    *,
    replace: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Dataset | TypedDataset:
    """Generates a dataset in memory, or as a directory that may be larger than memory.

    The same options give the same dataset.

    Args:
        generator: ``"sbm"`` (a block model with labels to learn), ``"kronecker"`` (a skewed
            graph, like R-MAT), and of several types ``"typed"`` (papers, authors, topics and
            institutions, whose classes follow from relations) or ``"igbh"`` (the shape of IGB-H).
        out: Directory to write. ``None`` generates in memory.
        replace: Replaces a dataset at ``out``.
        memory: Memory budget in bytes, which needs ``out``.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook.
        **options: Options of ``graphmill generate``: ``nodes``, ``scale``, ``degree``, ``classes``,
            ``dim``, ``signal``, ``p_in``, ``seed``, ...

    Returns:
        A :class:`Dataset`, or a :class:`TypedDataset` of ``"typed"`` and ``"igbh"``.

    Raises:
        ValueError: The generator or an option is unknown, or a value is out of range.
        OSError: The directory cannot be written.
    """
    out = None if out is None else os.fspath(out)
    with watch(progress) as observe:
        one, several = _graphmill.generate(generator, json.dumps(options), out, replace, memory, observe)
    return TypedDataset._of(several) if one is None else Dataset._of(one)


def import_dataset(
    format: str,
    src: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    replace: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Dataset | TypedDataset:
    """Imports a graph in another library's format as a dataset directory, and opens it.

    The directory appears whole or not at all. A killed import resumes when it is called again;
    Ctrl-C cancels it and removes the partial work.

    Args:
        format: A format of ``graphmill import``: ``"npz"``, ``"planetoid"``, ``"ogb"``,
            ``"graphsaint"``, ``"graphbolt"``, ``"edges"``, ..., or of typed graphs, links and
            events: ``"hgb"``, ``"triples"``, ``"temporal"``, ... ``"relbench"`` is a directory of
            RelBench's cache. Tables of your own are read by :meth:`Dataset.from_tables`.
        src: File, directory or address to read. The objects of an address (``s3://``, ``gs://``,
            ``az://``, ``https://``) are copied beside ``out`` first, and removed at the end.
        out: Directory to write.
        replace: Replaces a dataset at ``out``.
        memory: Memory budget in bytes.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook.
        **options: Options of ``graphmill import``: ``undirected``, ``largest_component``,
            ``normalize``, ``split``, ``features``, ..., and of typed graphs ``add_reverses``,
            ``valid_fraction``, ``test_fraction``, ``no_literals``, ...; of RelBench ``task``,
            ``target_task``, ``dangling`` and ``name``.

    Returns:
        The dataset; a :class:`TypedDataset` if it has several types, or another task than the
        classification of nodes. Its ``import_report`` counts merged, dropped, added and ignored
        items.

    Raises:
        TypeError: An option is unknown.
        ValueError: The format is unknown, a value is out of range, or the source is invalid.
        OSError: A file cannot be read or written.
    """
    words = [(name, os.fspath(v) if isinstance(v, os.PathLike) else str(v)) for name, v in options.items() if v is not None]
    with watch(progress) as observe:
        one, several = _graphmill.import_dataset(format, os.fspath(src), os.fspath(out), words, replace, memory, observe)
    return TypedDataset._of(several) if one is None else Dataset._of(one)


def append(
    dataset: str | os.PathLike[str] | Dataset | TypedDataset,
    out: str | os.PathLike[str],
    *,
    nodes: Any = None,
    edges: Any = None,
    targets: Any = None,
    end_nodes: Any = None,
    end_edges: Any = None,
    changed: str = "fail",
    split: str | dict[str, str] | None = None,
    seed: int = 0,
    dangling: str = "error",
    name: str | None = None,
    replace: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
) -> Dataset | TypedDataset:
    """Writes a dataset with the rows of further tables, like ``graphmill append``, and opens it.

    Nodes, edges of a destination and rows of tasks keep their order, and new ones follow. Columns
    are encoded by the statistics of the import. ``dataset`` does not change.

    Args:
        dataset: Dataset that :meth:`Dataset.from_tables`, ``graphmill import tables`` or this
            function wrote to a directory, or the directory.
        out: Directory to write.
        nodes: Table of new nodes, with the columns of the import, as of
            :meth:`Dataset.from_tables`; of several node types a dict of tables by type.
        edges: Table of new edges; of several edge tables a dict by edge type, such as ``"buys"`` or
            ``("user", "buys", "item")``.
        targets: Table of new targets; of several tables a dict by task.
        end_nodes: Table of keys of nodes that end, as ``nodes``: they lose all edges, labels and rows
            of targets, before rows are added. They keep their numbers.
        end_edges: Table of pairs of keys of edges that end, as ``edges``.
        changed: Rows of nodes that ``dataset`` has: ``"fail"``, ``"replace"`` (the columns of the node;
            an empty label keeps that of the node) or ``"keep"``.
        split: Rule that divides the new rows with labels, or a dict of rules by task. Default: that
            of the import.
        seed: Seed of random splits.
        dangling: Edges to nodes that neither side has: ``"error"``, ``"drop"`` or ``"add"``.
            ``"drop"`` also leaves out ends that name a node or an edge that ``dataset`` does not have.
        name: Name of the new dataset. Default: that of ``dataset``.
        replace: Replaces a dataset at ``out``.
        memory: Memory budget in bytes.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook.

    Raises:
        TypeError: A table has a type that is not read.
        ValueError: Tables have faults, such as a node that ``dataset`` has; all of them are listed.
            Or ``dataset`` was not imported from tables.
        OSError: A file cannot be read or written.

    Example:
        >>> import graphmill, tempfile
        >>> path = tempfile.mkdtemp()
        >>> nodes, edges = {"id": ["a", "b"], "age": [31, 45]}, {"from": ["a"], "to": ["b"]}
        >>> data = graphmill.Dataset.from_tables(nodes, edges, id="id", src="from", dst="to", path=path + "/monday")
        >>> more = {"id": ["c"], "age": [38]}
        >>> longer = graphmill.append(data, path + "/tuesday", nodes=more, edges={"from": ["c"], "to": ["a"]})
        >>> longer.keys.tolist()
        ['a', 'b', 'c']
        >>> later = graphmill.append(longer, path + "/wednesday", end_edges={"from": ["a"], "to": ["b"]})
        >>> later.num_edges, later.num_nodes
        (1, 3)
    """
    base = getattr(dataset, "path", None) or dataset
    if isinstance(base, (Dataset, TypedDataset)):
        raise ValueError(f"dataset: {base.name} is in memory, without statistics of columns; pass one of from_tables with a path")
    named = tables.Tables()
    given = {"nodes": nodes, "edges": edges, "targets": targets, "ends of nodes": end_nodes, "ends of edges": end_edges}
    files = [named.of_types(table, which) for which, table in given.items()]
    splits = [f"{task}={rule}" for task, rule in split.items()] if isinstance(split, dict) else [split] if split else []
    with watch(progress) as observe:
        one, several = _graphmill.append_tables(
            os.fspath(base), (files, named.memory), (splits, seed, dangling, changed, name), (os.fspath(out), replace), memory, observe
        )
    return TypedDataset._of(several) if one is None else Dataset._of(one)


def plan_tables(
    nodes: Any = None, edges: Any = None, *, schema: Any = None, like: str | os.PathLike[str] | None = None, **options: Any
) -> TablePlan:
    """Roles that :meth:`Dataset.from_tables` would give to the columns of tables. Writes nothing.

    Args:
        nodes, edges, schema, like: As of :meth:`Dataset.from_tables`.
        **options: Its other arguments that describe tables, such as ``targets``.

    Returns:
        A plan: ``str(plan)`` is for a person, ``plan.report`` the same as a dict, and
        ``plan.schema`` the text of a schema file with the inferred types, to be edited.

    Raises:
        TypeError, ValueError, OSError: As of :meth:`Dataset.from_tables`.
    """
    for option in options:
        if option not in tables.OPTIONS:
            raise TypeError(f"plan_tables() has no option '{option}'")
    like = getattr(like, "path", None) or like
    described = tables.schema_of(nodes, edges, options, schema)
    text, report, file = _graphmill.plan_tables(described, None if like is None else os.fspath(like))
    return TablePlan(text, json.loads(report), file)


class TablePlan:
    """Roles of the columns of tables: ``report``, a dict, and ``schema``, the text of a schema file."""

    def __init__(self, text: str, report: dict[str, Any], schema: str):
        self._text, self.report, self.schema = text, report, schema

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__
