"""Graphs that loaders read, and the batches that they yield without PyTorch Geometric."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import numpy as np

from . import _graphmill
from ._frameworks import array_of, edge_list, find, is_pyg, is_tensor
from .dataset import Dataset


#: Values that are read from any object, beside its own attributes.
NAMES = ("edge_index", "num_nodes", "x", "y", "train_mask", "val_mask", "test_mask", "edge_weight", "edge_attr")


class Data:
    """A graph or a minibatch: named values, as attributes and by ``[]``.

    As input of a loader it needs ``edge_index`` (``2 x E``: sources, destinations) and, without
    ``x``, also ``num_nodes``. Arrays with a row per node (or edge) are gathered for the nodes (or
    edges) of a batch. As a batch it has the fields of PyTorch Geometric's ``Data``.
    """

    def __init__(self, **values: Any):
        self.__dict__.update({name: value for name, value in values.items() if value is not None})

    def keys(self) -> list[str]:
        """Names of the values."""
        return list(self.__dict__)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value

    def __delitem__(self, name: str) -> None:
        del self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def __getattr__(self, name: str) -> Any:
        if name == "num_nodes" and not name.startswith("__"):
            for known in ("n_id", "x", "y"):
                if known in self.__dict__:
                    return len(self.__dict__[known])
        raise AttributeError(f"'Data' object has no attribute '{name}'")

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.__dict__["edge_index"].shape[1] if "edge_index" in self.__dict__ else 0

    def __repr__(self) -> str:
        def shown(value: Any) -> str:
            shape = getattr(value, "shape", None)
            return str(value) if shape is None else str(list(shape))

        return f"Data({', '.join(f'{name}={shown(value)}' for name, value in self)})"


@dataclass
class Graph:
    """Parts of a user's graph."""

    topology: _graphmill.Topology
    #: name; "nodes" or "edges"; array of the rows, or a native dataset
    tables: list[tuple[str, str, Any]] = field(default_factory=list)
    #: by name, the conversion of a gathered tensor to its own type, if it needs one
    views: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    #: name; "nodes" or "edges": values that PyTorch Geometric indexes
    foreign: list[tuple[str, str]] = field(default_factory=list)
    #: PyTorch Geometric's data that batches are copied from, or None
    template: Any = None
    has_num_nodes: bool = False
    edge_weights: dict[str, Any] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        return self.topology.num_nodes

    @property
    def num_edges(self) -> int:
        return self.topology.num_edges


def open_graph(data: Any) -> Graph:
    """Splits a user's graph into its parts.

    The graph is a :class:`graphmill.Dataset`, PyTorch Geometric's ``Data``, a :class:`Data`, a dict
    with its names, or another object with ``edge_index``.
    """
    if isinstance(data, Dataset):
        return _of_dataset(data)
    if is_pyg(data):
        return _of_pyg(data)
    if isinstance(data, dict):
        data = Data(**data)
    if not isinstance(data, Data) and hasattr(data, "edge_index"):
        names = dict.fromkeys([*NAMES, *getattr(data, "__dict__", ())])
        data = Data(**{name: getattr(data, name, None) for name in names if not name.startswith("_")})
    if isinstance(data, Data):
        return _of_arrays(data)
    raise TypeError(
        "data: expected a graphmill.Dataset, a torch_geometric.data.Data, a graphmill.Data, a dict or an object with "
        f"edge_index, not {type(data).__name__}"
    )


def topology_of(edge_index: Any, num_nodes: int) -> _graphmill.Topology:
    """Topology of an edge list (``2 x E``)."""
    edges = edge_list(edge_index)
    return _graphmill.Topology.from_edges(num_nodes, edges[0], edges[1])


def _of_dataset(data: Any) -> Graph:
    graph = Graph(data._native.topology(), has_num_nodes=data.num_features == 0)
    if data.num_features:
        graph.tables.append(("x", "nodes", data._native))
    y = data.y
    if y is not None:
        graph.tables.append(("y", "nodes", y.astype(np.float32) if y.ndim == 2 else y))
    for name in ("train_mask", "val_mask", "test_mask"):
        graph.tables.append((name, "nodes", getattr(data, name)))
    if data.edge_weight is not None:
        graph.tables.append(("edge_weight", "edges", data.edge_weight))
        graph.edge_weights["edge_weight"] = data.edge_weight
    return graph


def _of_arrays(data: Data) -> Graph:
    if "edge_index" not in data:
        raise ValueError("data: 'edge_index' is missing")
    nodes = data.__dict__.get("num_nodes")
    if nodes is None:
        known = [data[name] for name in ("x", "y") if name in data]
        if not known:
            raise ValueError("data: the number of nodes is unknown; give num_nodes or x")
        nodes = len(known[0])
    graph = Graph(topology_of(data["edge_index"], int(nodes)), has_num_nodes="x" not in data)
    for name, value in data:
        if name in ("edge_index", "num_nodes") or not (isinstance(value, np.ndarray) or is_tensor(value)):
            continue
        _add(graph, name, value, _whose(name, value, graph))
    return graph


def _whose(name: str, value: Any, graph: Graph) -> str | None:
    """"nodes" or "edges" if an array has a row for each of them, by PyTorch Geometric's rules."""
    if value.ndim == 0:
        return None
    rows, nodes, edges = value.shape[0], graph.num_nodes, graph.num_edges
    if rows == nodes and (nodes != edges or "edge" not in name):
        return "nodes"
    return "edges" if rows == edges else None


def _of_pyg(data: Any) -> Graph:
    if type(data).__name__ == "HeteroData" or not hasattr(data, "_store"):
        raise TypeError("data: expected a graph with one node type and one edge type (torch_geometric.data.Data), not " + type(data).__name__)
    if data.edge_index is None:
        raise ValueError("data: 'edge_index' is missing; with 'adj_t', set data.edge_index = torch.stack(data.adj_t.t().coo()[:2])")
    store, nodes = data._store, data.num_nodes
    if nodes is None:
        raise ValueError("data: the number of nodes is unknown; set data.num_nodes")
    graph = Graph(topology_of(data.edge_index, int(nodes)), template=data, has_num_nodes="num_nodes" in store)
    for name, value in store.items():
        if name in ("edge_index", "num_nodes"):
            continue
        whose = "nodes" if store.is_node_attr(name) else "edges" if store.is_edge_attr(name) else None
        if whose is None:
            continue
        simple = isinstance(value, np.ndarray) or (
            is_tensor(value) and value.device.type == "cpu" and not value.is_sparse and value.layout == find("torch").strided
        )
        along = data.__cat_dim__(name, value, store) if simple else None
        if along in (0, -1) and (along == 0 or value.ndim == 1):
            _add(graph, name, value, whose)
        else:
            graph.foreign.append((name, whose))
    return graph


def _add(graph: Graph, name: str, value: Any, whose: str | None) -> None:
    """Adds an array or tensor to the gathered tables."""
    if whose is None:
        return
    if whose == "edges":
        graph.edge_weights[name] = value
    torch = find("torch") if is_tensor(value) else None
    if torch is not None and value.dtype in _without_numpy(torch):
        # NumPy lacks the type, so its bits are gathered as integers
        dtype, bits = value.dtype, {1: torch.uint8, 2: torch.int16}[value.element_size()]
        value = value.detach().contiguous().view(bits)
        graph.views[name] = lambda tensor: tensor.view(dtype)
    array = array_of(value, name)
    if array.dtype.hasobject:
        raise TypeError(f"{name}: expected an array of numbers, not of {array.dtype}")
    graph.tables.append((name, whose, array))


def _without_numpy(torch: Any) -> set[Any]:
    """Types of torch that NumPy lacks."""
    names = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
    return {getattr(torch, name) for name in names if hasattr(torch, name)}


def frameworks_of(kind: str) -> tuple[Any, Any]:
    """Modules ``torch`` and ``torch_geometric`` of an output, ``None`` if it does not use them.

    Raises:
        ValueError, ImportError: The output is unknown, or its package is not installed.
    """
    if kind not in ("auto", "pyg", "torch", "numpy"):
        raise ValueError(f"output '{kind}': use auto, pyg, torch or numpy")
    torch = find("torch") if kind != "numpy" else None
    pyg = find("torch_geometric") if kind in ("auto", "pyg") and torch is not None else None
    if kind == "pyg" and pyg is None or kind == "torch" and torch is None:
        raise ImportError(f"output '{kind}': its package is not installed; use output='auto'")
    return torch, pyg


class Output:
    """Converts arrays to batches."""

    def __init__(self, graph: Graph, kind: str = "auto", pin_memory: bool = False):
        torch, pyg = frameworks_of(kind)
        self.graph = graph
        self.torch = torch
        self.pin = pin_memory and torch is not None and torch.cuda.is_available()
        self.pyg = pyg
        if pyg is not None:
            importlib_data = find("torch_geometric.data")
            self.template = graph.template if graph.template is not None else importlib_data.Data()
            if graph.foreign:
                self.index_select = find("torch_geometric.loader.utils").index_select

    def value(self, array: np.ndarray | None) -> Any:
        """The array itself, or with torch a tensor over the same memory."""
        if array is None or self.torch is None:
            return array
        tensor = self.torch.from_numpy(array)
        return tensor.pin_memory() if self.pin else tensor

    def batch(self, n_id: np.ndarray, edge_index: np.ndarray, e_id: np.ndarray, tables: list[np.ndarray]) -> Any:
        """Creates a batch with all gathered rows."""
        graph = self.graph
        # batches of PyTorch Geometric start as a shallow copy of the whole graph
        out = copy.copy(self.template) if self.pyg is not None else Data()
        out["edge_index"] = self.value(edge_index)
        for (name, _, _), array in zip(graph.tables, tables):
            value = self.value(array)
            view = graph.views.get(name)
            out[name] = value if view is None or self.torch is None else view(value)
        if graph.has_num_nodes:
            out["num_nodes"] = len(n_id)
        if self.pyg is not None and graph.foreign:
            for name, whose in graph.foreign:
                value = graph.template[name]
                along = graph.template.__cat_dim__(name, value, graph.template._store)
                index = self.torch.from_numpy(n_id if whose == "nodes" else e_id)
                out[name] = self.index_select(value, index.to(getattr(value, "device", "cpu")), dim=along)
        if "n_id" not in out:
            out["n_id"] = self.value(n_id)
        if "e_id" not in out:
            out["e_id"] = self.value(e_id)
        return out
