"""Message-flow blocks for users of DGL: its ``DataLoader`` and GraphBolt's ``MiniBatch``."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import find, is_pyg, options_of
from .dataset import Dataset
from .hetero import HeteroGraph, is_typed, open_hetero, per_edge_type
from .loader import Loader, check_ids, input_nodes_of
from .typed import EdgeType, TypedDataset


class Block(NamedTuple):
    """Message-flow graph of one layer. The destinations are the first of the sources.

    ``indptr`` (``D + 1``) and ``indices`` (``E``) hold the sources of each destination's edges;
    ``edge_weight`` (``E``) their weights, or ``None`` without weights. ``srcdata`` and ``dstdata``
    hold values of the sources and the destinations by name: ``"_ID"``, ``"feat"`` in the first
    block, ``"label"`` in the last.
    """

    num_src: int
    num_dst: int
    indptr: Any
    indices: Any
    edge_weight: Any
    srcdata: dict[str, Any]
    dstdata: dict[str, Any]

    def num_src_nodes(self) -> int:
        """Number of sources ``S``."""
        return self.num_src

    def num_dst_nodes(self) -> int:
        """Number of destinations ``D``."""
        return self.num_dst

    def num_edges(self) -> int:
        """Number of edges ``E``."""
        return len(self.indices)

    def edges(self) -> tuple[Any, Any]:
        """Source and destination of each edge."""
        indptr = np.asarray(self.indptr)
        destinations = np.repeat(np.arange(self.num_dst), np.diff(indptr))
        torch = find("torch")
        is_array = isinstance(self.indices, np.ndarray)
        return self.indices, destinations if is_array else torch.from_numpy(destinations)

    def to_dgl(self) -> Any:
        """Converts the block to a ``DGLBlock``; needs DGL."""
        dgl = find("dgl")
        if dgl is None:
            raise ImportError("to_dgl() needs dgl; install it with pip")
        block = dgl.create_block(("csc", (self.indptr, self.indices, [])), self.num_src, self.num_dst)
        block.srcdata.update(self.srcdata)
        block.dstdata.update(self.dstdata)
        return block


class TypedBlock:
    """Message-flow graph of one layer of several types. Destinations are the first of the sources.

    ``block[edge_type]`` is the :class:`Block` of an edge type: sources of its source type and
    destinations of its destination type, with their values. ``srcdata`` and ``dstdata`` hold values
    by name and node type: ``block.srcdata["feat"]["paper"]``.
    """

    def __init__(self, num_src: dict[str, int], num_dst: dict[str, int], relations: dict[EdgeType, Any], srcdata: Any, dstdata: Any):
        self._num_src, self._num_dst, self._relations = num_src, num_dst, relations
        self.srcdata, self.dstdata = srcdata, dstdata

    @property
    def canonical_etypes(self) -> list[EdgeType]:
        """Edge types ``(source, name, destination)``."""
        return list(self._relations)

    @property
    def ntypes(self) -> list[str]:
        """Node types."""
        return list(self._num_src)

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """Number of sources of a type, or of all."""
        return sum(self._num_src.values()) if ntype is None else self._num_src[ntype]

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """Number of destinations of a type, or of all."""
        return sum(self._num_dst.values()) if ntype is None else self._num_dst[ntype]

    def num_edges(self, etype: EdgeType | None = None) -> int:
        """Number of edges of a type, or of all."""
        return sum(block.num_edges() for block in self._relations.values()) if etype is None else self[etype].num_edges()

    def __getitem__(self, etype: EdgeType) -> Block:
        return self._relations[tuple(etype)]

    def to_dgl(self) -> Any:
        """Converts the block to a ``DGLBlock``; needs DGL."""
        dgl = find("dgl")
        if dgl is None:
            raise ImportError("to_dgl() needs dgl; install it with pip")
        edges = {kind: ("csc", (block.indptr, block.indices, [])) for kind, block in self._relations.items()}
        made = dgl.create_block(edges, self._num_src, self._num_dst)
        for frame, columns in ((made.srcdata, self.srcdata), (made.dstdata, self.dstdata)):
            for name, values in columns.items():
                frame[name] = values
        return made

    def __repr__(self) -> str:
        return f"TypedBlock(num_src_nodes={self._num_src}, num_dst_nodes={self._num_dst}, num_edges={self.num_edges()})"


class NeighborSampler:
    """Sampler of neighbours: ``dgl.dataloading.NeighborSampler``, and the engine's other samplers.

    Args:
        fanouts: In-neighbours per node for each layer, **the farthest from the seeds first**, as in
            DGL (PyTorch Geometric's order is the reverse); -1 takes all. On a graph of several
            types each layer has a number for all edge types, or a dict by edge type; an edge type
            that a dict leaves out is not followed. The numbers of ``"hgt"`` count nodes of each
            type.
        sampler: ``"neighbor"``, ``"labor"``, ``"weighted"``, ``"random-walk"`` or ``"full"``; of
            several types also ``"hgt"``, and not ``"random-walk"``.
        **options: Options of the sampler, as of ``graphmill train``: ``replace`` of ``"weighted"``,
            ``labor_iterations`` of ``"labor"``, ``num_walks`` of ``"random-walk"``, ...
    """

    def __init__(self, fanouts: Sequence[Any], *, sampler: str = "neighbor", **options: Any):
        self.fanouts, self.sampler, self.options = list(fanouts), sampler, options


class MultiLayerFullNeighborSampler(NeighborSampler):
    """Sampler of all neighbours over ``num_layers`` layers."""

    def __init__(self, num_layers: int):
        super().__init__([-1] * num_layers, sampler="full")


class DataLoader(Loader):
    """Loader of blocks: ``dgl.dataloading.DataLoader``.

    Yields ``(input_nodes, output_nodes, blocks)``, where ``blocks[0]`` is the farthest from the
    seeds; with ``as_minibatch`` a :class:`MiniBatch`.

    On a graph of several types, blocks are :class:`TypedBlock`, and ``input_nodes``,
    ``output_nodes``, labels and features are dicts by node type. Seeds may have several types: a
    batch is ``batch_size`` of all of them together, in the order of the dict or with ``shuffle`` in
    a random one, so that batches mix the types. ``output_nodes`` has the types that a batch has
    seeds of.

    Args:
        dataset: A :class:`graphmill.Dataset` or :class:`graphmill.TypedDataset`, or a
            ``torch_geometric.data.Data`` or ``HeteroData``.
        nids: Distinct seeds: ids, a mask, or ``None`` for the training nodes. Of several types a
            dict of ids or masks by node type, or ``None`` for the training nodes of each type with
            labels.
        sampler: Sampler of the neighbours.
        with_features: Gathers the rows of the input nodes as ``blocks[0].srcdata["feat"]``.
        as_minibatch: Yields :class:`MiniBatch` instead of tuples.
        output: ``"torch"``, ``"numpy"``, ``"dgl"`` (blocks are ``DGLBlock``), or ``"auto"``:
            tensors if torch is installed, else NumPy arrays.
        use_ddp: Takes ``rank`` and ``world_size`` from ``torch.distributed``.
        device: Device that tensors are copied to.
        **kwargs: Arguments of :class:`graphmill.Loader`.

    Raises:
        TypeError, ValueError: The sampler is invalid or does not read an option, an id is out of
            range or given twice, or tiers are configured without ``with_features``.
    """

    def __init__(
        self,
        dataset: Any,
        nids: Any,
        sampler: NeighborSampler,
        *,
        with_features: bool = True,
        as_minibatch: bool = False,
        output: str = "auto",
        use_ddp: bool = False,
        device: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if use_ddp:
            distributed = find("torch.distributed")
            self.rank, self.world_size = distributed.get_rank(), distributed.get_world_size()
        self.dataset = Dataset.from_pyg(dataset) if is_pyg(dataset) else dataset
        if not isinstance(self.dataset, (Dataset, TypedDataset)):
            raise TypeError(f"dataset: expected a graphmill.Dataset or graphmill.TypedDataset, not {type(dataset).__name__}")
        if output not in ("auto", "torch", "numpy", "dgl"):
            raise ValueError(f"output '{output}': use auto, torch, numpy or dgl")
        self.output = output
        self.sampler_options, self.with_features, self.as_minibatch = sampler, with_features, as_minibatch
        self.device = device
        self._types: HeteroGraph | None = None
        if isinstance(self.dataset, TypedDataset):
            if nids is not None and not isinstance(nids, dict):
                raise TypeError('nids: expected a dict by node type on a graph of several types, for example {"paper": ids}')
            self.nids: Any = nids
        else:
            self.nids = self.dataset.train if nids is None else input_nodes_of(nids, self.dataset.num_nodes, "nids")[0]
            check_ids(self.nids, self.dataset.num_nodes, "nids")
        self._open()

    def _sampling(self) -> dict[str, Any]:
        how = self.sampler_options
        return {"sampler": how.sampler, "fanout": how.fanouts[::-1], **how.options}

    def _typed_source(self) -> Any:
        """Source of typed blocks."""
        graph = self._types
        assert graph is not None
        inputs, sampler = self._typed_sampling(graph)
        ends = np.cumsum([0, *(len(ids) for _, ids in inputs)])
        self._ranges = {graph.types[t][0]: (ends[i], ends[i + 1]) for i, (t, _) in enumerate(inputs)}
        self._columns = [(t, name, rows) for name, whose, t, rows in graph.tables if whose == "nodes" and name == "x"] if self.with_features else []
        tables = [(t, rows) for t, _, rows in self._columns]
        return _graphmill.TypedBlockSource(self.dataset._native, inputs, sampler, tables, self.seed % 2**63)

    def _typed_sampling(self, graph: HeteroGraph) -> tuple[list[tuple[int, Any]], tuple[str, list[list[int]], str]]:
        """Types and ids of the seeds; name, numbers and options of the sampler."""
        inputs, how, nids = [], self.sampler_options, self.nids
        if nids is None:
            nids = {graph.types[t][0]: mask for name, whose, t, mask in graph.tables if (name, whose) == ("train_mask", "nodes")}
            if not nids:
                raise ValueError('nids: no node type has labels; pass a dict by node type, for example {"paper": ids}')
        for kind, ids in nids.items():
            t, name = graph.number(kind), f"nids['{kind}']"
            nodes = input_nodes_of(ids, graph.types[t][1], name)[0]
            check_ids(nodes, graph.types[t][1], name)
            inputs.append((t, nodes))
        if how.sampler == "hgt":
            fanouts = [[int(k) for k in how.fanouts[::-1]]] * len(graph.types)
        else:
            layers = [per_edge_type(_all_types(layer, graph), graph) for layer in how.fanouts[::-1]]
            fanouts = [[hops[0] for hops in of_type] for of_type in zip(*layers)]
        return inputs, (how.sampler, fanouts, options_of(how.options))

    def _reseed(self) -> None:
        self._torch = None if self.output == "numpy" else find("torch")
        if self._types is not None:
            self._source = self._typed_source()
            return
        options = options_of({"seed": self.seed % 2**63, **self._sampling()})
        self._source = _graphmill.BlockSource(self.dataset._native, self.nids, options, self.with_features, self._tiers)

    def _value(self, array: Any) -> Any:
        if array is None or self._torch is None:
            return array
        tensor = self._torch.from_numpy(array)
        return tensor if self.device is None else tensor.to(self.device)

    def _yield_typed(self, arrays: tuple) -> Any:
        """A batch of several types."""
        _, inputs, seeds, input_nodes, layers, tables = arrays
        graph, value = self._types, self._value
        assert graph is not None
        names = [name for name, _ in graph.types]
        outputs = {name: value(ids) for name, ids in zip(names, seeds) if len(ids)}
        targets = {graph.types[t][0]: rows for name, whose, t, rows in graph.tables if whose == "nodes" and name == "y"}
        labels = {name: value(targets[name][ids]) for name, ids in zip(names, seeds) if len(ids) and name in targets}
        feat = {names[t]: value(rows) for (t, _, _), rows in zip(self._columns, tables)}
        ids = {name: value(of) for name, of in zip(names, input_nodes)}
        blocks = []
        for layer, (num_dst, num_src, edges) in enumerate(layers):
            src = {"_ID": {name: ids[name][:count] for name, count in zip(names, num_src)}}
            dst = {"_ID": {name: ids[name][:count] for name, count in zip(names, num_dst)}}
            if layer == 0 and feat:
                src["feat"] = feat
            if layer == len(layers) - 1 and labels:
                dst["label"] = labels
            relations = {}
            for kind, (s, d, _), (indptr, indices, weight) in zip(graph.edge_types, graph.relations, edges):
                of = [{name: values[kind[i]] for name, values in data.items() if kind[i] in values} for i, data in ((0, src), (2, dst))]
                relations[kind] = Block(num_src[s], num_dst[d], value(indptr), value(indices), value(weight), *of)
            block = TypedBlock(dict(zip(names, num_src)), dict(zip(names, num_dst)), relations, src, dst)
            blocks.append(block.to_dgl() if self.output == "dgl" else block)
        if not self.as_minibatch:
            return ids, outputs, blocks
        indexes: dict[str, Any] = {}
        for name in outputs:
            first, end = self._ranges[name]
            indexes[name] = value(inputs[(first <= inputs) & (inputs < end)] - first)
        return MiniBatch(outputs, labels or None, ids, {"feat": feat} if feat else {}, blocks, indexes)

    def _yield(self, arrays: tuple) -> Any:
        if self._types is not None:
            return self._yield_typed(arrays)
        _, inputs, seeds, input_nodes, layers, features = arrays
        value = self._value
        labels = None if self.dataset.y is None else value(self.dataset.y[seeds])
        ids, feat = value(input_nodes), value(features)
        blocks = []
        for layer, (num_dst, num_src, indptr, indices, weight) in enumerate(layers):
            src = {"_ID": ids[:num_src]}
            dst = {"_ID": ids[:num_dst]}
            if layer == 0 and feat is not None:
                src["feat"] = feat
            if layer == len(layers) - 1 and labels is not None:
                dst["label"] = labels
            block = Block(num_src, num_dst, value(indptr), value(indices), value(weight), src, dst)
            blocks.append(block.to_dgl() if self.output == "dgl" else block)
        if not self.as_minibatch:
            return ids, value(seeds), blocks
        rows = {} if feat is None else {"feat": feat}
        return MiniBatch(value(seeds), labels, ids, rows, blocks, value(inputs))

    _made = ("_source", "_torch", "_tiers", "_types", "_columns", "_ranges")

    def _open(self) -> None:
        self._types = open_hetero(self.dataset) if is_typed(self.dataset) else None
        if self._tier_options:
            if not self.with_features:
                raise ValueError(f"{next(iter(self._tier_options))}: with_features=False gathers no rows, which tiers are for; leave one out")
            if self._types is None:
                self._open_tiers(self.dataset, self.nids, **self._sampling())
            else:
                self._tier_types(self._types, self.dataset, *self._typed_sampling(self._types))
        self._reseed()


def _all_types(layer: Any, graph: HeteroGraph) -> Any:
    """Numbers of a layer for :func:`per_edge_type`; edge types that a dict leaves out get 0."""
    if not isinstance(layer, dict):
        return [layer]
    given = {graph.relation(kind): int(k) for kind, k in layer.items()}
    return {kind: [given.get(r, 0)] for r, kind in enumerate(graph.edge_types)}


def _places(seeds: Any) -> Any:
    """The first positions, as many as seeds."""
    places = np.arange(len(seeds))
    return places if isinstance(seeds, np.ndarray) else find("torch").from_numpy(places)


class MiniBatch(NamedTuple):
    """A minibatch with the fields of GraphBolt's.

    ``seeds`` (``B``), their ``labels``, ``input_nodes`` (``N``), their ``node_features`` by name,
    ``blocks`` (the farthest from the seeds first) and ``indexes`` (``B``, positions of the seeds
    among the inputs). On a graph of several types all but ``blocks`` are dicts by node type, and
    ``indexes`` are positions among the inputs of the type.
    """

    seeds: Any
    labels: Any
    input_nodes: Any
    node_features: dict[str, Any]
    blocks: list[Any]
    indexes: Any

    @property
    def sampled_subgraphs(self) -> list[Any]:
        """The blocks, under GraphBolt's name."""
        return self.blocks

    @property
    def compacted_seeds(self) -> Any:
        """Positions of the seeds among the nodes of the last block: the first ``B``."""
        if isinstance(self.seeds, dict):
            return {kind: _places(seeds) for kind, seeds in self.seeds.items()}
        return _places(self.seeds)

    def num_layers(self) -> int:
        """Number of layers ``L``."""
        return len(self.blocks)


def minibatches(dataset: Any, nids: Any, sampler: NeighborSampler, **kwargs: Any) -> Iterator[MiniBatch]:
    """Iterates over an epoch of :class:`MiniBatch`: a :class:`DataLoader` with ``as_minibatch``."""
    return iter(DataLoader(dataset, nids, sampler, as_minibatch=True, **kwargs))
