"""Metrics of rankings: scored candidates of queries, some of which are relevant.

Each function takes ``scores`` and ``labels`` (true for relevant candidates) as arrays or tensors of
one shape: ``Q x C`` (a row for each query), ``C`` (one query), or ``C`` with ``groups`` (the query
of each candidate). The rank of a relevant candidate is the mean of its best and its worst rank among
ties, so that constant scores do not look perfect; a score that is NaN ranks last. A query without a
relevant candidate does not count, and the result is NaN if there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _graphmill
from ._frameworks import array_of

__all__ = ["auc", "average_precision", "hits_at_k", "map_at_k", "mrr", "ndcg_at_k", "precision_at_k", "recall_at_k"]


def mrr(scores: Any, labels: Any, groups: Any = None) -> float:
    """Mean reciprocal rank of the first relevant candidate."""
    return _metric("mrr", scores, labels, groups)


def hits_at_k(scores: Any, labels: Any, k: int, groups: Any = None) -> float:
    """Share of the queries with a relevant candidate among the first ``k``."""
    return _metric("hits", scores, labels, groups, k)


def recall_at_k(scores: Any, labels: Any, k: int, groups: Any = None) -> float:
    """Share of a query's relevant candidates that are among the first ``k``, averaged over queries."""
    return _metric("recall", scores, labels, groups, k)


def precision_at_k(scores: Any, labels: Any, k: int, groups: Any = None) -> float:
    """Share of the first ``k`` candidates that are relevant, averaged over queries."""
    return _metric("precision", scores, labels, groups, k)


def ndcg_at_k(scores: Any, labels: Any, k: int, groups: Any = None) -> float:
    """Discounted gain of the relevant candidates among the first ``k``, relative to the ideal."""
    return _metric("ndcg", scores, labels, groups, k)


def map_at_k(scores: Any, labels: Any, k: int, groups: Any = None) -> float:
    """Mean over queries of the precisions at the relevant candidates among the first ``k``."""
    return _metric("map", scores, labels, groups, k)


def auc(scores: Any, labels: Any) -> float:
    """Area under the ROC curve of all candidates together."""
    return _metric("auc", scores, labels, None)


def average_precision(scores: Any, labels: Any) -> float:
    """Area under the precision-recall steps of all candidates together."""
    return _metric("average-precision", scores, labels, None)


def _metric(name: str, scores: Any, labels: Any, groups: Any, k: int = 1) -> float:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k {k!r}: use an integer of at least 1")
    scores, labels = array_of(scores, "scores"), array_of(labels, "labels")
    if scores.shape != labels.shape or scores.ndim not in (1, 2):
        raise ValueError(f"scores of shape {scores.shape} and labels of shape {labels.shape}: give one shape, C or Q x C")
    if labels.dtype != bool and not np.isin(labels, (0, 1)).all():
        raise ValueError("labels: expected zeros and ones")
    counts = [len(scores)] if scores.ndim == 1 else [scores.shape[1]] * len(scores)
    scores, labels = scores.ravel(), labels.ravel().astype(bool)
    if groups is not None:
        groups = array_of(groups, "groups")
        if groups.shape != scores.shape:
            raise ValueError(f"groups of shape {groups.shape} for scores of shape {scores.shape}: give a query for each candidate")
        order = np.argsort(groups, kind="stable")
        scores, labels, counts = scores[order], labels[order], np.unique(groups, return_counts=True)[1].tolist()
    starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).tolist()
    value = _graphmill.rank_metric(name, np.ascontiguousarray(scores, np.float32), np.ascontiguousarray(labels), starts, int(k))
    return float("nan") if value is None else value
