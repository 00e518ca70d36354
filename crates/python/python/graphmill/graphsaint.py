"""PyTorch Geometric's GraphSAINT samplers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _graphmill
from .data import Output, open_graph
from .loader import Loader


class GraphSAINTSampler(Loader):
    """Subgraphs of drawn sets of nodes (Zeng et al., ICLR 2020): what the three samplers share.

    A batch has the rows of all that has one for each node or edge, ``edge_index`` (all edges among the drawn nodes), ``n_id`` (ascending), ``e_id``, and with
    ``sample_coverage`` the weights ``node_norm`` (``N``) for the loss and ``edge_norm`` (``M``) for the sums, as of the paper's section 3.2.

    Args:
        data: As of :class:`graphmill.NeighborLoader`.
        batch_size: Draws of a subgraph: nodes, edges, or walks.
        num_steps: Subgraphs of an epoch.
        sample_coverage: How often each node comes up on average in the subgraphs that are drawn beforehand to count ``node_norm`` and ``edge_norm``; 0 leaves both out.
        save_dir: A directory to keep these in, for the next time.
        log: Accepted; nothing is logged.
        output, pin_memory, **kwargs: As of :class:`graphmill.NeighborLoader`.

    Raises:
        TypeError, ValueError: As of :class:`graphmill.NeighborLoader`; sampler that the graph is no good for.
    """

    _sampler: str
    _made = ("_source", "_graph", "_given", "_output", "_tiers")

    def __init__(
        self,
        data: Any,
        batch_size: int,
        num_steps: int = 1,
        sample_coverage: int = 0,
        save_dir: str | os.PathLike[str] | None = None,
        log: bool = True,
        *,
        walk_length: int = 1,
        output: str = "auto",
        pin_memory: bool = False,
        **kwargs: Any,
    ):
        super().__init__(batch_size=batch_size, **{**kwargs, "shuffle": False})
        if num_steps < 1 or walk_length < 1 or sample_coverage < 0:
            raise ValueError(
                f"num_steps {num_steps}, walk_length {walk_length}, sample_coverage {sample_coverage}: at least 1, 1 and 0"
            )
        self.data, self.num_steps, self.walk_length = data, int(num_steps), int(walk_length)
        self.sample_coverage, self.save_dir = int(sample_coverage), save_dir
        self._how = (output, pin_memory)
        self._open()

    def _open(self) -> None:
        self._graph = open_graph(self.data)
        how = {"sampler": self._sampler, "batch_size": self._budget(), "walk_length": self.walk_length}
        self._tier_graph(self._graph, self.data, None, **how)
        self._given = list(self._graph.tables)
        self._reseed()

    def _budget(self) -> int:
        return self.batch_size

    def _make(self, coverage: int) -> Any:
        return _graphmill.Source.subgraphs(
            self._graph.topology,
            self._graph.tables,
            seed=self.seed,
            sampler=self._sampler,
            batches=self.num_steps,
            roots=np.arange(self._graph.num_nodes, dtype=np.uint32),
            budget=self._budget(),
            walk_length=self.walk_length,
            coverage=coverage,
        )

    def _reseed(self) -> None:
        self._graph.tables = list(self._given)
        if self.sample_coverage:
            node_norm, edge_norm = self._norms()
            self._graph.tables += [("node_norm", "nodes", node_norm), ("edge_norm", "edges", edge_norm)]
        self._output = Output(self._graph, *self._how)
        self._source = self._make(0)

    def _norms(self) -> tuple[np.ndarray, np.ndarray]:
        """Normalisation, counted or as it was kept."""
        if self.save_dir is None:
            return self._make(self.sample_coverage).norms()
        name = f"{type(self).__name__.lower()}_{self.batch_size}_{self.walk_length}_{self.sample_coverage}_{self.seed}.npz"
        path = os.path.join(os.fspath(self.save_dir), name)
        if os.path.exists(path):
            with np.load(path) as kept:
                norms = kept["node_norm"], kept["edge_norm"]
            if (len(norms[0]), len(norms[1])) == (self._graph.num_nodes, self._graph.num_edges):
                return norms
        norms = self._make(self.sample_coverage).norms()
        beside = f"{path}.{os.getpid()}.npz"
        np.savez(beside, node_norm=norms[0], edge_norm=norms[1])
        os.replace(beside, path)
        return norms

    def _num_batches(self, order: np.ndarray | None) -> int:
        return self.num_steps

    def _order(self, epoch: int) -> np.ndarray:
        return np.zeros(0, np.uint64)

    def _yield(self, arrays: tuple) -> Any:
        _, _, n_id, edge_index, e_id, _, _, tables, _, _ = arrays
        return self._output.batch(n_id, edge_index, e_id, tables)


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Subgraphs of ``batch_size`` nodes drawn by degree, with replacement. Arguments: those of :class:`GraphSAINTSampler`."""

    _sampler = "saint-node"


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Subgraphs of the ends of ``batch_size`` edges, drawn by the sum of the inverse degrees of their ends, as the paper says (PyTorch Geometric's adds the degrees).
    Arguments: those of :class:`GraphSAINTSampler`."""

    _sampler = "saint-edge"

    def _budget(self) -> int:
        return 2 * self.batch_size


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Subgraphs of the nodes that ``batch_size`` random walks of ``walk_length`` steps meet. Other arguments: those of :class:`GraphSAINTSampler`."""

    _sampler = "saint-rw"

    def __init__(self, data: Any, batch_size: int, walk_length: int, *args: Any, **kwargs: Any):
        super().__init__(data, batch_size, *args, walk_length=walk_length, **kwargs)

    def _budget(self) -> int:
        return self.batch_size * self.walk_length
