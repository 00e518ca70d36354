"""A sampler for PyTorch Geometric's own loaders; importing it needs PyTorch Geometric."""

from __future__ import annotations

import itertools
from typing import Any, Callable

import numpy as np

try:
    import torch
    from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, SamplerOutput
except ImportError as error:
    raise ImportError("graphmill.sampler needs torch and torch_geometric; install them with pip") from error

from . import _graphmill
from ._frameworks import draw_seed
from .data import open_graph
from .hetero import is_typed, open_hetero, per_edge_type
from .link import NegativeSampling, as_typed, existing_at
from .loader import input_nodes_of
from .neighbor import Temporal, hops_per_type, subgraph_of_types, times_of, weights_of

__all__ = ["NeighborSampler"]


class NeighborSampler(BaseSampler):
    """Samples neighbours over several hops: ``torch_geometric.sampler.NeighborSampler``.

    Give it to PyTorch Geometric's ``NodeLoader`` as ``node_sampler``, or to its ``LinkLoader`` as
    ``link_sampler``; other loaders, such as RelBench's, call its methods. The draws of a call are a
    function of ``seed`` and the number of the call, so loaders with worker processes repeat them; set
    ``num_workers=0``. :class:`graphmill.NeighborLoader` and :class:`graphmill.LinkNeighborLoader`
    also gather features on threads, and are faster. Their seeds have one type, but
    :meth:`sample_from_nodes` takes seeds of several types in one batch, too.

    Args:
        data: A graph as for :class:`graphmill.NeighborLoader`, of one type or several.
        num_neighbors, replace, disjoint, temporal_strategy, time_window, time_half_life, time_attr,
            weight_attr: As for :class:`graphmill.NeighborLoader`. With ``time_attr`` the loader
            passes the times of its seeds: ``input_time``, whose default is the nodes' own times, or
            ``edge_label_time``.
        subgraph_type: As for :class:`graphmill.NeighborLoader`.
        is_sorted, share_memory: Ignored: edges are sorted once, and threads share them.
        exclude_supervision_edges: Leaves the sampled edges of :meth:`sample_from_edges` and their
            reverses out of all hops.
        seed: Seed of the draws; ``None`` draws one.

    Raises:
        ValueError: ``time_attr`` or ``weight_attr`` is unknown, or a number is out of range.
        NotImplementedError: Another ``sample_direction``, or as for :class:`graphmill.NeighborLoader`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.loader import NodeLoader
        >>> from graphmill.sampler import NeighborSampler
        >>> data = Data(edge_index=torch.tensor([[1, 2], [0, 0]]), num_nodes=3, time=torch.tensor([9, 4, 7]))
        >>> sampler = NeighborSampler(data, [-1], time_attr="time")
        >>> next(iter(NodeLoader(data, sampler, torch.tensor([0]), input_time=torch.tensor([5])))).n_id
        tensor([0, 1])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        subgraph_type: Any = "directional",
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        is_sorted: bool = False,
        share_memory: bool = False,
        directed: bool = True,
        sample_direction: str = "forward",
        *,
        exclude_supervision_edges: bool = True,
        time_window: int | None = None,
        time_half_life: float | None = None,
        seed: int | None = None,
    ):
        self.subgraph_type = "induced" if not directed else getattr(subgraph_type, "value", subgraph_type)
        if sample_direction != "forward":
            raise NotImplementedError(f"NeighborSampler: sample_direction {sample_direction!r} is not supported; use 'forward'")
        self.typed = is_typed(data)
        self._graph = open_hetero(data) if self.typed else as_typed(open_graph(data), data)
        self.num_neighbors = hops_per_type(data, num_neighbors)
        self.replace, self.exclude = bool(replace), exclude_supervision_edges
        self.disjoint = bool(disjoint) or time_attr is not None
        self.seed = (draw_seed() if seed is None else int(seed)) % 2**64
        self._weight_attr = weight_attr
        self._time = Temporal(time_attr, None, temporal_strategy, time_window, time_half_life)
        self._time.check(self)
        self._weights, self._times = weights_of(weight_attr, self._graph), self._time.of_graph(self._graph)
        self._subgraph = subgraph_of_types(self, self._graph)
        self._calls = itertools.count()
        self._sources: dict[Any, Any] = {}
        self._kept: dict[Any, Any] = {}

    def _source(self, key: Any, inputs: Callable[[], Any], times: dict[str, Any] | None) -> Any:
        """The source of batches of a node type, or of an edge type with some negatives."""
        if key not in self._sources:
            graph = self._graph
            self._sources[key] = _graphmill.TypedSource(
                graph.types, graph.relations, [], seed=self.seed, inputs=inputs(), fanout=per_edge_type(self.num_neighbors, graph),
                replace=self.replace, weights=self._weights, disjoint=self.disjoint, times=times, **self._subgraph,
            )  # fmt: skip
        return self._sources[key]

    def sample_from_nodes(self, index: Any, *, time: dict[str, Any] | None = None, **kwargs: Any) -> Any:
        """Samples around nodes: a ``NodeSamplerInput`` to a ``SamplerOutput`` or ``HeteroSamplerOutput``.

        On a graph of several types ``index`` may also be a dict of seeds by node type (ids or a
        mask), and ``time`` a dict of their times. The seeds come first in their types; with
        ``disjoint`` their trees are numbered in the order of the dict. The metadata is then
        ``(None, time)``.

        Raises:
            TypeError: A dict of seeds on a graph of one type, or ``time`` without such a dict.
            ValueError: An id is out of range, a node type is unknown, or a seed has no time.
        """
        graph = self._graph
        seeds: list[tuple[int, np.ndarray, Any]] = []
        if isinstance(index, dict):
            if not self.typed:
                raise TypeError("index: a dict of seeds by node type needs a graph of several types; pass a NodeSamplerInput")
            given = time or {}
            if others := [kind for kind in given if kind not in index]:
                raise ValueError(f"time: there are times for '{others[0]}' but no seeds; pass the seeds too, or leave the times out")
            for kind, ids in index.items():
                t = graph.number(kind)
                nodes = input_nodes_of(ids, graph.types[t][1], f"index['{kind}']")[0].astype(np.int64, copy=False)
                seeds.append((t, nodes, given.get(kind)))
            metadata: tuple[Any, Any] = (None, time)
        elif time is not None:
            raise TypeError("time: a NodeSamplerInput has the times of its seeds; pass them there")
        else:
            t = graph.number(index.input_type) if self.typed else 0
            seeds.append((t, index.node.cpu().numpy().astype(np.int64), index.time))
            metadata = (index.input_id, index.time)
        # any type may be that of the inputs, which each call gives
        source = self._source("nodes", lambda: (0, np.zeros(0, np.int64)), self._times)
        each = [own for of_type in seeds if (own := self._times_of_nodes(*of_type)) is not None]
        times = None if self._times is None else np.concatenate([np.zeros(0, np.int64), *each])
        lists = [(t, nodes) for t, nodes, _ in seeds]
        return self._output(source.one_of_nodes(0, next(self._calls), lists, times), metadata)

    def _times_of_nodes(self, t: int, nodes: np.ndarray, time: Any) -> np.ndarray | None:
        """Times of seeds of a type: those given, or the nodes' own; ``None`` without times."""
        times = self._given(time, "input_time")
        if times is not None and len(times) != len(nodes):
            raise ValueError(f"input_time: {len(times)} times for {len(nodes)} inputs; pass a time for each")
        if times is not None or self._times is None:
            return times
        if t not in self._times["nodes"]:
            raise self._time.without_times(self._graph, t)
        # the source reports ids out of range
        return self._times["nodes"][t].take(nodes, mode="clip")

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Samples around the ends of edges and of their negatives: an ``EdgeSamplerInput`` to a
        ``SamplerOutput`` or ``HeteroSamplerOutput``, whose metadata is that of PyTorch Geometric.

        With times, a negative has the time of its positive, and its destination exists then.

        Raises:
            ValueError: An id is out of range, an edge has no time, or a source has edges to all
                destinations (that exist at the time).
            NotImplementedError: Negatives of nodes with times by another method than ``"uniform"``,
                or by weights.
        """
        graph, negatives = self._graph, NegativeSampling.of(neg_sampling)
        times = self._given(index.time, "edge_label_time")
        if times is None and self._times is not None:
            raise ValueError("time_attr: without edge_label_time no time bounds the neighbours of an edge; pass it to the loader")
        r = graph.relation(index.input_type) if self.typed else 0
        row, col = (np.ascontiguousarray(end.cpu().numpy().astype(np.int64)) for end in (index.row, index.col))
        source = self._source_of_links(r, negatives)
        arrays = source.one_of_links(0, next(self._calls), (row, col), times)
        src, dst = (torch.from_numpy(ends) for ends in arrays[9])
        count = len(row)
        if negatives is not None and negatives.is_triplet():
            amount = int(negatives.amount)
            negative = dst[count:] if amount == 1 else dst[count:].view(count, amount)
            return self._output(arrays, (index.input_id, src[:count], dst[:count], negative, index.time))
        label = index.label
        if negatives is not None:
            label = torch.ones(count) if label is None else label
            label = torch.cat([label, label.new_zeros((len(src) - count, *label.shape[1:]))])
        # negative k is one of positive k modulo the number of positives
        time = None if index.time is None else torch.from_numpy(np.resize(index.time.numpy(), len(src)))
        return self._output(arrays, (index.input_id, torch.stack([src, dst]), label, time))

    def _given(self, time: Any, name: str) -> np.ndarray | None:
        """Times that the loader passes."""
        if time is None:
            return None
        if self._times is None:
            raise ValueError(f"{name}: without time_attr no edge has a time; pass time_attr to NeighborSampler")
        return np.ascontiguousarray(times_of(time, name))

    def _source_of_links(self, r: int, negatives: NegativeSampling | None) -> Any:
        """The source of batches of an edge type with some negatives."""
        times, how = None if self._times is None else dict(self._times), None
        given: tuple[Any, ...] = ()
        if negatives is not None:
            method, given = negatives.method, (negatives.pairs, negatives.src_weight, negatives.dst_weight)
            if times is not None:
                method = existing_at(times, self._graph.relations[r][:2], negatives, "NeighborSampler")
            how = (method, float(negatives.amount), negatives.is_triplet())
        key = ("links", r, how, *map(id, given))
        # objects that are kept have ids of their own
        self._kept.setdefault(key, given)
        return self._source(key, lambda: self._links(r, how, negatives), times)

    def _links(self, r: int, how: Any, negatives: NegativeSampling | None) -> dict[str, Any]:
        """Inputs of an edge type; the edges of each call follow."""
        graph = self._graph
        src, dst, _ = graph.relations[r]
        kind, known, none = graph.edge_types[r], None, np.zeros(0, np.int64)
        if how is not None:
            edges = np.asarray(graph.edges_of(r), np.int64)
            known = (np.ascontiguousarray(edges[0]), np.ascontiguousarray(edges[1]))
        exclude = [(r, False)]
        if kind in graph.reverse:
            exclude.append((graph.edge_types.index(graph.reverse[kind]), True))
        elif kind[0] == kind[2]:
            exclude.append((r, True))
        exclude = exclude if self.exclude else []
        listed, weights = (None, (None, None)) if negatives is None else (negatives._listed(), negatives._weights())
        return {
            "types": (src, dst), "src": none, "dst": none, "exclude": exclude, "negatives": how, "known": known, "listed": listed,
            "weights": weights,
        }  # fmt: skip

    def _output(self, arrays: tuple, metadata: tuple) -> Any:
        _, _, nodes, edge_index, edges, tree, _, num_nodes, num_edges, _ = arrays
        tensor = torch.from_numpy
        if not self.typed:
            row, col = tensor(edge_index[0])
            batch = None if tree is None else tensor(tree[0])
            return SamplerOutput(
                node=tensor(nodes[0]), row=row, col=col, edge=tensor(edges[0]), batch=batch,
                num_sampled_nodes=num_nodes and num_nodes[0], num_sampled_edges=num_edges and num_edges[0], metadata=metadata,
            )  # fmt: skip
        names, kinds = [name for name, _ in self._graph.types], self._graph.edge_types
        return HeteroSamplerOutput(
            node={name: tensor(ids) for name, ids in zip(names, nodes)},
            row={kind: tensor(index)[0] for kind, index in zip(kinds, edge_index)},
            col={kind: tensor(index)[1] for kind, index in zip(kinds, edge_index)},
            edge={kind: tensor(ids) for kind, ids in zip(kinds, edges)},
            batch=None if tree is None else {name: tensor(trees) for name, trees in zip(names, tree)},
            num_sampled_nodes=num_nodes and dict(zip(names, num_nodes)),
            num_sampled_edges=num_edges and dict(zip(kinds, num_edges)),
            metadata=metadata,
        )
