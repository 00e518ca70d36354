"""PyTorch Geometric's ``HGTLoader``."""

from __future__ import annotations

from typing import Any, Callable

from . import _graphmill
from .hetero import HeteroOutput, is_typed, open_hetero
from .loader import Loader, input_nodes_of, refuse_sampler_output


class HGTLoader(Loader):
    """Samples a number of nodes of each type per hop: ``torch_geometric.loader.HGTLoader``.

    Nodes are drawn by their connections to the nodes sampled so far. A batch has all edges between
    its nodes, and the fields of :class:`graphmill.NeighborLoader` except ``num_sampled_nodes`` and
    ``num_sampled_edges``.

    Args:
        data: A ``torch_geometric.data.HeteroData`` or a :class:`graphmill.TypedDataset`.
        num_samples: Nodes of each type to sample per hop, as a list for all types or a dict by node
            type; -1 takes all.
        input_nodes: Seeds: a node type, or a node type with distinct ids or a mask.
        transform: Function of a batch; its result is yielded.
        output, pin_memory, **kwargs: As for :class:`graphmill.NeighborLoader`.

    Raises:
        TypeError: The graph has one type, or an argument is unknown.
        ValueError: A type is unknown, or a number is out of range.
    """

    def __init__(
        self,
        data: Any,
        num_samples: Any,
        input_nodes: Any,
        is_sorted: bool = False,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        filter_per_worker: bool | None = None,
        *,
        output: str = "auto",
        pin_memory: bool = False,
        **kwargs: Any,
    ):
        refuse_sampler_output(self, transform_sampler_output, "torch_geometric.loader.HGTLoader")
        if not is_typed(data):
            raise TypeError(f"data: expected a HeteroData or a graphmill.TypedDataset, not {type(data).__name__}; use NeighborLoader for one type")
        super().__init__(transform=transform, **kwargs)
        self.data, self.num_samples, self._how = data, num_samples, (output, pin_memory)
        self._inputs = input_nodes
        self._open()

    def _open(self) -> None:
        self._graph = open_hetero(self.data)
        self._output = HeteroOutput(self._graph, *self._how)
        self.input_type, self.input_nodes, self._input_id = typed_inputs_of(self._inputs, self._graph)
        seeds = [(self._graph.number(self.input_type), self.input_nodes)]
        self._tier_types(self._graph, self.data, seeds, ("hgt", self._samples(), "{}"))
        self._reseed()

    def _samples(self) -> list[list[int]]:
        """Number of nodes of each type per hop."""
        graph = self._graph
        if not isinstance(self.num_samples, dict):
            return [[int(k) for k in self.num_samples]] * len(graph.types)
        unknown = [kind for kind in self.num_samples if kind not in dict(graph.types)]
        missing = [kind for kind, _ in graph.types if kind not in self.num_samples]
        if unknown or missing:
            raise ValueError(f"num_samples: give a list for each node type; unknown: {unknown}, missing: {missing}")
        return [[int(k) for k in self.num_samples[kind]] for kind, _ in graph.types]

    def _reseed(self) -> None:
        graph = self._graph
        inputs = (graph.number(self.input_type), self.input_nodes)
        self._source = _graphmill.TypedSource(
            graph.types, graph.relations, graph.tables, seed=self.seed, inputs=inputs, samples=self._samples()
        )

    def _yield(self, arrays: tuple) -> Any:
        return typed_batch(self._output, arrays, self.input_type, self._input_id)


def typed_inputs_of(given: Any, graph: Any) -> tuple[str, Any, Any]:
    """Node type of the seeds, their ids, and their ``input_id``."""
    if isinstance(given, str):
        given = (given, None)
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not isinstance(given[0], str):
        raise TypeError('input_nodes: expected a node type and its nodes, for example ("paper", ids), on a graph of several types')
    kind, nodes = given
    ids, input_id = input_nodes_of(nodes, graph.types[graph.number(kind)][1])
    return kind, ids, input_id


def typed_batch(output: HeteroOutput, arrays: tuple, input_type: str, input_id: Any) -> Any:
    """A batch with the fields of its seeds."""
    batch, inputs = output.batch(arrays), arrays[1]
    batch[input_type]["input_id"] = output.value(inputs if input_id is None else input_id[inputs])
    batch[input_type]["batch_size"] = len(inputs)
    return batch
