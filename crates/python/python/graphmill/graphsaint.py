"""PyTorch Geometric's GraphSAINT samplers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from . import _graphmill
from .data import Output, open_graph
from .loader import Loader


class GraphSAINTSampler(Loader):
    """Base class of the GraphSAINT samplers, which draw sets of nodes (Zeng et al., ICLR 2020).

    A batch has the rows of all values with one per node or edge, ``edge_index`` (all edges among
    the drawn nodes), ``n_id`` (ascending), ``e_id``, and with ``sample_coverage`` the weights
    ``node_norm`` (``N``) of the loss and ``edge_norm`` (``M``) of the sums, as in section 3.2 of
    the paper.

    Args:
        data: Graph, as for :class:`graphmill.NeighborLoader`.
        batch_size: Draws per subgraph: nodes, edges or walks.
        num_steps: Subgraphs per epoch.
        sample_coverage: Average number of times that each node is drawn to estimate ``node_norm``
            and ``edge_norm``, before the first epoch; 0 omits both.
        save_dir: Directory that stores the estimates for later loaders.
        log: Accepted for compatibility; nothing is logged.
        walk_length: Steps per walk.
        output, pin_memory, **kwargs: As for :class:`graphmill.NeighborLoader`.

    Raises:
        TypeError, ValueError: As for :class:`graphmill.NeighborLoader`; or the sampler cannot draw
            from this graph.
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
                f"num_steps {num_steps}, walk_length {walk_length}, sample_coverage {sample_coverage}: use at least 1, 1 and 0"
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
        """Normalization of nodes and edges, estimated or loaded from ``save_dir``."""
        if self.save_dir is None:
            return self._make(self.sample_coverage).norms()
        name = f"{type(self).__name__.lower()}_{self.batch_size}_{self.walk_length}_{self.sample_coverage}_{self.seed}.npz"
        path = os.path.join(os.fspath(self.save_dir), name)
        if os.path.exists(path):
            with np.load(path) as stored:
                norms = stored["node_norm"], stored["edge_norm"]
            if (len(norms[0]), len(norms[1])) == (self._graph.num_nodes, self._graph.num_edges):
                return norms
        norms = self._make(self.sample_coverage).norms()
        temporary = f"{path}.{os.getpid()}.npz"
        np.savez(temporary, node_norm=norms[0], edge_norm=norms[1])
        os.replace(temporary, path)
        return norms

    def _num_batches(self, order: np.ndarray | None) -> int:
        return self.num_steps

    def _order(self, epoch: int) -> np.ndarray:
        return np.zeros(0, np.uint64)

    def _yield(self, arrays: tuple) -> Any:
        _, _, n_id, edge_index, e_id, _, _, tables, _, _ = arrays
        return self._output.batch(n_id, edge_index, e_id, tables)


class GraphSAINTNodeSampler(GraphSAINTSampler):
    """Subgraphs of ``batch_size`` nodes drawn by degree, with replacement.

    Takes the arguments of :class:`GraphSAINTSampler`.
    """

    _sampler = "saint-node"


class GraphSAINTEdgeSampler(GraphSAINTSampler):
    """Subgraphs of the ends of ``batch_size`` edges.

    An edge is drawn by the sum of the inverse degrees of its ends, as in the paper (PyTorch
    Geometric adds the degrees). Takes the arguments of :class:`GraphSAINTSampler`.
    """

    _sampler = "saint-edge"

    def _budget(self) -> int:
        return 2 * self.batch_size


class GraphSAINTRandomWalkSampler(GraphSAINTSampler):
    """Subgraphs of the nodes on ``batch_size`` random walks of ``walk_length`` steps.

    Takes the other arguments of :class:`GraphSAINTSampler`.
    """

    _sampler = "saint-rw"

    def __init__(self, data: Any, batch_size: int, walk_length: int, *args: Any, **kwargs: Any):
        super().__init__(data, batch_size, *args, walk_length=walk_length, **kwargs)

    def _budget(self) -> int:
        return self.batch_size * self.walk_length
