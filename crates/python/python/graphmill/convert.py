"""Graphs of NetworkX, PyTorch Geometric and DGL as datasets, and datasets as graphs of these and SciPy.

Their packages are imported only when they are needed.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Sequence

import numpy as np

from ._frameworks import array_of, find
from .typed import TypedDataset, targets_of

if TYPE_CHECKING:
    from .dataset import Dataset

#: attributes that are read from PyTorch Geometric's stores of nodes and of edges
PYG_NODES = ("x", "y", "time", "num_nodes", "train_mask", "val_mask", "test_mask")
PYG_EDGES = ("edge_index", "edge_attr", "edge_weight", "time")
#: masks and parts of a split
PARTS = {"train_mask": "train", "val_mask": "valid", "test_mask": "test"}


def tables_of_networkx(graph: Any, weight: str | None) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Node table, edge table and options of an import of a NetworkX graph."""
    if not (hasattr(graph, "is_directed") and hasattr(graph, "nodes") and hasattr(graph, "edges")):
        raise TypeError(f"graph: expected a graph of NetworkX, not {type(graph).__name__}")
    nodes = list(graph.nodes(data=True))
    edges = list(graph.edges(data=True))
    attributes = _names(data for _, data in nodes)
    edge_attributes = _names(data for *_, data in edges)
    id = _unused("node", attributes)
    src, dst = _unused("source", edge_attributes), _unused("target", edge_attributes)
    keys = {node: _key(node) for node, _ in nodes}
    texts: dict[str, Any] = {}
    for node, key in keys.items():
        other = texts.setdefault(str(key), node)
        if other is not node:
            raise ValueError(f"nodes {other!r} and {node!r} are both written as '{key}'; relabel them, for example with networkx.relabel_nodes")
    table = {id: list(keys.values())}
    for name in attributes:
        table[_text(name, "nodes")] = [data.get(name) for _, data in nodes]
    edge_table: dict[str, Any] = {src: [keys[u] for u, *_ in edges], dst: [keys[v] for _, v, _ in edges]}
    for name in edge_attributes:
        missing = 1 if name == weight else None
        edge_table[_text(name, "edges")] = [data.get(name, missing) for *_, data in edges]
    options: dict[str, Any] = {"id": id, "src": src, "dst": dst, "undirected": not graph.is_directed()}
    if weight is not None and weight in edge_attributes:
        options["edge_weight"] = weight
    return table, edge_table, options


def _names(rows: Any) -> list[Any]:
    return list(dict.fromkeys(name for data in rows for name in data))


def _unused(name: str, taken: list[Any]) -> str:
    while name in taken:
        name += "_"
    return name


def _text(name: Any, which: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"attribute {name!r} of {which}: its name is not a text; rename it")
    return name


def _key(node: Any) -> Any:
    return node if isinstance(node, (int, str)) and not isinstance(node, bool) else str(node)


#: arrays of a dataset that become attributes of the nodes in NetworkX
NODE_ATTRIBUTES = ("x", "y", *PARTS)


def to_networkx(data: Dataset, node_attrs: Sequence[str], to_undirected: bool) -> Any:
    """Graph of NetworkX of a dataset."""
    networkx = _needed("to_networkx", "networkx")
    names = np.arange(data.num_nodes) if data.keys is None else data.keys
    names = names.tolist()
    columns = {}
    for name in [node_attrs] if isinstance(node_attrs, str) else node_attrs:
        if name not in NODE_ATTRIBUTES:
            raise ValueError(f"node_attrs: no array '{name}'; choose from {', '.join(NODE_ATTRIBUTES)}")
        column = getattr(data, name)
        if column is None:
            raise ValueError(f"node_attrs: the dataset {data.name} has no '{name}'; leave it out")
        columns[name] = column.tolist()
    ends, weight = data.edge_index, data.edge_weight
    if to_undirected:
        ends = np.sort(ends, axis=0)
    pairs, first, place = np.unique(ends[0] * data.num_nodes + ends[1], return_index=True, return_inverse=True)
    has_parallel = len(pairs) < ends.shape[1]
    if to_undirected:
        if weight is not None:
            for e in np.flatnonzero(weight[first][place.reshape(-1)] != weight)[:1]:
                u, v = (names[end] for end in ends[:, e])
                raise ValueError(f"to_undirected: the edges between {u!r} and {v!r} have several weights; convert without it")
            weight = weight[first]
        ends, graph = ends[:, first], networkx.Graph()
    else:
        graph = networkx.MultiDiGraph() if has_parallel else networkx.DiGraph()
    graph.graph["name"] = data.name
    graph.add_nodes_from((node, {name: column[v] for name, column in columns.items()}) for v, node in enumerate(names))
    sources, targets = ([names[v] for v in end.tolist()] for end in ends)
    if weight is None:
        graph.add_edges_from(zip(sources, targets))
    else:
        graph.add_weighted_edges_from(zip(sources, targets, weight.tolist()))
    return graph


def to_scipy(data: Dataset) -> Any:
    """Adjacency matrix of SciPy of a dataset."""
    sparse = _needed("to_scipy", "scipy.sparse")
    weight = data.edge_weight
    values = np.ones(data.num_edges, np.float32) if weight is None else np.array(weight)
    # SciPy's indices are signed, and of 32 bits if they suffice, as some of its solvers demand
    index = np.int32 if max(data.num_nodes, data.num_edges) < 2**31 else np.int64
    columns = (values, data.indices.astype(index), data.indptr.astype(index))
    return sparse.csc_array(columns, shape=(data.num_nodes, data.num_nodes))


def to_dgl(data: Dataset) -> Any:
    """DGL graph of a dataset."""
    torch, dgl = _needed("to_dgl", "torch"), _needed("to_dgl", "dgl")
    graph = dgl.graph(tuple(torch.from_numpy(np.array(end)) for end in data.edge_index), num_nodes=data.num_nodes)
    columns = {"feat": data.x, "label": labels_of(data.y), **{mask: getattr(data, mask) for mask in PARTS}}
    for name, column in columns.items():
        if column is not None:
            graph.ndata[name] = tensor_of(torch, column)
    if data.edge_weight is not None:
        graph.edata["weight"] = tensor_of(torch, data.edge_weight)
    return graph


def typed_to_dgl(data: TypedDataset) -> Any:
    """Heterogeneous DGL graph of a dataset of several types."""
    torch, dgl = _needed("to_dgl", "torch"), _needed("to_dgl", "dgl")
    ends = {kind: tuple(torch.from_numpy(np.array(end)) for end in data.edges(kind).edge_index) for kind in data.edge_types}
    graph = dgl.heterograph(ends, num_nodes_dict={kind: data.nodes(kind).num_nodes for kind in data.node_types})
    columns = {"x": "feat", "weight": "weight", "time": "time"}
    stores = [(data.nodes(kind), graph.nodes[kind].data) for kind in data.node_types]
    for store, frame in stores + [(data.edges(kind), graph.edges[kind].data) for kind in data.edge_types]:
        for name, theirs in columns.items():
            if getattr(store, name, None) is not None:
                frame[theirs] = tensor_of(torch, getattr(store, name))
    for kind, targets in data._targets():
        for name, values in targets.items():
            graph.nodes[kind].data["label" if name == "y" else name] = torch.from_numpy(values)
    return graph


def _needed(method: str, module: str) -> Any:
    found, package = find(module), module.split(".")[0]
    if found is None:
        raise ImportError(f"{method}() needs {package}; install it with pip install {package}")
    return found


def tensor_of(torch: Any, array: np.ndarray) -> Any:
    """Tensor over the memory of an array, which may be read-only."""
    with warnings.catch_warnings():
        # torch warns about tensors over read-only memory; the docstrings do, too
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def labels_of(y: np.ndarray | None) -> np.ndarray | None:
    """Labels as the losses of torch take them: several per node are floats."""
    return y.astype(np.float32) if y is not None and y.ndim == 2 else y


def is_hetero(data: Any) -> bool:
    """Returns true for a ``HeteroData``: a graph with names of node types and edge types."""
    return hasattr(data, "node_types") and hasattr(data, "edge_types") and hasattr(data, "to_dict")


def typed_of_pyg(data: Any, name: str) -> TypedDataset:
    """Dataset of a ``HeteroData``; attributes that are not read are named in a warning."""
    nodes: dict[str, dict[str, Any]] = {}
    edges: dict[tuple[str, str, str], dict[str, Any]] = {}
    tasks: dict[str, dict[str, Any]] = {}
    ignored: list[str] = []
    for kind in data.edge_types:
        store = dict(data[kind].items())
        if store.get("edge_index") is None:
            raise ValueError(f"{kind}: 'edge_index' is missing; torch_geometric.transforms.ToSparseTensor removes it")
        columns = {"x": store.get("edge_attr"), "weight": store.get("edge_weight"), "time": store.get("time")}
        edges[tuple(kind)] = {"edge_index": store["edge_index"], **columns}
        ignored += [f"{attribute} of {kind}" for attribute in store if attribute not in PYG_EDGES]
    for kind in data.node_types:
        store = dict(data[kind].items())
        count = data[kind].num_nodes
        if count is None:
            raise ValueError(f"'{kind}': the number of nodes is unknown; set data['{kind}'].num_nodes")
        nodes[kind] = {"num_nodes": count, "x": store.get("x"), "time": store.get("time")}
        if store.get("y") is not None:
            tasks[kind] = {"on": kind, "y": store["y"], **{part: store.get(mask) for mask, part in PARTS.items()}}
        ignored += [f"{attribute} of '{kind}'" for attribute in store if attribute not in PYG_NODES]
    _warn(ignored)
    return TypedDataset.from_arrays(nodes, edges, tasks, name=name)


def _warn(ignored: list[str]) -> None:
    if ignored:
        warnings.warn(f"not read: {', '.join(ignored)}", UserWarning, stacklevel=4)


def is_dgl(graph: Any) -> bool:
    """Returns true for a ``DGLGraph``."""
    return all(hasattr(graph, name) for name in ("ntypes", "canonical_etypes", "num_nodes", "edges", "nodes"))


def of_dgl(graph: Any, names: dict[str, str | None], options: dict[str, Any]) -> Any:
    """Dataset of a DGL graph: of one type, or of several for a heterograph."""
    if not is_dgl(graph):
        raise TypeError(f"graph: expected a dgl.DGLGraph, not {type(graph).__name__}")
    ignored: list[str] = []
    frames = {kind: _frame(graph.nodes[kind].data, kind, names, ("features", "label", *PARTS), ignored) for kind in graph.ntypes}
    edges = {}
    for kind in graph.canonical_etypes:
        src, dst = graph.edges(etype=kind, order="eid")
        frame = _frame(graph.edges[kind].data, kind, names, ("edge_features", "weight", "edge_time"), ignored)
        index = np.stack([array_of(src, "sources"), array_of(dst, "destinations")])
        edges[tuple(kind)] = (index, frame)
    _warn(ignored)
    one = len(graph.ntypes) == 1 and len(edges) == 1
    if one:
        kind, ((index, frame),) = graph.ntypes[0], edges.values()
        nodes = frames[kind]
        is_values = "label" in nodes and targets_of(nodes["label"], "label")[1]
        if "edge_features" not in frame and "edge_time" not in frame and not is_values:
            from .dataset import Dataset

            return Dataset.from_arrays(
                index, num_nodes=graph.num_nodes(kind), x=nodes.get("features"), y=nodes.get("label"),
                edge_weight=frame.get("weight"), **{mask: nodes.get(mask) for mask in PARTS}, **options,
            )  # fmt: skip
    if options.get("metric") is not None:
        raise ValueError("metric: only a graph of one type with classes has it; leave it out")
    tasks = {
        kind: {"on": kind, "y": frame["label"], **{part: frame.get(mask) for mask, part in PARTS.items()}}
        for kind, frame in frames.items()
        if "label" in frame
    }
    return TypedDataset.from_arrays(
        {kind: {"num_nodes": graph.num_nodes(kind), "x": frame.get("features")} for kind, frame in frames.items()},
        {
            kind: {"edge_index": index, "x": frame.get("edge_features"), "weight": frame.get("weight"), "time": frame.get("edge_time")}
            for kind, (index, frame) in edges.items()
        },
        tasks,
        name=options["name"],
    )


def _frame(data: Any, kind: Any, names: dict[str, str | None], roles: tuple[str, ...], ignored: list[str]) -> dict[str, Any]:
    """Columns of a frame by their roles; the others are listed as ignored."""
    wanted = {names[role]: role for role in roles if names.get(role) is not None}
    found = {}
    for name, value in data.items():
        if name in wanted:
            found[wanted[name]] = value
        elif name not in ("_ID", "_TYPE"):
            ignored.append(f"{name} of {kind}")
    return found
