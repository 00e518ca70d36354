"""Graphs of several types that loaders read, and their batches without PyTorch Geometric."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import numpy as np

from . import _graphmill
from ._frameworks import array_of, edge_list, find, is_tensor
from .data import _without_numpy
from .typed import EdgeType, TypedDataset, edge_type_of


class HeteroData:
    """A minibatch of several types: ``batch["paper"].x``, ``batch["author", "writes", "paper"].edge_index``.

    It has the fields of PyTorch Geometric's ``HeteroData``. ``batch.x_dict`` has ``x`` of all types
    that have it.
    """

    def __init__(self, node_types: list[str], edge_types: list[EdgeType]):
        self.node_types, self.edge_types = node_types, edge_types
        self._stores: dict[Any, Store] = {kind: Store() for kind in [*node_types, *edge_types]}

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as models of PyTorch Geometric take them."""
        return self.node_types, self.edge_types

    def __getitem__(self, kind: Any) -> Store:
        try:
            return self._stores[kind]
        except KeyError:
            types = ", ".join(map(str, self._stores))
            raise KeyError(f"no type {kind!r}; there are: {types}") from None

    def __getattr__(self, name: str) -> dict[Any, Any]:
        if name.endswith("_dict") and not name.startswith("_"):
            found = {kind: store[name[:-5]] for kind, store in self._stores.items() if name[:-5] in store}
            if found:
                return found
        raise AttributeError(f"'HeteroData' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"HeteroData({', '.join(f'{kind}={list(store)}' for kind, store in self._stores.items())})"


class Store(dict):
    """Values of a node type or an edge type, by name and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no value '{name}'; there are: {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


@dataclass
class HeteroGraph:
    """Parts of a user's graph of several types."""

    #: name and number of nodes of each type
    types: list[tuple[str, int]]
    edge_types: list[EdgeType]
    #: numbers of the source and the destination type, and topology
    relations: list[tuple[int, int, Any]] = field(default_factory=list)
    #: name; "nodes" or "edges"; number of the type; array
    tables: list[tuple[str, str, int, Any]] = field(default_factory=list)
    #: by name, kind and number, the conversion of a gathered tensor to its own type
    views: dict[tuple[str, str, int], Callable[[Any], Any]] = field(default_factory=dict)
    #: name, node type or edge type, kind: values that PyTorch Geometric indexes
    foreign: list[tuple[str, Any, str]] = field(default_factory=list)
    #: PyTorch Geometric's data that batches are copied from, or None
    template: Any = None
    #: by edge type, the attributes with a value per edge
    edge_values: list[dict[str, Any]] = field(default_factory=list)
    #: edge type of the reverse edges, if known
    reverse: dict[EdgeType, EdgeType] = field(default_factory=dict)
    #: edges of each relation in the order of their numbers
    edges_of: Callable[[int], np.ndarray] | None = None
    #: a graph of one type, whose batches are `Data`
    homogeneous: Any = None

    def number(self, node_type: str) -> int:
        """Number of a node type.

        Raises:
            ValueError: The type is unknown.
        """
        names = [name for name, _ in self.types]
        if node_type not in names:
            raise ValueError(f"node type '{node_type}' is unknown; the types are {', '.join(names)}")
        return names.index(node_type)

    def relation(self, edge_type: Any) -> int:
        """Number of an edge type, by its three names, or by two if they are unique.

        Raises:
            ValueError: The type is unknown or ambiguous.
        """
        return edge_type_of(edge_type, self.edge_types)


def is_typed(data: Any) -> bool:
    """Returns true for a graph of several types: a ``TypedDataset`` or a ``HeteroData``."""
    return isinstance(data, TypedDataset) or hasattr(data, "node_types") and hasattr(data, "edge_types") and hasattr(data, "node_items")


def open_hetero(data: Any) -> HeteroGraph:
    """Splits a user's graph of several types into its parts."""
    return _of_dataset(data) if isinstance(data, TypedDataset) else _of_pyg(data)


def _of_dataset(data: TypedDataset) -> HeteroGraph:
    graph = HeteroGraph([(name, int(count)) for name, count in data._native.node_types], [tuple(kind) for kind in data.edge_types])
    tasks = {}
    for name in data.tasks:
        task = data.task(name)
        if task.on in data.node_types and task.seeds is None and task.y is not None:
            tasks.setdefault(task.on, task)
    for t, (kind, count) in enumerate(graph.types):
        columns = data.nodes(kind)
        for name in ("x", "time"):
            value = getattr(columns, name)
            if value is not None:
                graph.tables.append((name, "nodes", t, np.ascontiguousarray(value)))
        if kind in tasks:
            task = tasks[kind]
            y = np.asarray(task.y)
            graph.tables.append(("y", "nodes", t, np.ascontiguousarray(y.astype(np.int64) if y.dtype == np.int32 else y)))
            for part, mask in (("train", "train_mask"), ("valid", "val_mask"), ("test", "test_mask")):
                chosen = np.zeros(count, bool)
                chosen[getattr(task, part)] = True
                graph.tables.append((mask, "nodes", t, chosen))
    names = {kind[1]: kind for kind in graph.edge_types}
    for r, kind in enumerate(graph.edge_types):
        native = data._native.edges(list(kind))
        src, dst = graph.number(kind[0]), graph.number(kind[2])
        graph.relations.append((src, dst, data._native.topology(r)))
        values = {}
        for theirs, name in (("edge_attr", "x"), ("edge_weight", "weight"), ("time", "time")):
            if native[name] is not None:
                values[theirs] = np.ascontiguousarray(native[name])
                graph.tables.append((theirs, "edges", r, values[theirs]))
        graph.edge_values.append(values)
        reverse = native["reverse"]
        if reverse is not None and reverse in names:
            graph.reverse[kind] = names[reverse]
    _find_reverses(graph)
    graph.edges_of = lambda r: data.edges(graph.edge_types[r]).edge_index
    return graph


def _of_pyg(data: Any) -> HeteroGraph:
    types = []
    for kind in data.node_types:
        count = data[kind].num_nodes
        if count is None:
            raise ValueError(f"'{kind}': the number of nodes is unknown; set data['{kind}'].num_nodes")
        types.append((kind, int(count)))
    graph = HeteroGraph(types, [tuple(kind) for kind in data.edge_types], template=data)
    for t, (kind, _) in enumerate(types):
        store = data[kind]
        for name, value in store.items():
            if name not in ("num_nodes", "n_id") and store.is_node_attr(name):
                _add(graph, name, value, (kind, "nodes", t))
    for r, kind in enumerate(graph.edge_types):
        store = data[kind]
        index = store.get("edge_index") if hasattr(store, "get") else None
        if index is None:
            raise ValueError(f"{kind}: 'edge_index' is missing; torch_geometric.transforms.ToSparseTensor removes it")
        edges = edge_list(index, f"edge_index of {kind}")
        src, dst = graph.number(kind[0]), graph.number(kind[2])
        try:
            topology = _graphmill.Topology.bipartite(types[src][1], types[dst][1], edges[0], edges[1])
        except ValueError as error:
            raise ValueError(f"{kind}: {error}") from None
        graph.relations.append((src, dst, topology))
        graph.edge_values.append({})
        for name, value in store.items():
            if name not in ("edge_index", "adj_t", "e_id") and store.is_edge_attr(name):
                _add(graph, name, value, (kind, "edges", r))
    _find_reverses(graph)
    graph.edges_of = lambda r: array_of(data[graph.edge_types[r]].edge_index, "edge_index")
    return graph


def _find_reverses(graph: HeteroGraph) -> None:
    """Pairs ``(a, x, b)`` with ``(b, rev_x, a)``, as ``ToUndirected`` names them."""
    for source, name, destination in graph.edge_types:
        reverse = (destination, f"rev_{name}", source)
        if reverse in graph.edge_types:
            graph.reverse.setdefault((source, name, destination), reverse)
            graph.reverse.setdefault(reverse, (source, name, destination))


def _add(graph: HeteroGraph, name: str, value: Any, place: tuple[Any, str, int]) -> None:
    """Adds an array or tensor of a type to the gathered tables."""
    kind, whose, number = place
    torch = find("torch") if is_tensor(value) else None
    dense = isinstance(value, np.ndarray) or torch is not None and value.device.type == "cpu" and value.layout == torch.strided
    if not dense:
        graph.foreign.append((name, kind, whose))
        return
    if whose == "edges":
        graph.edge_values[number][name] = value
    if torch is not None and value.dtype in _without_numpy(torch):
        dtype, bits = value.dtype, {1: torch.uint8, 2: torch.int16}[value.element_size()]
        value = value.detach().contiguous().view(bits)
        graph.views[name, whose, number] = lambda tensor: tensor.view(dtype)
    array = array_of(value, f"{name} of {kind}")
    if array.dtype.hasobject:
        raise TypeError(f"{name} of {kind}: expected an array of numbers, not of {array.dtype}")
    graph.tables.append((name, whose, number, array))


class HeteroOutput:
    """Converts arrays to batches of several types."""

    def __init__(self, graph: HeteroGraph, kind: str = "auto", pin_memory: bool = False):
        if kind not in ("auto", "pyg", "torch", "numpy"):
            raise ValueError(f"output '{kind}': use auto, pyg, torch or numpy")
        torch = find("torch") if kind != "numpy" else None
        pyg = find("torch_geometric.data") if kind in ("auto", "pyg") and torch is not None else None
        if kind == "pyg" and pyg is None or kind == "torch" and torch is None:
            raise ImportError(f"output '{kind}': its package is not installed; use output='auto'")
        self.graph, self.torch, self.pyg = graph, torch, pyg
        self.pin = pin_memory and torch is not None and torch.cuda.is_available()

    def value(self, array: np.ndarray | None) -> Any:
        """The array itself, or with torch a tensor over the same memory."""
        if array is None or self.torch is None:
            return array
        tensor = self.torch.from_numpy(array)
        return tensor.pin_memory() if self.pin else tensor

    def batch(self, arrays: tuple) -> Any:
        """Creates a batch with all gathered rows."""
        _, _, nodes, edge_index, edges, tree, tables, nodes_per_hop, edges_per_hop, _ = arrays
        graph = self.graph
        if self.pyg is None:
            out = HeteroData([name for name, _ in graph.types], graph.edge_types)
        else:
            out = copy.copy(graph.template) if graph.template is not None else self.pyg.HeteroData()
        places = {"nodes": [name for name, _ in graph.types], "edges": graph.edge_types}
        for t, kind in enumerate(places["nodes"]):
            store = out[kind]
            store["n_id"] = self.value(nodes[t])
            store["num_nodes"] = len(nodes[t])
            if nodes_per_hop is not None:
                store["num_sampled_nodes"] = nodes_per_hop[t]
            if tree is not None:
                store["batch"] = self.value(tree[t])
        for r, kind in enumerate(graph.edge_types):
            store = out[kind]
            store["edge_index"] = self.value(edge_index[r])
            store["e_id"] = self.value(edges[r])
            if edges_per_hop is not None:
                store["num_sampled_edges"] = edges_per_hop[r]
        for (name, whose, number, _), array in zip(graph.tables, tables):
            value, view = self.value(array), graph.views.get((name, whose, number))
            out[places[whose][number]][name] = value if view is None or self.torch is None else view(value)
        if self.pyg is not None and graph.foreign:
            select = find("torch_geometric.loader.utils").index_select
            for name, kind, whose in graph.foreign:
                store = graph.template[kind]
                value, ids = store[name], out[kind]["n_id" if whose == "nodes" else "e_id"]
                along = graph.template.__cat_dim__(name, value, store)
                out[kind][name] = select(value, ids.to(getattr(value, "device", "cpu")), dim=along)
        return out


def per_edge_type(numbers: Any, graph: HeteroGraph) -> list[list[int]]:
    """Neighbours per hop of each edge type: of a list, a dict by edge type, or a ``NumNeighbors``."""
    default = None
    if hasattr(numbers, "get_mapped_values"):
        default, numbers = getattr(numbers, "default", None), numbers.values
    if not isinstance(numbers, dict):
        hops = [int(k) for k in numbers]
        return [hops for _ in graph.edge_types]
    found: list[Any] = [default] * len(graph.edge_types)
    for kind, hops in numbers.items():
        found[graph.relation(kind)] = hops
    missing = [str(kind) for kind, hops in zip(graph.edge_types, found) if hops is None]
    if missing:
        raise ValueError(f"num_neighbors: no numbers for {', '.join(missing)}; give each edge type a list, [0, ...] to leave it out")
    found = [[int(k) for k in hops] for hops in found]
    if len({len(hops) for hops in found}) > 1:
        raise ValueError(f"num_neighbors: the edge types have {sorted({len(hops) for hops in found})} hops; give all equally many")
    return found
