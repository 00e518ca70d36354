"""Message-flow blocks for users of DGL: its ``DataLoader`` and GraphBolt's ``MiniBatch``."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import find, is_pyg, options_of
from .dataset import Dataset
from .loader import Loader, input_nodes_of


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


class NeighborSampler:
    """Sampler of neighbours: ``dgl.dataloading.NeighborSampler``, and the engine's other samplers.

    Args:
        fanouts: In-neighbours per node for each layer, **the farthest from the seeds first**, as in
            DGL (PyTorch Geometric's order is the reverse); -1 takes all.
        sampler: ``"neighbor"``, ``"labor"``, ``"weighted"``, ``"random-walk"`` or ``"full"``.
        **options: Options of the sampler, as of ``graphmill train``: ``replace``,
            ``labor_iterations``, ``num_walks``, ...
    """

    def __init__(self, fanouts: Sequence[int], *, sampler: str = "neighbor", **options: Any):
        self.fanouts, self.sampler, self.options = list(fanouts), sampler, options


class MultiLayerFullNeighborSampler(NeighborSampler):
    """Sampler of all neighbours over ``num_layers`` layers."""

    def __init__(self, num_layers: int):
        super().__init__([-1] * num_layers, sampler="full")


class DataLoader(Loader):
    """Loader of blocks: ``dgl.dataloading.DataLoader``.

    Yields ``(input_nodes, output_nodes, blocks)``, where ``blocks[0]`` is the farthest from the
    seeds; with ``as_minibatch`` a :class:`MiniBatch`.

    Args:
        dataset: A :class:`graphmill.Dataset`, or a ``torch_geometric.data.Data``.
        nids: Distinct seeds: ids, a mask, or ``None`` for the training nodes.
        sampler: Sampler of the neighbours.
        with_features: Gathers the rows of the input nodes as ``blocks[0].srcdata["feat"]``.
        as_minibatch: Yields :class:`MiniBatch` instead of tuples.
        output: ``"torch"``, ``"numpy"``, ``"dgl"`` (blocks are ``DGLBlock``), or ``"auto"``:
            tensors if torch is installed, else NumPy arrays.
        use_ddp: Takes ``rank`` and ``world_size`` from ``torch.distributed``.
        device: Device that tensors are copied to.
        **kwargs: Arguments of :class:`graphmill.Loader`.

    Raises:
        TypeError, ValueError: The sampler is invalid, or an id is out of range or given twice.
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
        if not isinstance(self.dataset, Dataset):
            raise TypeError(f"dataset: expected a graphmill.Dataset, not {type(dataset).__name__}")
        if output not in ("auto", "torch", "numpy", "dgl"):
            raise ValueError(f"output '{output}': use auto, torch, numpy or dgl")
        self.output = output
        self.sampler_options, self.with_features, self.as_minibatch = sampler, with_features, as_minibatch
        self.device = device
        self.nids = self.dataset.train if nids is None else input_nodes_of(nids, self.dataset.num_nodes)[0]
        self._open()

    def _sampling(self) -> dict[str, Any]:
        how = self.sampler_options
        return {"sampler": how.sampler, "fanout": how.fanouts[::-1], **how.options}

    def _reseed(self) -> None:
        options = options_of({"seed": self.seed % 2**63, **self._sampling()})
        self._source = _graphmill.BlockSource(self.dataset._native, self.nids, options, self.with_features, self._tiers)
        self._torch = None if self.output == "numpy" else find("torch")

    def _value(self, array: Any) -> Any:
        if array is None or self._torch is None:
            return array
        tensor = self._torch.from_numpy(array)
        return tensor if self.device is None else tensor.to(self.device)

    def _yield(self, arrays: tuple) -> Any:
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

    _made = ("_source", "_torch", "_tiers")

    def _open(self) -> None:
        if self.with_features:
            self._open_tiers(self.dataset, self.nids, **self._sampling())
        self._reseed()


class MiniBatch(NamedTuple):
    """A minibatch with the fields of GraphBolt's.

    ``seeds`` (``B``), their ``labels``, ``input_nodes`` (``N``), their ``node_features`` by name,
    ``blocks`` (the farthest from the seeds first) and ``indexes`` (``B``, positions of the seeds
    among the inputs).
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
        places = np.arange(len(self.seeds))
        return places if isinstance(self.seeds, np.ndarray) else find("torch").from_numpy(places)

    def num_layers(self) -> int:
        """Number of layers ``L``."""
        return len(self.blocks)


def minibatches(dataset: Any, nids: Any, sampler: NeighborSampler, **kwargs: Any) -> Iterator[MiniBatch]:
    """Iterates over an epoch of :class:`MiniBatch`: a :class:`DataLoader` with ``as_minibatch``."""
    return iter(DataLoader(dataset, nids, sampler, as_minibatch=True, **kwargs))
