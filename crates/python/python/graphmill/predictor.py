"""A run that stays open and answers for single nodes, known or new, or for links."""

from __future__ import annotations

import warnings
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of, edge_list
from .given import DatasetLike, RunLike, for_run, run_directory
from .saved import Recommendations


class Answers(NamedTuple):
    """Answers for ``N`` nodes."""

    #: Class of each node (``N``, int64), or in each of ``K`` columns (``N x K``); ``None`` if the run
    #: learned labels or values.
    classes: np.ndarray | None
    #: Probabilities of the classes, of all columns together, or labels, or values (``N x C``, float32).
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
            learned links or events, which :class:`LinkPredictor` answers.
    """

    def __init__(
        self,
        run: RunLike,
        *,
        dataset: DatasetLike | None = None,
        last: bool = False,
    ) -> None:
        self._held, native = for_run(dataset, run)
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
        ids = _ids("predict", nodes, keys, self._native.find)
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

        The cost is that of the neighbours of the new nodes; with a ``seed``, each call copies the
        graph. New nodes as rows of tables are predicted by :func:`predict` with ``on=``.

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
        if self.task == "columns":
            return Answers(classes.reshape(len(scores), -1), scores)
        return Answers(classes if self.task == "classes" else None, scores)

    @property
    def task(self) -> str:
        """``"classes"``, ``"columns"`` (a class in each of several columns), ``"labels"`` or ``"values"``."""
        return self._native.task

    @property
    def node_type(self) -> str | None:
        """Type of the nodes that the run predicts; ``None`` if the dataset has one type."""
        return self._native.node_type

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, of all columns together; empty if they have none."""
        return self._native.class_names

    @property
    def class_slices(self) -> dict[str, slice]:
        """Range of each column of classes among the scores and the names of classes; empty unless the
        run learned several columns."""
        ends = np.cumsum([0] + [classes for _, classes in self._native.class_columns])
        names = [name for name, _ in self._native.class_columns]
        return {name: slice(int(ends[k]), int(ends[k + 1])) for k, name in enumerate(names)}

    def __repr__(self) -> str:
        return f"Predictor({self._native.num_nodes} nodes, {self.task})"


class LinkPredictor:
    """A run on links, opened once, and scores, best candidates and embeddings from any thread.

    The embeddings of all nodes are computed when the run is opened and kept in memory (``V x F``
    numbers of 4 bytes). Answers have the bits of :func:`recommend` and :func:`embed`.

    Args:
        run: Run on links (``task="link"``), of a table of embeddings (``model="embedding"`` or
            ``"lightgcn"``) or on events, or its directory.
        dataset: Dataset to answer for. ``None`` takes the run's dataset, unless that was in memory.
        last: Uses the last checkpoint instead of the best model.
        all_edges: Computes embeddings from all edges, and not those of training only.

    Raises:
        ValueError, OSError: The run does not exist, its model does not fit the dataset, or it
            learned no links.
    """

    def __init__(
        self,
        run: RunLike,
        *,
        dataset: DatasetLike | None = None,
        last: bool = False,
        all_edges: bool = False,
    ) -> None:
        self._held, native = for_run(dataset, run)
        self._native = _graphmill.LinkPredictor(run_directory(run), native, last, all_edges)

    def score(
        self,
        source: Any = None,
        destination: Any = None,
        *,
        keys: Sequence[tuple[Any, Any]] | None = None,
        relation: str | None = None,
        at: int | None = None,
    ) -> np.ndarray:
        """Scores of pairs (``P``, float32), in their order: those beside the candidates of :func:`recommend`.

        Args:
            source: Ids of the sources (``P``).
            destination: Ids of the destinations (``P``).
            keys: Keys of source and destination of each pair instead.
            relation: Name of the relation, if the run learned several.
            at: Time as of which a run on events answers; by default after all events.

        Raises:
            ValueError: A node, key or relation is unknown, or ``at`` is given for a run on links.
        """
        number = self._native.relation(relation or "")
        return self._native.score(number, *self._ends("score", number, source, destination, keys), at)

    def recommend(
        self,
        nodes: Any = None,
        *,
        k: int = 10,
        keys: Sequence[Any] | None = None,
        relation: str | None = None,
        sources: bool = False,
        include_known: bool = False,
        at: int | None = None,
    ) -> Recommendations:
        """Best candidates of nodes, as of :func:`recommend`.

        Args:
            nodes: Ids of the sources (``N``).
            k: Number of candidates of each node.
            keys: Keys of the nodes instead, of a dataset that has some. Parts of a key of several
                columns are joined by ``|``.
            relation: Name of the relation, if the run learned several.
            sources: Ranks the sources of given destinations.
            include_known: Ranks known edges, too, which are left out otherwise. Events repeat, so
                those of a run on events are always ranked.
            at: Time as of which a run on events answers; by default after all events.

        Raises:
            ValueError: A node, key or relation is unknown, or ``at`` is given for a run on links.
        """
        if k < 1:
            raise ValueError(f"k {k}: pass at least 1")
        number = self._native.relation(relation or "")
        _, of_source, of_destination = self._native.relations[number]
        fixed = of_destination if sources else of_source
        ids = _ids("recommend", nodes, keys, lambda keys: self._native.find(fixed, keys))
        return Recommendations(*self._native.top((number, ids), k, sources, include_known, at))

    def embed(
        self,
        nodes: Any = None,
        *,
        keys: Sequence[Any] | None = None,
        node_type: str | None = None,
        at: int | None = None,
    ) -> np.ndarray:
        """Embeddings of nodes (``N x F``, float32), as of :func:`embed`.

        Args:
            nodes: Node ids (``N``).
            keys: Keys of the nodes instead.
            node_type: Type of the nodes, if several have embeddings; the first by default.
            at: Time as of which a run on events answers; by default after all events.

        Raises:
            ValueError: A node, key or node type is unknown, ``at`` is given for a run on links, or the
                rows of the model are those of pairs.
        """
        number = self._native.node_type(node_type or "")
        ids = _ids("embed", nodes, keys, lambda keys: self._native.find(number, keys))
        return self._native.embed(number, ids, at).reshape(-1, self._native.embedding_dim)

    def add_events(
        self,
        source: Any = None,
        destination: Any = None,
        *,
        times: Any,
        keys: Sequence[tuple[Any, Any]] | None = None,
        features: Any = None,
    ) -> None:
        """Adds events to the stream of a run on events: further answers see them.

        Answers are those of a run opened on a dataset whose test events end with these ones, to the
        bit. The dataset does not change. If an event is refused, none is added.

        Args:
            source: Ids of the sources (``E``).
            destination: Ids of the destinations (``E``).
            times: Time of each event (``E``), ascending and none before the last of the stream.
            keys: Keys of source and destination of each event instead of ids.
            features: Features of each event (``E x K``), if those of the run have some.

        Raises:
            ValueError: The run learned no events, a node or key is unknown, shapes differ, a feature is
                not finite, or an event is earlier than the last one.
        """
        if self._native.events is None:
            raise ValueError("add_events: the run learned no stream of events; train a model such as tgn")
        width = self._native.events[1]
        ends = self._ends("add_events", 0, source, destination, keys)
        at = np.ascontiguousarray(times, dtype=np.int64)
        rows = np.zeros((len(at), 0)) if features is None else array_of(features, "features")
        if rows.shape != (len(at), width):
            raise ValueError(f"features: shape {rows.shape} for {len(at)} events of {width} features; pass E x K")
        self._native.add_events(*ends, at, np.ascontiguousarray(rows, dtype=np.float32).reshape(-1))

    def _ends(self, what: str, relation: int, source: Any, destination: Any, keys: Any) -> tuple[Any, Any]:
        """Ids of the ends of pairs of a relation, which are given by ids or by keys."""
        _, of_source, of_destination = self._native.relations[relation]
        if (source is None) != (destination is None) or (source is None) == (keys is None):
            raise TypeError(f"{what}: pass either source and destination, or keys")
        ends = ([pair[0] for pair in keys], [pair[1] for pair in keys]) if keys is not None else (None, None)
        sources = _ids(what, source, ends[0], lambda keys: self._native.find(of_source, keys))
        return sources, _ids(what, destination, ends[1], lambda keys: self._native.find(of_destination, keys))

    @property
    def num_events(self) -> int | None:
        """Number of events of the stream; ``None`` if the run learned none."""
        return None if self._native.events is None else self._native.events[0]

    @property
    def end_time(self) -> int | None:
        """Time after all events, as of which questions are answered by default; ``None`` if the run learned none."""
        return self._native.end_time

    @property
    def relations(self) -> list[str]:
        """Names of the relations that the run learned."""
        return [name for name, _, _ in self._native.relations]

    @property
    def node_types(self) -> list[str]:
        """Node types that have embeddings; empty if the dataset has one type."""
        return [name for name in self._native.node_types if name is not None]

    def __repr__(self) -> str:
        return f"LinkPredictor({', '.join(self.relations)})"


def _ids(what: str, nodes: Any, keys: Sequence[Any] | None, find: Callable[[list[str]], np.ndarray]) -> Any:
    """Ids of nodes that are given by ids or by keys."""
    if (nodes is None) == (keys is None):
        raise TypeError(f"{what}: pass either nodes or keys")
    if keys is not None:
        return find([str(key) for key in keys])
    return array_of(nodes, "nodes")


def _rows(x: Any, name: str) -> np.ndarray:
    """Feature rows."""
    rows = array_of(x, name)
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected two dimensions of numbers, not shape {rows.shape} of {rows.dtype}")
    return rows.astype(np.float32)


def _edges(edge_index: Any, edge_weight: Any, key: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sources, destinations and weights of edges; ``key`` stands behind their names in messages."""
    edges = edge_list(edge_index, f"edge_index{key}")
    weight = np.ones(edges.shape[1], np.float32) if edge_weight is None else array_of(edge_weight, "edge_weight").astype(np.float32)
    if weight.shape != (edges.shape[1],):
        raise ValueError(f"edge_weight{key}: expected shape ({edges.shape[1]},), not {weight.shape}")
    return edges[0], edges[1], weight


def _edge_type(name: Any) -> str:
    """Name of an edge type, which may be a tuple of source, name and destination."""
    return ":".join(name) if isinstance(name, tuple) else str(name)
