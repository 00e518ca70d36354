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
    """A run's dataset and model, read once, and answers for known nodes from any thread.

    :func:`predict` reads both for every call. Exact answers are the same to the bit.

    Args:
        run: Run, or its directory.
        dataset: Dataset to answer for. ``None`` takes the run's dataset, unless that was in memory.
        last: Uses the last checkpoint instead of the best model.

    Raises:
        ValueError, OSError: The run does not exist, its model does not fit the dataset, or it
            learned links or several node types.
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
            x: Feature rows (``N x F``) at the scale of the dataset's ``x``.
            edge_index: Sources and destinations (``2 x E``): the destination reads the source. Known
                nodes have their ids, and row ``i`` of ``x`` has the id ``V + i``, where ``V`` is the
                number of known nodes.
            edge_weight: Weights of the edges (``E``), which count if the graph has weights. Default
                1.
            undirected: Reads every edge in both directions.
            seed: As of :meth:`predict`.

        Returns:
            Answers in the order of the rows.

        Warns:
            UserWarning: Edges between known nodes were left out.

        Raises:
            TypeError: An array has a wrong type.
            ValueError: Rows have another width, an id is out of range, or the sampler draws for
                several nodes at once.
        """
        rows = array_of(x if is_tensor(x) else np.asarray(x), "x")
        if rows.ndim != 2 or rows.dtype.kind not in "fiub":
            raise TypeError(f"x: expected two dimensions of numbers, not shape {rows.shape} of {rows.dtype}")
        given = np.zeros((2, 0), np.int64) if edge_index is None else edge_index
        edges = array_of(given if is_tensor(given) else np.asarray(given), "edge_index")
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise ValueError(f"edge_index: expected shape (2, E), not {edges.shape}")
        weight = np.ones(edges.shape[1], np.float32) if edge_weight is None else array_of(edge_weight, "edge_weight").astype(np.float32)
        if weight.shape != (edges.shape[1],):
            raise ValueError(f"edge_weight: expected shape ({edges.shape[1]},), not {weight.shape}")
        answers, known = self._native.predict_new(rows.astype(np.float32), (edges[0], edges[1], weight), undirected, seed)
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
    def class_names(self) -> list[str]:
        """Names of the classes; empty if they have none."""
        return self._native.class_names

    def __repr__(self) -> str:
        return f"Predictor({self._native.num_nodes} nodes, {self.task})"
