"""PyTorch Geometric's ``LinkNeighborLoader``, and negatives of links."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from . import _graphmill
from ._frameworks import array_of, draw_seed, is_tensor
from .data import Output, open_graph
from .hetero import HeteroGraph, HeteroOutput, is_typed, open_hetero, per_edge_type
from .loader import Loader, check_ids, hops_of, refuse_sampler, refuse_sampler_output
from .neighbor import Temporal, hops_per_type, sampler_of_types, subgraph_of_types, weights_of


@dataclass
class NegativeSampling:
    """Configuration of negatives: ``torch_geometric.sampler.NegativeSampling``.

    Args:
        mode: ``"binary"``: pairs with the label 0; ``"triplet"``: destinations for each positive.
        amount: Negatives of each positive. For triplets it is rounded up.
        method: ``"uniform"``, ``"degree"`` (destinations by their degree to the power of 0.75) or
            ``"in-batch"`` (destinations of other positives of the batch).
        pairs: Pairs (``2 x N``) that negatives are drawn from, in the place of ``method``: those of
            the positive's source that are no edges; if there are none, uniform negatives.
        src_weight: Weight of each node of the source type (at least 0), by which a binary negative
            draws its source; without it a negative has the source of its positive. A drawn source
            with edges to all destinations is an error: give it the weight 0.
        dst_weight: Weight of each node of the destination type (at least 0), by which destinations
            are drawn among those without an edge from the source, in the place of ``method``. Nodes
            of weight 0 are never drawn.
    """

    mode: str = "binary"
    amount: float = 1
    method: str = "uniform"
    pairs: Any = None
    src_weight: Any = None
    dst_weight: Any = None

    def __post_init__(self) -> None:
        if self.mode not in ("binary", "triplet"):
            raise ValueError(f"mode '{self.mode}': use binary or triplet")
        if not self.amount > 0:
            raise ValueError(f"amount {self.amount}: use a number above 0")
        if self.is_triplet():
            self.amount = math.ceil(self.amount)
        if self.pairs is not None:
            if self.method not in ("uniform", "file"):
                raise ValueError(f"method '{self.method}': negatives are drawn from pairs; leave one of the two out")
            self.method = "file"
        elif self.method == "file":
            raise ValueError("method 'file': pass the pairs, or another method")
        if self.src_weight is not None and self.is_triplet():
            raise ValueError("src_weight: negatives of triplets have the source of their positive; leave it out, or use mode='binary'")
        if self.pairs is not None or self.method != "uniform":
            for name in ("src_weight", "dst_weight"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name}: negatives are drawn by weights, or by pairs or method '{self.method}'; leave one of the two out")

    def _listed(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Sources and destinations of the pairs that negatives are drawn from."""
        if self.pairs is None:
            return None
        given = _pairs(self.pairs, "pairs")
        return np.ascontiguousarray(given[0]), np.ascontiguousarray(given[1])

    def _weights(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Weights of sources and destinations as arrays."""
        return _node_weights("src_weight", self.src_weight), _node_weights("dst_weight", self.dst_weight)

    def is_binary(self) -> bool:
        """Returns true for pairs with labels."""
        return self.mode == "binary"

    def is_triplet(self) -> bool:
        """Returns true for destinations of each positive."""
        return self.mode == "triplet"

    @classmethod
    def of(cls, given: Any) -> NegativeSampling | None:
        """Configuration of a mode's name, a dict, PyTorch Geometric's class, or ``None``."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, str):
            return cls(given)
        if isinstance(given, dict):
            return cls(**given)
        weights = {name: getattr(given, name, None) for name in ("src_weight", "dst_weight")}
        return cls(str(getattr(given.mode, "value", given.mode)), given.amount, **weights)


def _node_weights(name: str, given: Any) -> np.ndarray | None:
    """Weights of nodes as an array of float64, or ``None``."""
    if given is None:
        return None
    weights = array_of(given, name)
    if weights.ndim != 1 or weights.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected a number per node, not shape {weights.shape} of {weights.dtype}")
    return weights.astype(np.float64)


class LinkNeighborLoader(Loader):
    """Samples the neighbours of edges: ``torch_geometric.loader.LinkNeighborLoader``.

    A batch has the fields of :class:`graphmill.NeighborLoader` without ``batch_size``, and with
    ``P`` edges:

    - ``edge_label_index`` (``2 x (P + negatives)``): ends of the edges, then of the negatives, as
      positions in ``n_id`` (of several types: in those of the two types). ``edge_label``: labels of
      both; negatives have 0, and integer labels that start with 0 are raised by 1.
    - for triplets instead ``src_index`` (``P``), ``dst_pos_index`` (``P``) and ``dst_neg_index``
      (``P``, or ``P x amount``).
    - ``input_id`` (``P``): positions of the edges in ``edge_label_index``.
    - with ``edge_label_time`` also ``edge_label_time`` (``P + negatives``): times of the edges, and
      for a negative that of its positive; for triplets ``seed_time`` (``P``).
    - ``batch`` (``N``), if neighbourhoods are disjoint: positive whose ends, or whose negative's
      ends, each node was sampled for.

    On a graph of several types these are values of the edge type; ``src_index`` and the others are
    values of the node types, as is ``seed_time``.

    Two things differ from PyTorch Geometric. With ``exclude_supervision_edges`` no batch holds an
    edge that it predicts, nor its reverse, in any hop: neighbours are drawn as from the graph
    without these edges. Negatives are never edges: each replaces the destination of a positive by a
    node without an edge from its source.

    Args:
        data: As for :class:`graphmill.NeighborLoader`.
        num_neighbors: As for :class:`graphmill.NeighborLoader`.
        edge_label_index: Edges to predict (``2 x K``), or ``None`` for all edges. On a graph of
            several types an edge type, or a pair of an edge type and one of these.
        edge_label: Label of each edge.
        edge_label_time: Time of each edge (``K`` integers), with ``time_attr``: the hops around its
            ends and those of its negatives have edges up to this time, which includes others of the
            same time. To leave these out, pass times less 1.
        time_attr, temporal_strategy, time_window, time_half_life: As for
            :class:`graphmill.NeighborLoader`, where the seeds are the edges. With times of nodes, a
            negative destination exists at the time of its positive.
        neg_sampling: A :class:`graphmill.NegativeSampling`, ``"binary"`` or ``"triplet"``, a dict
            of its arguments, or PyTorch Geometric's class.
        neg_sampling_ratio: Older form of ``neg_sampling``: the amount of binary negatives.
        exclude_supervision_edges: Leaves the edges of a batch and their reverses out of its hops.
        reverse_edge_type: Edge type of the reverse edges on a graph of several types. By default
            the dataset names it, or it has the same ends in reverse and the name ``rev_NAME``; if
            both ends have the same type and there is no such edge type, the edge type itself.
        known_edges: More edges (``2 x K``) that are no negatives, such as those of the other parts
            of a split. The edges of the graph and of ``edge_label_index`` always count.
        replace, subgraph_type, disjoint, weight_attr, transform, input_id, output, pin_memory,
            **kwargs: As for :class:`graphmill.NeighborLoader`. Edges that a ``subgraph_type`` adds
            are not those that ``exclude_supervision_edges`` leaves out.

    Raises:
        TypeError: An array has a wrong type, or an argument is unknown.
        ValueError: An id is out of range, a source has edges to all destinations (that exist at the
            time), or one of ``edge_label_time`` and ``time_attr`` is missing.
        NotImplementedError: As for :class:`graphmill.NeighborLoader`; or the arguments ask for
            negatives by other methods than ``"uniform"``, or by weights, of nodes with times.

    Example:
        >>> import numpy as np, graphmill
        >>> ring = np.arange(6)
        >>> data = graphmill.Data(edge_index=np.stack([ring, (ring + 1) % 6]), num_nodes=6)
        >>> links = graphmill.LinkNeighborLoader(data, [1], [[0], [1]], neg_sampling="binary", output="numpy", seed=0)
        >>> batch = next(iter(links))
        >>> batch.n_id[batch.edge_label_index[:, 0]], batch.edge_label
        (array([0, 1]), array([1., 0.], dtype=float32))
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        exclude_supervision_edges: bool = True,
        reverse_edge_type: Any = None,
        known_edges: Any = None,
        time_window: int | None = None,
        time_half_life: float | None = None,
        input_id: Any = None,
        output: str = "auto",
        pin_memory: bool = False,
        **kwargs: Any,
    ):
        remedy = "torch_geometric.loader.LinkLoader with graphmill.sampler.NeighborSampler"
        refuse_sampler_output(self, transform_sampler_output, remedy)
        refuse_sampler(self, neighbor_sampler)
        super().__init__(transform=transform, **kwargs)
        if neg_sampling_ratio:
            neg_sampling = NegativeSampling("binary", neg_sampling_ratio)
        self.data, self.neg_sampling = data, NegativeSampling.of(neg_sampling)
        self.num_neighbors = hops_per_type(data, num_neighbors)
        if (edge_label_time is None) != (time_attr is None):
            given, missing = ("time_attr", "edge_label_time") if edge_label_time is None else ("edge_label_time", "time_attr")
            raise ValueError(f"{given}: without {missing} no time bounds the neighbours of an edge; pass both or neither")
        # times bound the hops of each edge
        self.replace, self.disjoint = bool(replace), bool(disjoint) or time_attr is not None
        self.subgraph_type = "directional" if directed else "induced"
        if directed:
            self.subgraph_type = str(getattr(subgraph_type, "value", subgraph_type))
        self.exclude_supervision_edges, self.reverse_edge_type = exclude_supervision_edges, reverse_edge_type
        self._how, self._given = (output, pin_memory), (edge_label_index, edge_label, input_id, known_edges)
        self._weight_attr = weight_attr
        self._time = Temporal(time_attr, edge_label_time, temporal_strategy, time_window, time_half_life)
        self._time.check(self)
        self._open()

    def _open(self) -> None:
        links, labels, input_id, known = self._given
        self._typed = is_typed(self.data)
        if self._typed:
            self._graph = open_hetero(self.data)
            self._output: Any = HeteroOutput(self._graph, *self._how)
        else:
            one = open_graph(self.data)
            self._graph, self._output = as_typed(one, self.data), Output(one, *self._how)
        self._r, links = links_of(links, self._graph, self._typed)
        self.input_type = self._graph.edge_types[self._r] if self._typed else None
        self._edges = np.ascontiguousarray(self._graph.edges_of(self._r)) if links is None else links
        self._known = None if known is None else _pairs(known, "known_edges")
        count = self._edges.shape[1]
        self._labels = None if labels is None else array_of(labels, "edge_label")
        self._input_id = None if input_id is None else array_of(input_id, "input_id")
        for name, values in (("edge_label", self._labels), ("input_id", self._input_id)):
            if values is not None and len(values) != count:
                raise ValueError(f"{name}: {len(values)} values for {count} edges")
        negatives = self.neg_sampling
        if self._labels is not None and negatives is not None:
            if negatives.is_triplet():
                raise ValueError("edge_label: triplets have no labels; leave it out, or use neg_sampling='binary'")
            if count and self._labels.dtype.kind in "iuf" and self._labels.min() == 0:
                self._labels = self._labels + 1
        self._times = self._time.of_types(self._graph, count)
        self._tier()
        self._reseed()

    def _tier(self) -> None:
        """Replaces the feature rows by tiers, if configured, filled for batches of these edges.

        The ends of negatives are approximated by uniform ones, one for each edge.
        """
        if not self._tier_options:
            return
        graph = self._graph
        src, dst, _ = graph.relations[self._r]
        seeds = [(t, np.ascontiguousarray(ends)) for t, ends in zip((src, dst), self._edges)]
        for place, (t, ends) in enumerate(seeds):
            check_ids(ends, graph.types[t][1], f"edge_label_index[{place}]")
        if self.neg_sampling is not None:
            uniform = np.random.default_rng(self.seed).integers(0, max(graph.types[dst][1], 1), self._edges.shape[1])
            seeds.append((dst, uniform))
        if self._typed:
            self._tier_types(graph, self.data, seeds, sampler_of_types(self, graph), together=True)
            return
        ends = np.unique(np.concatenate([ids for _, ids in seeds]))
        how = "neighbor" if self._weight_attr is None else "weighted"
        hops = per_edge_type(self.num_neighbors, graph)[0]
        tiers = self._open_tiers(self.data, ends, sampler=how, fanout=hops_of(hops), batch_size=len(seeds) * self.batch_size)
        graph.tables = [(*place, tiers if rows is self.data._native else rows) for *place, rows in graph.tables]

    def _exclude(self) -> list[tuple[int, bool]]:
        """Relations whose copies of a batch's edges are left out, and true for reverses."""
        graph, r = self._graph, self._r
        if not self.exclude_supervision_edges:
            return []
        kind = graph.edge_types[r]
        if self.reverse_edge_type is not None:
            reverse = graph.relation(self.reverse_edge_type)
            if graph.relations[reverse][:2] != graph.relations[r][1::-1]:
                raise ValueError(f"reverse_edge_type {graph.edge_types[reverse]}: its ends are not those of {kind} in reverse")
            return [(r, False), (reverse, True)]
        if kind in graph.reverse:
            return [(r, False), (graph.edge_types.index(graph.reverse[kind]), True)]
        return [(r, False), (r, True)] if kind[0] == kind[2] else [(r, False)]

    def _reseed(self) -> None:
        graph, (src, dst, _) = self._graph, self._graph.relations[self._r]
        negatives, known, listed = None, None, None
        of_nodes: Any = (None, None)
        if self.neg_sampling is not None:
            method = self.neg_sampling.method
            listed = self.neg_sampling._listed()
            if self._times is not None:
                method = existing_at(self._times, (src, dst), self.neg_sampling, "LinkNeighborLoader")
            of_nodes = self.neg_sampling._weights()
            negatives = (method, float(self.neg_sampling.amount), self.neg_sampling.is_triplet())
            lists = [graph.edges_of(self._r), self._edges] + ([] if self._known is None else [self._known])
            all_known = np.concatenate([np.asarray(edges, np.int64) for edges in lists], axis=1)
            known = (np.ascontiguousarray(all_known[0]), np.ascontiguousarray(all_known[1]))
        inputs = {
            "types": (src, dst),
            "src": np.ascontiguousarray(self._edges[0]),
            "dst": np.ascontiguousarray(self._edges[1]),
            "exclude": self._exclude(),
            "negatives": negatives,
            "known": known,
            "listed": listed,
            "weights": of_nodes,
        }
        weights = weights_of(self._weight_attr, graph)
        self._source = _graphmill.TypedSource(
            graph.types,
            graph.relations,
            graph.tables,
            seed=self.seed,
            inputs=inputs,
            fanout=per_edge_type(self.num_neighbors, graph),
            replace=self.replace,
            weights=weights,
            disjoint=self.disjoint,
            times=self._times,
            **subgraph_of_types(self, graph),
        )

    def __call__(self, index: Any) -> Any:
        """Samples the batch of the edges at the given positions."""
        count = self._edges.shape[1]
        places = [int(i) for i in np.asarray(index).ravel()]
        batch = self._yield(self._source.one(self._epoch, 0, [i + count if i < 0 else i for i in places]))
        return batch if self.transform is None else self.transform(batch)

    def _yield(self, arrays: tuple) -> Any:
        _, inputs, nodes, edge_index, edges, tree, tables, num_nodes, num_edges, (src, dst) = arrays
        value = self._output.value
        if self._typed:
            batch = self._output.batch(arrays)
            links, sources, destinations = batch[self.input_type], batch[self.input_type[0]], batch[self.input_type[2]]
        else:
            batch = links = sources = destinations = self._output.batch(nodes[0], edge_index[0], edges[0], tables)
            if num_nodes is not None:
                batch["num_sampled_nodes"], batch["num_sampled_edges"] = num_nodes[0], num_edges[0]
            if tree is not None:
                batch["batch"] = value(tree[0])
        for name in ("edge_label_index", "edge_label", "edge_label_time"):
            # attributes of a split, of all edges
            if name in links:
                del links[name]
        links["input_id"] = value(inputs if self._input_id is None else self._input_id[inputs])
        positives = len(inputs)
        times = None if self._times is None else self._times["inputs"][inputs]
        if self.neg_sampling is not None and self.neg_sampling.is_triplet():
            sources["src_index"] = value(src[:positives])
            destinations["dst_pos_index"] = value(dst[:positives])
            negatives = dst[positives:]
            amount = int(self.neg_sampling.amount)
            if times is not None:
                sources["seed_time"] = destinations["seed_time"] = value(times)
            destinations["dst_neg_index"] = value(negatives if amount == 1 else negatives.reshape(positives, amount))
            return batch
        links["edge_label_index"] = value(np.stack([src, dst]))
        labels = None if self._labels is None else self._labels[inputs]
        if self.neg_sampling is not None:
            labels = np.ones(positives, np.float32) if labels is None else labels
            zeros = np.zeros((len(src) - positives, *labels.shape[1:]), labels.dtype)
            labels = np.concatenate([labels, zeros])
        if labels is not None:
            links["edge_label"] = value(np.ascontiguousarray(labels))
        if times is not None:
            # negative k is one of positive k modulo P
            links["edge_label_time"] = value(np.resize(times, len(src)))
        return batch

    _made = (*Loader._made, "_edges", "_known", "_labels", "_input_id")


def as_typed(graph: Any, data: Any) -> HeteroGraph:
    """A graph of one type in the form of one of several."""
    edge_index = data["edge_index"] if isinstance(data, dict) else data.edge_index
    return HeteroGraph(
        types=[("node", graph.num_nodes)],
        edge_types=[("node", "to", "node")],
        relations=[(0, 0, graph.topology)],
        tables=[(name, whose, 0, rows) for name, whose, rows in graph.tables],
        edge_values=[graph.edge_weights],
        edges_of=lambda _: array_of(edge_index, "edge_index"),
    )


def existing_at(times: dict[str, Any], ends: tuple[int, int], negatives: NegativeSampling, who: str) -> str:
    """Method of negatives among the destinations that exist at the time of their positive.

    ``ends`` are the numbers of the types of sources and destinations. If nodes of the latter have
    times, ``times`` gets them as those of the destinations.
    """
    src, dst = ends
    method, by = negatives.method, f"method '{negatives.method}'"
    for name, end in (("src_weight", src), ("dst_weight", dst)):
        if getattr(negatives, name) is not None and end in times["nodes"]:
            method, by = "weights", name
    if dst not in times["nodes"] and method != "weights":
        return method
    if method != "uniform":
        raise NotImplementedError(f"{who}: {by} draws nodes that may not exist yet; use method 'uniform' with time_attr")
    times["destinations"] = times["nodes"][dst]
    return "existing"


def links_of(given: Any, graph: HeteroGraph, typed: bool) -> tuple[int, np.ndarray | None]:
    """Number of the edge type and the edges of it, ``None`` for all."""
    if not typed:
        return 0, None if given is None else _pairs(given, "edge_label_index")
    if isinstance(given, (tuple, list)) and len(given) == 3 and all(isinstance(part, str) for part in given):
        return graph.relation(given), None
    if not (isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list, str))):
        raise TypeError(
            "edge_label_index: expected an edge type and its edges on a graph of several types, for example "
            '(("author", "writes", "paper"), edges)'
        )
    return graph.relation(given[0]), None if given[1] is None else _pairs(given[1], "edge_label_index")


def _pairs(given: Any, name: str) -> np.ndarray:
    """Edges as an array of shape ``2 x K``."""
    edges = array_of(given, name)
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.size and edges.dtype.kind not in "iu":
        raise ValueError(f"{name}: expected integers of shape (2, K), not {edges.dtype} of shape {edges.shape}")
    return edges.astype(np.int64)


def negative_sampling(
    edge_index: Any,
    num_nodes: int | tuple[int, int] | None = None,
    *,
    positives: Any = None,
    amount: float = 1,
    method: str = "uniform",
    seed: int | None = None,
) -> Any:
    """Draws pairs that are no edges, each by replacing the destination of a positive.

    Args:
        edge_index: Edges (``2 x E``).
        num_nodes: Number of nodes, or numbers of sources and destinations if these are of two
            types. Default: the largest id plus 1. With one number a node is not linked to itself.
        positives: Edges (``2 x P``) that get negatives; default: all edges.
        amount: Negatives of each positive; ``ceil(P * amount)`` in all.
        method: ``"uniform"``, ``"degree"`` or ``"in-batch"``.
        seed: Seed of the draws; ``None`` draws one.

    Returns:
        Negatives (``2 x ceil(P * amount)``): tensors if ``edge_index`` is one, else an array. The
        first of each positive come first.

    Raises:
        ValueError: An id is out of range, or a source has edges to all nodes.
    """
    edges = _pairs(edge_index, "edge_index")
    chosen = edges if positives is None else _pairs(positives, "positives")
    if num_nodes is None:
        num_nodes = int(max((edges.max(initial=-1), chosen.max(initial=-1)))) + 1
    same = not isinstance(num_nodes, tuple)
    sizes = (int(num_nodes), int(num_nodes)) if same else tuple(int(n) for n in num_nodes)  # type: ignore[arg-type, union-attr]
    known = np.concatenate([edges, chosen], axis=1)
    src, dst = _graphmill.negatives(
        np.ascontiguousarray(chosen[0]), np.ascontiguousarray(chosen[1]),
        (np.ascontiguousarray(known[0]), np.ascontiguousarray(known[1])),
        sizes=sizes, same_type=same, amount=float(amount), together=False, method=method,
        seed=(draw_seed() if seed is None else int(seed)) % 2**64,
    )  # fmt: skip
    drawn = np.stack([src, dst])
    if is_tensor(edge_index):
        import torch

        return torch.from_numpy(drawn)
    return drawn
