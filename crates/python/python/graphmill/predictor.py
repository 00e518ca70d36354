"""A run that stays open and answers for single nodes."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of, is_tensor
from .given import DatasetLike, RunLike, any_types, run_directory


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
        native = None if dataset is None else any_types(dataset)._native
        self._native = _graphmill.Predictor(run_directory(run), native, last)

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
        classes, scores = self._native.predict(ids, seed)
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
