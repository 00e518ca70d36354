"""A sampler for PyTorch Geometric's own loaders; importing it needs PyTorch Geometric."""

from __future__ import annotations

import itertools
from typing import Any

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
from .link import NegativeSampling, as_typed
from .neighbor import hops_per_type, weights_of

__all__ = ["NeighborSampler"]


class NeighborSampler(BaseSampler):
    """Samples neighbours over several hops: a ``torch_geometric.sampler.BaseSampler``.

    Give it to PyTorch Geometric's ``NodeLoader`` as ``node_sampler``, or to its ``LinkLoader`` as
    ``link_sampler``. The draws of a call are a function of ``seed`` and the number of the call, so
    loaders with worker processes repeat them; set ``num_workers=0``. :class:`graphmill.NeighborLoader`
    and :class:`graphmill.LinkNeighborLoader` also gather features on threads, and are faster.

    Args:
        data: A graph as for :class:`graphmill.NeighborLoader`, of one type or several.
        num_neighbors, replace, disjoint, weight_attr: As for :class:`graphmill.NeighborLoader`.
        exclude_supervision_edges: Leaves the sampled edges of :meth:`sample_from_edges` and their
            reverses out of all hops.
        seed: Seed of the draws; ``None`` draws one.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        replace: bool = False,
        disjoint: bool = False,
        weight_attr: str | None = None,
        *,
        exclude_supervision_edges: bool = True,
        seed: int | None = None,
    ):
        self.typed = is_typed(data)
        self._graph = open_hetero(data) if self.typed else as_typed(open_graph(data), data)
        self.num_neighbors = hops_per_type(data, num_neighbors)
        self.replace, self.disjoint, self.exclude = replace, disjoint, exclude_supervision_edges
        self.seed = (draw_seed() if seed is None else int(seed)) % 2**64
        self._weights = weights_of(weight_attr, self._graph)
        self._calls = itertools.count()
        self._sources: dict[Any, Any] = {}

    def _source(self, key: Any, inputs: Any) -> Any:
        """The source of batches of a node type, or of an edge type with some negatives."""
        if key not in self._sources:
            graph = self._graph
            self._sources[key] = _graphmill.TypedSource(
                graph.types, graph.relations, [], seed=self.seed, inputs=inputs(), fanout=per_edge_type(self.num_neighbors, graph),
                replace=self.replace, weights=self._weights, disjoint=self.disjoint,
            )  # fmt: skip
        return self._sources[key]

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
        """Samples around nodes: a ``NodeSamplerInput`` to a ``SamplerOutput`` or ``HeteroSamplerOutput``."""
        if index.time is not None:
            raise NotImplementedError("NeighborSampler: times of seeds are not supported; leave out input_time")
        graph = self._graph
        t = graph.number(index.input_type) if self.typed else 0
        source = self._source(t, lambda: (t, np.arange(graph.types[t][1])))
        nodes = index.node.cpu().numpy().astype(np.uint64).tolist()
        return self._output(source.one(0, next(self._calls), nodes), (index.input_id, None))

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Samples around the ends of edges and of their negatives: an ``EdgeSamplerInput`` to a
        ``SamplerOutput`` or ``HeteroSamplerOutput``, whose metadata is that of PyTorch Geometric."""
        if index.time is not None:
            raise NotImplementedError("NeighborSampler: times of edges are not supported; leave out edge_label_time")
        graph, negatives = self._graph, NegativeSampling.of(neg_sampling)
        if negatives is not None and negatives.pairs is not None:
            raise NotImplementedError("NeighborSampler: pairs of negatives are not supported; use LinkNeighborLoader")
        r = graph.relation(index.input_type) if self.typed else 0
        row, col = (end.cpu().numpy().astype(np.int64) for end in (index.row, index.col))
        how = None if negatives is None else (negatives.method, float(negatives.amount), negatives.is_triplet())
        source = self._source(("links", r, how), lambda: self._links(r, how))
        arrays = source.one_of_links(0, next(self._calls), row, col)
        src, dst = (torch.from_numpy(ends) for ends in arrays[9])
        count = len(row)
        if negatives is not None and negatives.is_triplet():
            amount = int(negatives.amount)
            negative = dst[count:] if amount == 1 else dst[count:].view(count, amount)
            return self._output(arrays, (index.input_id, src[:count], dst[:count], negative, None))
        label = index.label
        if negatives is not None:
            label = torch.ones(count) if label is None else label
            label = torch.cat([label, label.new_zeros((len(src) - count, *label.shape[1:]))])
        return self._output(arrays, (index.input_id, torch.stack([src, dst]), label, None))

    def _links(self, r: int, how: Any) -> dict[str, Any]:
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
        return {"types": (src, dst), "src": none, "dst": none, "exclude": exclude, "negatives": how, "known": known, "listed": None}

    def _output(self, arrays: tuple, metadata: tuple) -> Any:
        _, _, nodes, edge_index, edges, tree, _, num_nodes, num_edges, _ = arrays
        tensor = torch.from_numpy
        if not self.typed:
            row, col = tensor(edge_index[0])
            batch = None if tree is None else tensor(tree[0])
            return SamplerOutput(
                node=tensor(nodes[0]), row=row, col=col, edge=tensor(edges[0]), batch=batch,
                num_sampled_nodes=num_nodes[0], num_sampled_edges=num_edges[0], metadata=metadata,
            )  # fmt: skip
        names, kinds = [name for name, _ in self._graph.types], self._graph.edge_types
        return HeteroSamplerOutput(
            node={name: tensor(ids) for name, ids in zip(names, nodes)},
            row={kind: tensor(index)[0] for kind, index in zip(kinds, edge_index)},
            col={kind: tensor(index)[1] for kind, index in zip(kinds, edge_index)},
            edge={kind: tensor(ids) for kind, ids in zip(kinds, edges)},
            batch=None if tree is None else {name: tensor(trees) for name, trees in zip(names, tree)},
            num_sampled_nodes=dict(zip(names, num_nodes)),
            num_sampled_edges=dict(zip(kinds, num_edges)),
            metadata=metadata,
        )
