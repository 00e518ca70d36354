"""Message-flow blocks, for users of DGL: ``DataLoader`` as ``dgl.dataloading`` has it, ``MiniBatch`` as GraphBolt has it."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import find, is_pyg, options_of
from .dataset import Dataset
from .loader import Loader, input_nodes_of


class Block(NamedTuple):
    """One layer's block: who hears from whom. Destinations are the first of the sources.

    ``indptr`` (``D + 1``) and ``indices`` (``E``): the sources of each destination's edges. ``edge_weight`` (``E``), where the sampler gives weights.
    ``srcdata``, ``dstdata``: what belongs to the sources and the destinations, by name (``"_ID"``, and of the first block ``"feat"``, of the last ``"label"``).
    """

    num_src: int
    num_dst: int
    indptr: Any
    indices: Any
    edge_weight: Any
    srcdata: dict[str, Any]
    dstdata: dict[str, Any]

    def num_src_nodes(self) -> int:
        """``S``."""
        return self.num_src

    def num_dst_nodes(self) -> int:
        """``D``."""
        return self.num_dst

    def num_edges(self) -> int:
        """``E``."""
        return len(self.indices)

    def edges(self) -> tuple[Any, Any]:
        """Source and destination of each edge."""
        indptr = np.asarray(self.indptr)
        destinations = np.repeat(np.arange(self.num_dst), np.diff(indptr))
        torch = find("torch")
        is_array = isinstance(self.indices, np.ndarray)
        return self.indices, destinations if is_array else torch.from_numpy(destinations)

    def to_dgl(self) -> Any:
        """The same as a ``DGLBlock``, where DGL is installed."""
        dgl = find("dgl")
        if dgl is None:
            raise ImportError("to_dgl() needs dgl")
        block = dgl.create_block(("csc", (self.indptr, self.indices, [])), self.num_src, self.num_dst)
        block.srcdata.update(self.srcdata)
        block.dstdata.update(self.dstdata)
        return block


class NeighborSampler:
    """Which neighbours: ``dgl.dataloading.NeighborSampler``, and all other samplers of the engine.

    Args:
        fanouts: In-neighbours of a node for each layer, **the farthest from the seeds first**, as in DGL (PyTorch Geometric's order is the reverse); -1 takes all.
        sampler: ``"neighbor"``, ``"labor"``, ``"weighted"``, ``"random-walk"`` or ``"full"``.
        **options: Of that sampler, as of ``graphmill train``: ``replace``, ``labor_iterations``, ``walks``, ...
    """

    def __init__(self, fanouts: Sequence[int], *, sampler: str = "neighbor", **options: Any):
        self.fanouts, self.sampler, self.options = list(fanouts), sampler, options


class MultiLayerFullNeighborSampler(NeighborSampler):
    """All neighbours over ``num_layers`` layers."""

    def __init__(self, num_layers: int):
        super().__init__([-1] * num_layers, sampler="full")


class DataLoader(Loader):
    """Minibatches of blocks: ``dgl.dataloading.DataLoader``.

    Yields ``(input_nodes, output_nodes, blocks)``, ``blocks[0]`` the farthest from the seeds. With ``as_minibatch`` each is a :class:`MiniBatch`.

    Args:
        dataset: A :class:`graphmill.Dataset`, or a ``torch_geometric.data.Data``.
        nids: The seeds, distinct: ids, a mask, or ``None`` for the training nodes.
        sampler: The sampler.
        with_features: Whether ``blocks[0].srcdata["feat"]`` holds the rows of the input nodes.
        output: ``"torch"``, ``"numpy"``, ``"dgl"`` (blocks are ``DGLBlock``), or ``"auto"``: tensors where torch is installed.
        **kwargs: Those of :class:`graphmill.Loader`.

    Raises:
        TypeError, ValueError: An impossible sampler, ids that are no nodes or come twice.
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
            raise TypeError(f"dataset: a graphmill.Dataset is expected, not {type(dataset).__name__}")
        if output not in ("auto", "torch", "numpy", "dgl"):
            raise ValueError(f"output '{output}': auto, torch, numpy or dgl")
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
    """A minibatch with the fields of GraphBolt's: ``seeds`` (``B``), their ``labels``, ``input_nodes`` (``N``), ``node_features`` of these by name, ``blocks``
    (the farthest from the seeds first), ``indexes`` (``B``, the seeds' places among the inputs)."""

    seeds: Any
    labels: Any
    input_nodes: Any
    node_features: dict[str, Any]
    blocks: list[Any]
    indexes: Any

    @property
    def sampled_subgraphs(self) -> list[Any]:
        """The blocks."""
        return self.blocks

    @property
    def compacted_seeds(self) -> Any:
        """Places of the seeds among the nodes of the last block: they are the first."""
        places = np.arange(len(self.seeds))
        return places if isinstance(self.seeds, np.ndarray) else find("torch").from_numpy(places)

    def num_layers(self) -> int:
        """``L``."""
        return len(self.blocks)


def minibatches(dataset: Any, nids: Any, sampler: NeighborSampler, **kwargs: Any) -> Iterator[MiniBatch]:
    """An epoch of :class:`MiniBatch`: a :class:`DataLoader` with ``as_minibatch``."""
    return iter(DataLoader(dataset, nids, sampler, as_minibatch=True, **kwargs))
