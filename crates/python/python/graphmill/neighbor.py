"""PyTorch Geometric's ``NeighborLoader``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from . import _graphmill
from ._frameworks import array_of
from .data import Output, open_graph
from .hetero import HeteroGraph, HeteroOutput, is_typed, open_hetero, per_edge_type
from .hgt import typed_batch, typed_inputs_of
from .loader import Loader, hops_of, input_nodes_of, refuse_sampler, refuse_sampler_output
from .typed import EdgeType


class NeighborLoader(Loader):
    """Samples neighbours over several hops: ``torch_geometric.loader.NeighborLoader``.

    A batch is a ``torch_geometric.data.Data`` if PyTorch Geometric is installed, and otherwise a
    :class:`graphmill.Data` with the same fields. With ``B`` seeds, ``N`` nodes and ``M`` edges they
    are:

    - ``n_id`` (``N``): ids of the nodes, the seeds first, then hop by hop in the order of
      discovery.
    - ``edge_index`` (``2 x M``): sources (neighbours) and targets as positions in ``n_id``.
      ``e_id`` (``M``): positions of the edges in ``data.edge_index``.
    - ``x``, ``y`` and all other values of ``data`` with a row per node or edge: the rows of
      ``n_id`` or ``e_id``.
    - ``batch_size``: ``B``. ``input_id`` (``B``): positions of the seeds in ``input_nodes``; ids if
      that is a mask.
    - ``num_sampled_nodes``, ``num_sampled_edges``: numbers that each hop added, as lists; not with
      ``subgraph_type="induced"``.
    - ``batch`` (``N``): seed of each node, with ``disjoint`` or ``time_attr``.
    - ``seed_time`` (``B``): times of the seeds, with ``input_time``.

    On a graph of several types a batch is a ``HeteroData`` whose node types and edge types have
    these fields: ``batch["paper"].n_id``, ``batch["author", "writes", "paper"].edge_index``.
    ``batch_size`` and ``input_id`` are those of the seeds' type.

    Args:
        data: A ``torch_geometric.data.Data`` or ``HeteroData``, a :class:`graphmill.Dataset` or
            :class:`graphmill.TypedDataset`, a :class:`graphmill.Data`, or a dict with its names.
            Tensors and arrays are read in place: they must not change during an epoch.
        num_neighbors: In-neighbours to sample per node, for each hop from the seeds outward; at
            most 10^6, and -1 takes all. With several edge types for each of them, or as a dict by
            edge type.
        input_nodes: Seeds: ids, a mask, or ``None`` for all nodes. With several node types a node
            type, or a pair of a node type and one of these.
        input_time: Time of each seed (``B`` integers), with ``time_attr``. Default: the seeds' own
            times, if nodes have times.
        time_attr: Name of a node or edge attribute with times (``N`` or ``E`` integers). A seed's
            neighbourhood, in all hops, has the edges up to its time, by their own times or those of
            their sources; every seed then has a separate one, as with ``disjoint``. On a graph of
            several types, where both may have times, an edge exists from the later one on, and edges
            of types without times always exist.
        temporal_strategy: ``"uniform"`` samples among these edges; ``"last"`` takes the last ones;
            ``"recency"`` samples without replacement by weights that halve with every
            ``time_half_life`` of age.
        time_window: Age from which edges are ignored, in units of the times: an edge counts if its
            time is above that of the seed less the window. Default: any age. Edges of types without
            times always exist.
        time_half_life: Difference in age that halves the weight of an edge, in units of the times,
            with ``temporal_strategy="recency"``. Default 1.
        replace: Samples with replacement.
        subgraph_type: ``"directional"``: the sampled edges; ``"bidirectional"``: those in both
            directions, each once; ``"induced"``: all edges among the sampled nodes. With several
            types ``"bidirectional"`` adds to an edge type the reverses of the sampled edges of its
            reverse edge type, with their numbers: the one that the dataset names, the one called
            ``rev_NAME``, the type itself if both ends have one type, or the only one between the
            same ends.
        disjoint: Samples a separate neighbourhood for each seed.
        weight_attr: Name of an edge attribute (``E``, at least 0) by which neighbours are drawn; with
            ``time_attr`` among the edges up to a seed's time. Edges of weight 0 are never drawn,
            unless all neighbours are taken.
        transform: Function of a batch; its result is yielded.
        input_id: Values of ``input_id`` instead of the seeds' positions.
        output: ``"pyg"``, ``"torch"`` (tensors in a :class:`graphmill.Data`), ``"numpy"``, or
            ``"auto"``: the first of them that is installed.
        pin_memory: Copies tensors to pinned memory if CUDA is available.
        **kwargs: Arguments of :class:`graphmill.Loader`: ``batch_size``, ``shuffle``,
            ``drop_last``, ``seed``, ``num_threads``, ...

    Raises:
        TypeError: An array has a wrong type, or an argument is unknown.
        ValueError: An array has a wrong shape, an id is out of range, a weight is negative, or a
            number is out of range. While iterating, with ``"bidirectional"``: the reverse of a
            sampled edge is not an edge.
        NotImplementedError: The arguments ask for ``"bidirectional"`` with an edge type that has no
            reverse, or for times together with another ``subgraph_type`` than ``"directional"``; for
            ``"last"`` or ``"recency"`` together with weights; or for ``"recency"`` with replacement.

    Example:
        >>> import numpy as np, graphmill
        >>> ring = np.arange(6)
        >>> data = graphmill.Data(edge_index=np.stack([ring, (ring + 1) % 6]), x=ring.astype(np.float32))
        >>> loader = graphmill.NeighborLoader(data, [1, 1], input_nodes=[3], output="numpy", seed=0)
        >>> next(iter(loader)).n_id
        array([3, 2, 1])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: Any = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: Callable[[Any], Any] | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: Any = None,
        directed: bool = True,
        *,
        time_window: int | None = None,
        time_half_life: float | None = None,
        input_id: Any = None,
        output: str = "auto",
        pin_memory: bool = False,
        **kwargs: Any,
    ):
        remedy = "torch_geometric.loader.NodeLoader with graphmill.sampler.NeighborSampler"
        refuse_sampler_output(self, transform_sampler_output, remedy)
        refuse_sampler(self, neighbor_sampler)
        super().__init__(transform=transform, **kwargs)
        self.data = data
        self.num_neighbors = hops_per_type(data, num_neighbors)
        self.replace = bool(replace)
        # an enum of torch_geometric, or its value
        self.subgraph_type = str(getattr(subgraph_type, "value", subgraph_type))
        if not directed:
            self.subgraph_type = "induced"
        self.disjoint = bool(disjoint)
        self._how = (output, pin_memory)
        self.input_type: str | None = None
        self._inputs, self._given_id, self._weight_attr = input_nodes, input_id, weight_attr
        self._time = Temporal(time_attr, input_time, temporal_strategy, time_window, time_half_life)
        self._time.check(self)
        self._open()

    def _open(self) -> None:
        if is_typed(self.data):
            self._graph = open_hetero(self.data)
            self._output = HeteroOutput(self._graph, *self._how)
            self.input_type, self.input_nodes, self._input_id = typed_inputs_of(self._inputs, self._graph)
        else:
            self._graph = open_graph(self.data)
            self._output = Output(self._graph, *self._how)
            self.input_nodes, self._input_id = input_nodes_of(self._inputs, self._graph.num_nodes)
        if self._given_id is not None:
            self._input_id = array_of(self._given_id, "input_id")
            if len(self._input_id) != len(self.input_nodes):
                raise ValueError(f"input_id: {len(self._input_id)} values for {len(self.input_nodes)} input nodes")
        self._weights = weights_of(self._weight_attr, self._graph)
        if self.input_type is None:
            self._times = self._time.of(self._graph, self.input_nodes)
            self._tier()
        else:
            number = self._graph.number(self.input_type)
            self._times = self._time.of_types(self._graph, number, self.input_nodes)
            self._tier_types(self._graph, self.data, [(number, self.input_nodes)], sampler_of_types(self, self._graph))
        self._reseed()

    def _tier(self) -> None:
        how = "neighbor" if self._weights is None else "weighted"
        self._tier_graph(self._graph, self.data, self.input_nodes, sampler=how, fanout=hops_of(self.num_neighbors))

    def _reseed(self) -> None:
        graph = self._graph
        if self.input_type is not None:
            self._source = _graphmill.TypedSource(
                graph.types,
                graph.relations,
                graph.tables,
                seed=self.seed,
                inputs=(graph.number(self.input_type), self.input_nodes),
                fanout=per_edge_type(self.num_neighbors, graph),
                replace=self.replace,
                weights=self._weights,
                disjoint=self.disjoint,
                times=self._times,
                **subgraph_of_types(self, graph),
            )
            return
        self._source = _graphmill.Source.neighbors(
            graph.topology,
            self.input_nodes,
            graph.tables,
            seed=self.seed,
            fanout=self.num_neighbors,
            replace=self.replace,
            edges=self.subgraph_type,
            disjoint=self.disjoint,
            weights=self._weights,
            times=self._times,
        )

    def __call__(self, index: Any) -> Any:
        """Samples the batch of the input nodes at the given positions."""
        places = [int(i) for i in np.asarray(index).ravel()]
        batch = self._yield(self._source.one(self._epoch, 0, [i + len(self.input_nodes) if i < 0 else i for i in places]))
        return batch if self.transform is None else self.transform(batch)

    def _yield(self, arrays: tuple) -> Any:
        if self.input_type is not None:
            batch = typed_batch(self._output, arrays, self.input_type, self._input_id)
            if self._time.input_time is not None and self._times is not None:
                batch[self.input_type]["seed_time"] = self._output.value(self._times["inputs"][arrays[1]])
            return batch
        _, inputs, n_id, edge_index, e_id, tree, _, tables, num_nodes, num_edges = arrays
        value = self._output.value
        batch = self._output.batch(n_id, edge_index, e_id, tables)
        if tree is not None:
            batch["batch"] = value(tree)
        if num_nodes is not None:
            batch["num_sampled_nodes"] = num_nodes
            batch["num_sampled_edges"] = num_edges
        if self._time.input_time is not None and self._times is not None:
            batch["seed_time"] = value(self._times[2][inputs])
        batch["input_id"] = value(inputs if self._input_id is None else self._input_id[inputs])
        batch["batch_size"] = len(inputs)
        return batch


@dataclass
class Temporal:
    """Arguments of temporal sampling, as given."""

    time_attr: str | None
    input_time: Any
    strategy: str
    window: int | None = None
    half_life: float | None = None

    def check(self, loader: Any) -> None:
        """Refuses arguments that do not go together."""
        kind = type(loader).__name__
        if self.strategy not in ("uniform", "last", "recency"):
            raise ValueError(f"temporal_strategy '{self.strategy}': use uniform, last or recency")
        window, half_life = self.window, self.half_life
        if window is not None and (isinstance(window, bool) or not isinstance(window, (int, np.integer)) or not 0 < window < 2**63):
            raise ValueError(f"time_window {window!r}: use a positive integer, in units of the times")
        if half_life is not None:
            if self.strategy != "recency":
                raise ValueError("time_half_life: it weights the draws of temporal_strategy 'recency'; use that, or leave it out")
            if not 0 < half_life < float("inf"):
                raise ValueError(f"time_half_life {half_life!r}: use a positive number, in units of the times")
        if self.time_attr is None and window is not None:
            raise ValueError("time_window: without time_attr no edge has an age; pass time_attr too")
        if self.time_attr is None:
            if self.input_time is not None:
                raise ValueError("input_time: without time_attr no edge has a time; pass time_attr too")
            if self.strategy != "uniform":
                raise ValueError(f"temporal_strategy '{self.strategy}': without time_attr no edge has a time; pass time_attr too")
            return
        if loader.subgraph_type != "directional":
            raise NotImplementedError(f"{kind}: time_attr with subgraph_type '{loader.subgraph_type}' would add edges of later times; use 'directional'")
        if loader._weight_attr is not None and self.strategy == "last":
            raise NotImplementedError(f"{kind}: temporal_strategy 'last' takes the last edges, without a draw by weight_attr; leave out one")
        if loader._weight_attr is not None and self.strategy == "recency":
            raise NotImplementedError(f"{kind}: temporal_strategy 'recency' draws by the ages of edges, not by weight_attr; leave out one")
        if loader.replace and self.strategy == "recency":
            raise NotImplementedError(f"{kind}: temporal_strategy 'recency' draws without replacement; leave out replace, or use 'uniform'")

    @property
    def rule(self) -> tuple[str, int, float]:
        """Rule of the draws for the sources in Rust."""
        return self.strategy, int(self.window or 0), float(self.half_life or 1)

    def of(self, graph: Any, inputs: np.ndarray) -> tuple[bool, np.ndarray, np.ndarray, tuple[str, int, float]] | None:
        """True for times of edges, the times, those of the inputs, and the rule of the draws."""
        if self.time_attr is None:
            return None
        name = self.time_attr
        found = {column: (whose, rows) for column, whose, rows in graph.tables}
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise ValueError(f"time_attr '{name}': no node or edge attribute has this name; known: {known}")
        whose, rows = found[name]
        times = times_of(rows, f"time_attr '{name}'")
        if self.input_time is not None:
            of_inputs = times_of(self.input_time, "input_time")
            if len(of_inputs) != len(inputs):
                raise ValueError(f"input_time: {len(of_inputs)} times for {len(inputs)} input nodes")
        elif whose == "edges":
            raise ValueError(f"time_attr '{name}': it has times of edges, so the seeds need their own; pass input_time")
        else:
            of_inputs = times[inputs]
        return whose == "edges", times, np.ascontiguousarray(of_inputs), self.rule

    def of_graph(self, graph: Any) -> dict[str, Any] | None:
        """Arguments of a source of several types, whose inputs are given later."""
        if self.time_attr is None:
            return None
        name = self.time_attr
        found = {
            kind: {number: times_of(rows, f"time_attr '{name}'") for column, whose, number, rows in graph.tables if (column, whose) == (name, kind)}
            for kind in ("nodes", "edges")
        }
        nodes, edges = found["nodes"], found["edges"]
        if not nodes and not edges:
            known = ", ".join(sorted({column for column, *_ in graph.tables})) or "none"
            raise ValueError(f"time_attr '{name}': no node or edge attribute has this name; known: {known}")
        return {
            "relations": [(edges.get(r), nodes.get(src)) for r, (src, *_) in enumerate(graph.relations)],
            "rule": self.rule,
            "inputs": np.zeros(0, np.int64),
            "nodes": nodes,
            "destinations": None,
        }

    def of_types(self, graph: Any, inputs: int, nodes: Any = None) -> dict[str, Any] | None:
        """Arguments of a source of several types, whose inputs are ``nodes`` of type number ``inputs``.

        Without ``nodes`` they are that many edges, whose times are given.
        """
        times = self.of_graph(graph)
        if times is None:
            return None
        given = "input_time" if nodes is not None else "edge_label_time"
        count = inputs if nodes is None else len(nodes)
        if self.input_time is not None:
            of_inputs = times_of(self.input_time, given)
            if len(of_inputs) != count:
                raise ValueError(f"{given}: {len(of_inputs)} times for {count} inputs; pass a time for each")
        elif inputs in times["nodes"]:
            of_inputs = times["nodes"][inputs][nodes]
        else:
            raise self.without_times(graph, inputs)
        return {**times, "inputs": np.ascontiguousarray(of_inputs)}

    def without_times(self, graph: Any, node_type: int) -> ValueError:
        """Error of seeds whose type has no times."""
        return ValueError(f"time_attr '{self.time_attr}': nodes of type '{graph.types[node_type][0]}' have no times; pass input_time")


def times_of(values: Any, name: str) -> np.ndarray:
    """Times as 64-bit integers."""
    times = array_of(values, name)
    if times.ndim != 1 or times.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected an integer per row, not shape {times.shape} of {times.dtype}; scale times, for example to seconds")
    return times.astype(np.int64)


def hops_per_type(data: Any, num_neighbors: Any) -> Any:
    """Numbers of neighbours: a list, or for graphs of several types as given."""
    of_types = isinstance(num_neighbors, dict) or hasattr(num_neighbors, "get_mapped_values")
    if of_types and not is_typed(data):
        values = num_neighbors if isinstance(num_neighbors, dict) else num_neighbors.values
        if isinstance(values, dict):
            raise ValueError("num_neighbors: expected a list with a number per hop; a dict by edge type needs a graph of several types")
        num_neighbors, of_types = values, False
    return num_neighbors if of_types else [int(k) for k in num_neighbors]


def sampler_of_types(loader: Any, graph: HeteroGraph) -> tuple[str, list[list[int]], str]:
    """The engine's sampler whose draws fill the tiers of a loader on several types."""
    # other attributes are no weights of the engine's graph
    name = "weighted" if loader._weight_attr == "edge_weight" else "neighbor"
    return name, [hops or [1] for hops in per_edge_type(loader.num_neighbors, graph)], "{}"


def subgraph_of_types(loader: Any, graph: HeteroGraph) -> dict[str, Any]:
    """Arguments of a source of several types for the ``subgraph_type`` of a loader."""
    subgraph = loader.subgraph_type
    if subgraph not in ("directional", "bidirectional", "induced"):
        raise ValueError(f"subgraph_type '{subgraph}': use directional, bidirectional or induced")
    reverses = [_reverse_of(kind, graph, type(loader).__name__) for kind in graph.edge_types] if subgraph == "bidirectional" else None
    return {"induced": subgraph == "induced", "reverses": reverses}


def _reverse_of(kind: EdgeType, graph: HeteroGraph, who: str) -> int:
    """Number of the reverse edge type of an edge type."""
    if kind in graph.reverse:
        return graph.edge_types.index(graph.reverse[kind])
    if kind[0] == kind[2]:
        return graph.edge_types.index(kind)
    found = [r for r, other in enumerate(graph.edge_types) if (other[0], other[2]) == (kind[2], kind[0])]
    if len(found) != 1:
        raise NotImplementedError(
            f"{who}: subgraph_type 'bidirectional' needs a reverse edge type of {kind}, and there are {len(found)} from '{kind[2]}' "
            f"to '{kind[0]}'; add ('{kind[2]}', 'rev_{kind[1]}', '{kind[0]}'), as torch_geometric.transforms.ToUndirected does, "
            "or use 'induced'"
        )
    return found[0]


def weights_of(weight_attr: str | None, graph: Any) -> Any:
    """Weights of the edges (of several types a list), or ``None``."""
    if weight_attr is None:
        return None
    if hasattr(graph, "edge_values"):
        found = [values.get(weight_attr) for values in graph.edge_values]
        if all(value is None for value in found):
            known = ", ".join(sorted({name for values in graph.edge_values for name in values})) or "none"
            raise ValueError(f"weight_attr '{weight_attr}': no edge type has this attribute; known: {known}")
        return [None if value is None else _weights(weight_attr, value) for value in found]
    if weight_attr not in graph.edge_weights:
        known = ", ".join(sorted(graph.edge_weights)) or "none"
        raise ValueError(f"weight_attr '{weight_attr}': no such edge attribute; known: {known}")
    return _weights(weight_attr, graph.edge_weights[weight_attr])


def _weights(name: str, value: Any) -> np.ndarray:
    weights = array_of(value, name)
    if weights.ndim != 1 or weights.dtype.kind not in "fiu":
        raise TypeError(f"weight_attr '{name}': expected a number per edge, not shape {weights.shape} of {weights.dtype}")
    return weights.astype(np.float64)
