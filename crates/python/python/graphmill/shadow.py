"""PyTorch Geometric's ``ShaDowKHopSampler``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _graphmill
from .data import Output, open_graph
from .loader import Loader, check_ids, hops_of, input_nodes_of


class ShaDowKHopSampler(Loader):
    """Loader of a separate ego network per seed: ``torch_geometric.loader.ShaDowKHopSampler``.

    A batch (Zeng et al., NeurIPS 2021) has ``x`` and all other values with a row per node (of
    ``n_id``) or edge, ``edge_index`` (``2 x M``, all edges within each network), ``batch`` (``N``,
    ascending: seed of each node), ``ptr`` (``B + 1``, start of each network), ``root_n_id`` (``B``,
    positions of the seeds), ``n_id``, ``e_id``, and ``y`` of the seeds.

    Args:
        data: Graph, as for :class:`graphmill.NeighborLoader`.
        depth: Number of hops.
        num_neighbors: In-neighbours to sample per node; -1 takes all.
        node_idx: Seeds: ids, a mask, or ``None`` for all nodes.
        replace: Samples with replacement.
        output, pin_memory, **kwargs: As for :class:`graphmill.NeighborLoader`.

    Raises:
        TypeError, ValueError: As for :class:`graphmill.NeighborLoader`.
    """

    def __init__(
        self,
        data: Any,
        depth: int,
        num_neighbors: int,
        node_idx: Any = None,
        replace: bool = False,
        *,
        output: str = "auto",
        pin_memory: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.data, self.depth, self.num_neighbors, self.replace = data, depth, num_neighbors, replace
        self.node_idx = node_idx
        self._how = (output, pin_memory)
        self._open()

    def _open(self) -> None:
        graph = self._graph = open_graph(self.data)
        # labels are gathered for the seeds only
        graph.tables = [(name, "seeds" if name == "y" and whose == "nodes" else whose, rows) for name, whose, rows in graph.tables]
        self._output = Output(graph, *self._how)
        self._nodes = input_nodes_of(self.node_idx, graph.num_nodes, "node_idx")[0]
        check_ids(self._nodes, graph.num_nodes, "node_idx")
        self._tier_graph(graph, self.data, self._nodes, fanout=hops_of([self.num_neighbors] * self.depth))
        self._reseed()

    def _reseed(self) -> None:
        self._source = _graphmill.Source.ego(
            self._graph.topology,
            self._nodes,
            self._graph.tables,
            seed=self.seed,
            depth=self.depth,
            fanout=self.num_neighbors,
            replace=self.replace,
        )

    def _yield(self, arrays: tuple) -> Any:
        _, _, n_id, edge_index, e_id, tree, roots, tables, _, _ = arrays
        value = self._output.value
        batch = self._output.batch(n_id, edge_index, e_id, tables)
        batch["batch"] = value(tree)
        batch["ptr"] = value(np.concatenate([[0], np.cumsum(np.bincount(tree, minlength=len(roots)))]))
        batch["root_n_id"] = value(roots)
        return batch
