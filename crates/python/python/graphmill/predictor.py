"""A run that stays open and answers for single nodes, known or new."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of, is_tensor
from .given import DatasetLike, RunLike, native_of, run_directory


class Answers(NamedTuple):
    """Answers for ``N`` nodes."""

    #: Class of each node (``N``, int64), or ``None`` if the run learned labels or values.
    classes: np.ndarray | None
    #: Probabilities of the classes or labels, or values (``N x C``, float32).
    scores: np.ndarray


class Predictor:
    """A run's dataset and model, read once, and answers for nodes from any thread.

    :func:`predict` reads both for every call. Exact answers are the same to the bit. A run on several
    node types answers for the nodes of its task's type, :attr:`node_type`.

    Args:
        run: Run, or its directory.
        dataset: Dataset to answer for. ``None`` takes the run's dataset, unless that was in memory.
        last: Uses the last checkpoint instead of the best model.

    Raises:
        ValueError, OSError: The run does not exist, its model does not fit the dataset, or it
            learned links.
    """

    def __init__(
        self,
        run: RunLike,
        *,
        dataset: DatasetLike | None = None,
        last: bool = False,
    ) -> None:
        self._native = _graphmill.Predictor(run_directory(run), native_of(dataset), last)

    def predict(
        self, nodes: Any = None, *, keys: Sequence[Any] | None = None, seed: int | None = None
    ) -> Answers:
        """Answers for nodes, in their order.

        Args:
            nodes: Node ids (``N``).
            keys: Keys of the nodes instead, of a dataset that was imported from tables. Parts of a
                key of several columns are joined by ``|``.
            seed: Seed of the neighbours that the run's sampler draws; ``None`` reads all. The
                answer for a node is a function of the run, the node and the seed.

        Raises:
            ValueError: A node or key is unknown, or the sampler draws for several nodes at once.
        """
        if (nodes is None) == (keys is None):
            raise TypeError("predict: pass either nodes or keys")
        if keys is not None:
            ids = self._native.find([str(key) for key in keys])
        else:
            ids = array_of(nodes if is_tensor(nodes) else np.asarray(nodes), "nodes")
        return self._answers(self._native.predict(ids, seed))

    def predict_new(
        self,
        x: Any,
        edge_index: Any = None,
        *,
        edge_weight: Any = None,
        undirected: bool = False,
        seed: int | None = None,
    ) -> Answers:
        """Answers for new nodes, as if they and their edges were in the dataset, which does not change.

        Each call joins its nodes to a copy of the graph. New nodes as rows of tables are predicted
        by :func:`predict` with ``on=``.

        Args:
            x: Feature rows (``N x F``) at the scale of the dataset's ``x``. With several node types, a
                dict of rows by type.
            edge_index: Sources and destinations (``2 x E``): the destination reads the source. Known
                nodes have their ids, and row ``i`` of ``x`` has the id ``V + i``, where ``V`` is the
                number of known nodes. With several node types, a dict by edge type, such as
                ``("user", "rates", "movie")`` or ``"rates"``, with ids of the two types.
            edge_weight: Weights of the edges (``E``), which count if the graph has weights. Default
                1. With several node types, a dict by edge type.
            undirected: Reads every edge in both directions. With several node types, adds it to the
                reverse of its edge type too.
            seed: As of :meth:`predict`.

        Returns:
            Answers in the order of the rows, those of :attr:`node_type`.

        Warns:
            UserWarning: Edges between known nodes were left out.

        Raises:
            TypeError: An array has a wrong type.
            ValueError: Rows have another width, an id is out of range, or the sampler draws for
                several nodes at once.
        """
        if isinstance(x, dict):
            rows = [(str(name), _rows(part, f"x[{name!r}]")) for name, part in x.items()]
            weights = {} if edge_weight is None else edge_weight
            given = {} if edge_index is None else edge_index
            if not isinstance(given, dict) or not isinstance(weights, dict):
                raise TypeError("predict_new: x is a dict of node types; pass edge_index and edge_weight as dicts of edge types")
            unknown = [name for name in weights if name not in given]
            if unknown:
                raise ValueError(f"edge_weight: edge_index has no edges {unknown[0]!r}")
            edges = [(_edge_type(name), *_edges(part, weights.get(name), f"[{name!r}]")) for name, part in given.items()]
            answers, known = self._native.predict_new_types(rows, edges, undirected, seed)
        else:
            ends = np.zeros((2, 0), np.int64) if edge_index is None else edge_index
            answers, known = self._native.predict_new(_rows(x, "x"), _edges(ends, edge_weight, ""), undirected, seed)
        if known:
            warnings.warn(f"{known} edges between known nodes were left out; only edges of new nodes are joined", UserWarning, stacklevel=2)
        return self._answers(answers)

    def _answers(self, found: tuple[np.ndarray, np.ndarray]) -> Answers:
        classes, scores = found
        scores = scores.reshape(-1, self._native.num_scores)
        return Answers(classes if self.task == "classes" else None, scores)

    @property
    def task(self) -> str:
        """``"classes"``, ``"labels"`` or ``"values"``."""
        return self._native.task

    @property
    def node_type(self) -> str | None:
        """Type of the nodes that the run predicts; ``None`` if the dataset has one type."""
        return self._native.node_type

    @property
    def class_names(self) -> list[str]:
        """Names of the classes; empty if they have none."""
        return self._native.class_names

    def __repr__(self) -> str:
        return f"Predictor({self._native.num_nodes} nodes, {self.task})"


def _rows(x: Any, name: str) -> np.ndarray:
    """Feature rows."""
    rows = array_of(x if is_tensor(x) else np.asarray(x), name)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected two dimensions of numbers, not shape {rows.shape} of {rows.dtype}")
    return rows.astype(np.float32)


def _edges(edge_index: Any, edge_weight: Any, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, destinations and weights of edges; ``key`` stands behind their names in messages."""
    edges = array_of(edge_index if is_tensor(edge_index) else np.asarray(edge_index), "edge_index")
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edge_index{key}: expected shape (2, E), not {edges.shape}")
    weight = np.ones(edges.shape[1], np.float32) if edge_weight is None else array_of(edge_weight, "edge_weight").astype(np.float32)
    if weight.shape != (edges.shape[1],):
        raise ValueError(f"edge_weight{key}: expected shape ({edges.shape[1]},), not {weight.shape}")
    return edges[0], edges[1], weight


def _edge_type(name: Any) -> str:
    """Name of an edge type, which may be a tuple of source, name and destination."""
    return ":".join(name) if isinstance(name, tuple) else str(name)
