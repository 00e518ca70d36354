"""Graphs with features, labels and a split."""

from __future__ import annotations

import json
import os
import warnings
from functools import cached_property
from typing import Any

import numpy as np

from . import _graphmill
from ._frameworks import array_of, edges_of_scipy, find, is_pyg, is_scipy
from .loader import input_nodes_of
from .progress import watch


def sources_of(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """The source of each edge of compressed rows."""
    if indptr.dtype.kind not in "iu" or indptr.ndim != 1 or not len(indptr):
        raise ValueError(f"indptr: one dimension of whole numbers is expected, not shape {indptr.shape} of {indptr.dtype}")
    indptr = indptr.astype(np.int64)
    for v in np.flatnonzero(indptr < 0)[:1]:
        raise ValueError(f"indptr[{v}] is {indptr[v]}: row starts are not negative")
    counts = np.diff(indptr)
    if indptr[0] != 0 or indptr[-1] != len(indices) or (counts < 0).any():
        raise ValueError(f"indptr: ascending row starts from 0 to {len(indices)}, the length of indices, are expected")
    return np.repeat(np.arange(len(counts)), counts)


class Dataset:
    """A graph with features, labels and a split, in memory or mapped from a directory.

    Arrays are views of what Rust holds, without a copy, and read-only: ``indptr`` (``V + 1``), ``indices`` (``E``, the in-neighbours of each node),
    ``x`` (``V x F``), ``edge_weight`` (``E``), ``train``, ``valid`` and ``test`` (ids, ascending). Edges are numbered by their place in ``indices``: so are ``edge_index``
    and a loader's ``e_id``.

    ``Dataset(path)`` opens a directory as ``graphmill generate`` and ``graphmill import`` write it; ``verify`` reads and checks all of it first.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file is not what it should be.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False):
        if not os.path.isdir(path):
            raise FileNotFoundError(f"{os.fspath(path)}: there is no such directory; graphmill.import_dataset() and generate() make datasets")
        self._native = _graphmill.Dataset.open(os.fspath(path), verify)

    @classmethod
    def _of(cls, native: _graphmill.Dataset) -> Dataset:
        self = cls.__new__(cls)
        self._native = native
        return self

    @classmethod
    def demo(cls) -> Dataset:
        """The built-in demo: 50,000 nodes in ten classes, made in a tenth of a second."""
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
        num_classes: int | None = None,
        train_mask: Any = None,
        val_mask: Any = None,
        test_mask: Any = None,
        edge_weight: Any = None,
        undirected: bool = False,
        layout: str | None = None,
        metric: str | None = None,
        name: str = "arrays",
    ) -> Dataset:
        """A dataset of arrays or tensors, which are copied.

        Args:
            edge_index: ``2 x E``: sources, destinations. Edges are sorted by destination, then source. Or a sparse matrix of SciPy
                (``V x V``, any format): ``A[i, j]`` is an edge from ``i`` to ``j``, and its value the edge's weight where not all are 1;
                entries at the same place are summed, and those of value 0 are no edges.
            indptr, indices: In its place compressed rows or columns, as ``layout`` says.
            layout: ``"csc"``: ``indptr`` and ``indices`` hold the in-neighbours of each node, as :attr:`indptr` and
                :attr:`indices` do; ``"csr"``: the out-neighbours, as those of SciPy's ``csr_matrix`` do.
            num_nodes: ``V``; by default that of ``x``, ``y`` or ``indptr``.
            x: ``V x F`` of float32 or float16 (others are converted to float32), as the source has them: arrays do not say how they
                were normalized. Those of a dataset that was imported with ``normalize`` are standardized already, and a run on it would
                bring them to its scale a second time; give :func:`predict` that dataset itself, or train on these arrays.
            y: ``V`` classes (-1 where unknown), or ``V x C`` zeros and ones where nodes have several.
            train_mask, val_mask, test_mask: Masks (``V``) or ids; they must not overlap.
            edge_weight: ``E``, at least 0.
            undirected: Whether every edge is stored both ways, without duplicates and self-loops.
            metric: The score that it is judged by: "accuracy", "f1-micro", "f1-macro", "roc-auc" or "average-precision".

        Raises:
            TypeError: An array of a wrong type.
            ValueError: Arrays that disagree, an id that is no node, features that are not finite, parts that overlap.
        """
        if (edge_index is None) == (indptr is None or indices is None):
            raise ValueError("give either edge_index, or indptr and indices")
        if edge_index is None and layout not in ("csc", "csr"):
            raise ValueError(
                f"layout {layout!r}: indptr and indices need layout='csc' (in-neighbours of each node) or "
                "layout='csr' (out-neighbours of each node, as in scipy.sparse.csr_matrix)"
            )
        if edge_index is not None and layout is not None:
            raise ValueError(f"layout {layout!r}: it is that of indptr and indices; leave it out with edge_index")
        if is_scipy(edge_index):
            if edge_weight is not None:
                raise ValueError("edge_weight: the values of a sparse edge_index are the weights; leave it out")
            edge_index, edge_weight, nodes = edges_of_scipy(edge_index)
            if num_nodes is not None and num_nodes != nodes:
                raise ValueError(f"num_nodes {num_nodes}: the sparse edge_index has {nodes} rows")
            num_nodes = nodes
        x = None if x is None else array_of(x, "x")
        if x is not None and (x.ndim != 2 or x.dtype.kind not in "fiub"):
            raise TypeError(f"x: two dimensions of numbers are expected, not shape {x.shape} of {x.dtype}")
        if x is not None and x.dtype not in (np.float32, np.float16):
            x = x.astype(np.float32)
        y = None if y is None else array_of(y, "y")
        if y is not None and y.ndim == 2 and y.shape[1] == 1:
            y = np.ascontiguousarray(y[:, 0])
        if y is not None and y.ndim == 2:
            if not np.isin(y, (0, 1)).all():
                raise ValueError("y: a matrix of labels holds zeros and ones")
            y = y.astype(np.uint8)
        elif y is not None:
            if y.dtype.kind not in "iu" or y.ndim != 1:
                raise TypeError(f"y: whole numbers are expected, not shape {y.shape} of {y.dtype}")
            y = y.astype(np.int64)
        columns = layout == "csc"
        if layout is not None:
            src, dst = array_of(indptr, "indptr"), array_of(indices, "indices")
            num_nodes = len(src) - 1 if num_nodes is None else num_nodes
            if num_nodes != len(src) - 1:
                raise ValueError(f"indptr: {len(src)} entries for {num_nodes} nodes: one more than nodes are expected")
            if columns and undirected:
                raise ValueError("undirected: compressed columns are taken as they are; give edge_index")
            if not columns:
                src = sources_of(src, dst)
        else:
            edges = array_of(edge_index, "edge_index")
            if edges.ndim != 2 or edges.shape[0] != 2:
                raise ValueError(f"edge_index: shape (2, E) is expected, not {edges.shape}")
            src, dst = edges
        if num_nodes is None:
            known = [len(a) for a in (x, y) if a is not None]
            if not known:
                raise ValueError("give num_nodes, x or y: edges do not tell how many nodes there are")
            num_nodes = known[0]
        weight = None
        if edge_weight is not None:
            weight = array_of(edge_weight, "edge_weight").astype(np.float32)
            if weight.shape != (len(dst),):
                raise ValueError(f"edge_weight: shape ({len(dst)},) is expected, not {weight.shape}")
        parts = [
            np.zeros(0, np.int64) if part is None else input_nodes_of(part, num_nodes)[0]
            for part in (train_mask, val_mask, test_mask)
        ]
        return cls._of(
            _graphmill.Dataset.from_arrays(
                name, int(num_nodes), src=src, dst=dst, columns=columns, x=x, y=y, classes=num_classes, parts=parts,
                weight=weight, undirected=undirected, metric=metric,
            )
        )  # fmt: skip

    @classmethod
    def from_pyg(cls, data: Any, *, metric: str | None = None, name: str = "pyg") -> Dataset:
        """The dataset of a ``torch_geometric.data.Data`` with ``x``, ``y`` and masks."""
        if not is_pyg(data):
            raise TypeError(f"a torch_geometric.data.Data is expected, not {type(data).__name__}")
        get = data.to_dict().get
        names = ("x", "y", "train_mask", "val_mask", "test_mask")
        return cls.from_arrays(
            edge_index=data.edge_index, num_nodes=data.num_nodes, metric=metric, name=name,
            **{key: get(key) for key in names},
        )  # fmt: skip

    def to_pyg(self) -> Any:
        """The same as a ``torch_geometric.data.Data``. ``x`` shares its memory with the dataset where it is dense float32: do not write to it."""
        torch, pyg = find("torch"), find("torch_geometric.data")
        if torch is None or pyg is None:
            raise ImportError("to_pyg() needs torch and torch_geometric")

        def tensor(array: np.ndarray | None) -> Any:
            with warnings.catch_warnings():
                # that a tensor over read-only memory must not be written to is said above
                warnings.simplefilter("ignore", UserWarning)
                return None if array is None else torch.from_numpy(array)

        y = self.y
        return pyg.Data(
            x=tensor(self.x),
            y=tensor(y.astype(np.float32) if y is not None and y.ndim == 2 else y),
            edge_index=tensor(self.edge_index),
            edge_weight=tensor(self.edge_weight),
            train_mask=tensor(self.train_mask),
            val_mask=tensor(self.val_mask),
            test_mask=tensor(self.test_mask),
            num_nodes=self.num_nodes,
        )

    def save(self, path: str | os.PathLike[str], *, replace: bool = False) -> None:
        """Writes it as a directory, which appears whole or not at all.

        Raises:
            OSError: It cannot be written.
            ValueError: There is something already, and ``replace`` is not given.
        """
        self._native.save(os.fspath(path), replace)

    name = property(lambda self: self._native.name, doc="What it is called.")
    path = property(lambda self: self._native.path, doc="The directory that it was opened from or written to, or ``None``.")
    metric = property(lambda self: self._native.metric, doc="The score that it is judged by, where that is known.")
    num_nodes = property(lambda self: self._native.num_nodes, doc="``V``.")
    num_edges = property(lambda self: self._native.num_edges, doc="``E``, every stored direction counted.")
    num_features = property(lambda self: self._native.num_features, doc="``F``; 0 where there are none.")
    num_classes = property(lambda self: self._native.num_classes, doc="``C``; 0 where there are no labels.")
    is_multilabel = property(lambda self: self._native.is_multilabel, doc="Whether nodes have several labels.")

    @property
    def indptr(self) -> np.ndarray:
        """Where each node's in-neighbours begin (``V + 1``, uint64)."""
        return self._native.indptr()

    @property
    def indices(self) -> np.ndarray:
        """In-neighbours, node after node (``E``, uint32)."""
        return self._native.indices()

    @cached_property
    def edge_index(self) -> np.ndarray:
        """Sources and destinations (``2 x E``, int64): made when first asked for."""
        destinations = np.repeat(np.arange(self.num_nodes), np.diff(self.indptr.view(np.int64)))
        return np.stack([self.indices.astype(np.int64), destinations])

    @property
    def edge_weight(self) -> np.ndarray | None:
        """Weight of each edge (``E``, float32)."""
        return self._native.edge_weight()

    @cached_property
    def x(self) -> np.ndarray | None:
        """Features (``V x F``); of sparse rows a dense copy, made when first asked for."""
        return self._native.x()

    @cached_property
    def y(self) -> np.ndarray | None:
        """Class of each node (``V``, int64; -1 where unknown), or memberships (``V x C``, uint8)."""
        y = self._native.y()
        return y.astype(np.int64) if y is not None and y.ndim == 1 else y

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

    def _mask(self, part: str) -> np.ndarray:
        mask = np.zeros(self.num_nodes, bool)
        mask[self._native.part(part)] = True
        return mask

    train_mask = cached_property(lambda self: self._mask("train"))
    val_mask = cached_property(lambda self: self._mask("valid"))
    test_mask = cached_property(lambda self: self._mask("test"))
    for _mask_of in (train_mask, val_mask, test_mask):
        _mask_of.__doc__ = "Which nodes are of the part (``V``, bool)."
        del _mask_of

    @property
    def original_ids(self) -> np.ndarray | None:
        """What nodes were called before the dataset was reordered (``V``), or ``None``."""
        return self._native.original_ids()

    @property
    def import_report(self) -> dict[str, Any] | None:
        """Counts of what :func:`import_dataset` merged, dropped, added or ignored, or ``None`` for a dataset that it did not return.

        ``source_edges``, ``reverse_edges_added``, ``self_loops_removed``, ``self_loops_kept``, ``duplicate_edges_merged``, ``duplicate_edges_summed``,
        ``nodes_dropped``, ``edges_dropped`` and ``missing_labels`` are counts, ``ignored_columns`` and ``ignored_parts`` lists of names, ``normalization`` says what was done to the features, and ``other`` holds counts of a single format.
        """
        report = self._native.import_report()
        return None if report is None else json.loads(report)

    def __getstate__(self) -> dict[str, Any]:
        if self.path is not None:
            return {"path": os.path.abspath(self.path)}
        y = self._native.y()
        csc = {"indptr": self.indptr, "indices": self.indices, "edge_weight": self.edge_weight}
        arrays = {**csc, "x": self.x, "y": y}
        return {
            "arrays": {name: None if array is None else np.array(array) for name, array in arrays.items()},
            "parts": [np.array(self.train), np.array(self.valid), np.array(self.test)],
            "rest": {"layout": "csc", "num_classes": self.num_classes or None, "metric": self.metric, "name": self.name},
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
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

    def __str__(self) -> str:
        return str(self._native)


def generate(
    generator: str = "sbm",
    out: str | os.PathLike[str] | None = None,
    *,
    replace: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Dataset:
    """Generates a dataset, the same for the same options: in memory, or with ``out`` as a directory, which may be larger than memory.

    Args:
        generator: ``"sbm"`` (a block model that models can learn) or ``"kronecker"`` (a graph like R-MAT).
        out: The directory to write.
        replace: Whether a dataset that is there is replaced.
        memory: Bytes of memory to keep to (with ``out``).
        progress: Whether progress is shown; ``None``: where there is a terminal or a notebook.
        **options: As of ``graphmill generate``: ``nodes``, ``scale``, ``degree``, ``classes``, ``dim``, ``signal``, ``p_in``, ``seed``, ...

    Raises:
        ValueError: No such generator or option, or options that nothing can be made of.
        OSError: The directory cannot be written.
    """
    out = None if out is None else os.fspath(out)
    with watch(progress) as observe:
        return Dataset._of(_graphmill.generate(generator, json.dumps(options), out, replace, memory, observe))


def import_dataset(
    format: str,
    src: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    replace: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Dataset:
    """Imports a graph in one of the field's formats as a dataset directory, which appears whole or not at all, and opens it.

    Args:
        format: ``"npz"``, ``"planetoid"``, ``"ogb"``, ``"graphsaint"``, ``"graphbolt"``, ``"edges"``, ...: as of ``graphmill import``.
        src: The file or directory to read.
        out: The directory to write.
        replace: Whether a dataset that is there is replaced.
        memory: Bytes of memory to keep to.
        progress: Whether progress is shown; ``None``: where there is a terminal or a notebook.
        **options: As of ``graphmill import``: ``undirected``, ``largest_component``, ``normalize``, ``split``, ``features``, ...

    Returns:
        The dataset; its ``import_report`` counts what was merged, dropped, added or ignored.

    Raises:
        TypeError: No such option.
        ValueError: No such format, a wrong value, or a source that is not what it should be.
        OSError: A file cannot be read or written.
    """
    words = [(name, os.fspath(v) if isinstance(v, os.PathLike) else str(v)) for name, v in options.items() if v is not None]
    with watch(progress) as observe:
        return Dataset._of(
            _graphmill.import_dataset(format, os.fspath(src), os.fspath(out), words, replace, memory, observe)
        )
