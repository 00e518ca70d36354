"""PyTorch Geometric's ``ClusterData`` and ``ClusterLoader``."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _graphmill
from ._frameworks import array_of
from .data import Output, open_graph
from .loader import Loader


class ClusterData:
    """A graph partitioned into clusters: ``torch_geometric.loader.ClusterData``.

    ``len()`` is the number of parts, and ``[i]`` the subgraph of a part with all edges within it.

    Args:
        data: Graph, as for :class:`graphmill.NeighborLoader`.
        num_parts: Number of parts, at most 65535.
        method: Partitioner: ``"metis"`` like PyTorch Geometric, or another of
            :func:`graphmill.partition`.
        partition: Part of each node (``V``, from 0), instead of ``num_parts``.
        output: As for :class:`graphmill.NeighborLoader`.

    Raises:
        TypeError, ValueError: As for :class:`graphmill.NeighborLoader`; or there are no parts, or
            more parts than nodes.
    """

    def __init__(self, data: Any, num_parts: int | None = None, *, method: str = "metis", partition: Any = None, output: str = "auto", **ignored: Any):
        for name in ignored:
            if name not in ("recursive", "save_dir", "filename", "log", "keep_inter_cluster_edges", "sparse_format"):
                raise TypeError(f"ClusterData() got an unexpected keyword argument '{name}'")
        if (num_parts is None) == (partition is None):
            raise ValueError("give either num_parts or partition")
        self.data, self._how = data, output
        graph = open_graph(data)
        if partition is None:
            none = np.zeros(0, np.uint32)
            how = {"method": method, "parts": int(num_parts), "seed": 0, "slack": None, "train_slack": None, "refine": None}
            parts = _graphmill.partition(graph.topology, none, **how)
        else:
            parts = array_of(partition, "partition")
            if parts.shape != (graph.num_nodes,) or parts.dtype.kind not in "iu":
                raise ValueError(f"partition: expected {graph.num_nodes} integers, not shape {parts.shape} of {parts.dtype}")
            if parts.size and (parts.min() < 0 or parts.max() >= graph.num_nodes):
                raise ValueError(f"partition: expected parts from 0 to {graph.num_nodes - 1}, not from {parts.min()} to {parts.max()}")
        sizes = np.bincount(parts)
        self.nodes = np.argsort(parts, kind="stable").astype(np.uint32)
        # empty parts are dropped
        self.starts = [0, *np.cumsum(sizes[sizes > 0]).tolist()]
        self.num_parts = len(self.starts) - 1

    def __len__(self) -> int:
        return self.num_parts

    def __getitem__(self, part: int) -> Any:
        return ClusterLoader(self, batch_size=1, num_threads=1, seed=0)._of([range(self.num_parts)[part]])

    def __repr__(self) -> str:
        return f"ClusterData({self.num_parts})"


class ClusterLoader(Loader):
    """Loader of unions of ``batch_size`` parts: ``torch_geometric.loader.ClusterLoader``.

    A batch has all edges among the nodes of its parts (Chiang et al., KDD 2019), the rows of all
    values with one per node or edge, ``edge_index``, ``n_id`` and ``e_id``.

    Args:
        cluster_data: The graph and its parts.
        pin_memory: Copies tensors to pinned memory if CUDA is available.
        **kwargs: Arguments of :class:`graphmill.Loader`; ``batch_size`` counts parts.

    Raises:
        TypeError, ValueError: As for :class:`graphmill.Loader`.
    """

    def __init__(self, cluster_data: ClusterData, *, pin_memory: bool = False, **kwargs: Any):
        if not isinstance(cluster_data, ClusterData):
            raise TypeError(f"cluster_data: expected a graphmill.ClusterData, not {type(cluster_data).__name__}")
        super().__init__(**kwargs)
        self.cluster_data = cluster_data
        self._pin = pin_memory
        self._open()

    def _open(self) -> None:
        data = self.cluster_data.data
        self._graph = open_graph(data)
        # an epoch reads every row once, so all are equally hot, and the cheapest metric will do
        self._tier_graph(self._graph, data, self.cluster_data.nodes, fanout=[1], cache="degree")
        self._output = Output(self._graph, self.cluster_data._how, self._pin)
        self._reseed()

    def _reseed(self) -> None:
        self._source = _graphmill.Source.neighbors(
            self._graph.topology,
            self.cluster_data.nodes,
            self._graph.tables,
            seed=self.seed,
            fanout=[],
            replace=False,
            edges="induced",
            disjoint=False,
            starts=self.cluster_data.starts,
        )

    def _of(self, parts: list[int]) -> Any:
        return self._yield(self._source.one(0, 0, parts))

    def _yield(self, arrays: tuple) -> Any:
        _, _, n_id, edge_index, e_id, _, _, tables, _, _ = arrays
        return self._output.batch(n_id, edge_index, e_id, tables)
