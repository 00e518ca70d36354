"""PyTorch Geometric's ``TemporalDataLoader`` and ``LastNeighborLoader``: streams of events."""

from __future__ import annotations

import copy
from typing import Any, Callable, Iterator

import numpy as np

from . import _graphmill
from ._frameworks import array_of, find, is_pyg, is_tensor
from .data import Data, frameworks_of
from .loader import TIERS, Loader

#: Arguments that reorder or leave out events, or configure tiers, with the values that do neither.
REFUSED = {"shuffle": False, "sampler": None, "rank": 0, "world_size": 1, **dict.fromkeys(TIERS)}


class TemporalDataLoader(Loader):
    """Reads a stream of events in batches: ``torch_geometric.loader.TemporalDataLoader``.

    A batch is a ``torch_geometric.data.TemporalData`` if PyTorch Geometric is installed, and
    otherwise a :class:`graphmill.Data` with the same fields. With ``B`` events, ``N`` distinct
    nodes and ``K`` negatives they are:

    - ``src``, ``dst``, ``t`` (``B``) and all other values of ``data`` with a row per event, such as
      ``msg``: the rows of the events, without a copy.
    - ``neg_dst`` (``K``): destinations of negatives, if ``neg_sampling_ratio`` is above 0. They are
      drawn uniformly between the smallest and the largest destination of all events.
    - ``n_id`` (``N``): distinct nodes of all three, ascending.

    Negatives are functions of the seed, the epoch and the event: they differ between epochs and not
    between runs.

    Args:
        data: A ``torch_geometric.data.TemporalData``, a :class:`graphmill.Data`, or a dict or
            object with ``src``, ``dst`` and ``t`` (``E`` integers; times ascend).
        batch_size: Events in a batch.
        neg_sampling_ratio: Negatives of each event; a batch has ``round(ratio * B)``.
        output: ``"pyg"``, ``"torch"`` (tensors in a :class:`graphmill.Data`), ``"numpy"``, or
            ``"auto"``: the first of them that is installed.
        **kwargs: ``drop_last``, ``seed`` and ``transform`` of :class:`graphmill.Loader`, and
            arguments of torch's ``DataLoader`` without effect here. The order of events is that of
            their times: ``shuffle`` and other orders are refused.

    Raises:
        TypeError: An array has a wrong type, or an argument is unknown.
        ValueError: An array has a wrong length, a time is below the one before it, a number is out
            of range, or an argument would reorder the events.

    Example:
        >>> import numpy as np, graphmill
        >>> events = {"src": [0, 1, 0], "dst": [2, 3, 3], "t": [10, 10, 25]}
        >>> loader = graphmill.TemporalDataLoader(events, batch_size=2, output="numpy", seed=0)
        >>> [(batch.src.tolist(), batch.n_id.tolist()) for batch in loader]
        [([0, 1], [0, 1, 2, 3]), ([0], [0, 3])]
    """

    def __init__(
        self,
        data: Any,
        batch_size: int = 1,
        neg_sampling_ratio: float = 0.0,
        *,
        output: str = "auto",
        transform: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ):
        for name, default in REFUSED.items():
            if kwargs.pop(name, default) not in (None, default):
                raise ValueError(f"TemporalDataLoader: {name} does not apply to a stream, which is read in the order of its times; leave it out")
        if not 0 <= neg_sampling_ratio < float("inf"):
            raise ValueError(f"neg_sampling_ratio {neg_sampling_ratio}: use a number of at least 0")
        kwargs.pop("pin_memory", None)
        super().__init__(batch_size=batch_size, transform=transform, **kwargs)
        self.data, self.neg_sampling_ratio, self._how = data, neg_sampling_ratio, output
        self._open()

    _made = (*Loader._made, "_columns", "_native")

    def _open(self) -> None:
        self._columns = columns_of(self.data)
        self._output = frameworks_of(self._how)
        src, dst, t = (ids_of(self._columns[name], name) for name in ("src", "dst", "t"))
        self._native = _graphmill.Events(src, dst, t)
        self._source = _Slices(len(t))

    def _reseed(self) -> None:
        """Negatives read the seed when they are drawn."""

    def __call__(self, index: Any) -> Any:
        """Batch of the events from the first of ``index`` on, of at most ``batch_size`` events."""
        first = int(index[0])
        batch = self._yield((self._epoch, first, min(first + self.batch_size, self._source.num_inputs)))
        return batch if self.transform is None else self.transform(batch)

    def _yield(self, arrays: tuple) -> Any:
        epoch, first, last = arrays
        torch, pyg = self._output
        negatives, nodes = self._native.batch((first, last), round(self.neg_sampling_ratio * (last - first)), (self.seed, epoch))
        events = self._source.num_inputs

        def made(ids: np.ndarray) -> Any:
            src = self._columns["src"]
            return ids if torch is None else torch.from_numpy(ids).to(src.device if is_tensor(src) else "cpu")

        def value(given: Any) -> Any:
            if hasattr(given, "shape") and given.shape[:1] == (events,):
                given = given[first:last]
                if torch is None:
                    return array_of(given, "data") if is_tensor(given) else given
                return given if is_tensor(given) else torch.from_numpy(np.ascontiguousarray(given))
            return given

        if pyg is None:
            batch: Any = Data()
        else:
            batch = copy.copy(self.data) if is_pyg(self.data) else find("torch_geometric.data").TemporalData()
        for name, column in self._columns.items():
            batch[name] = value(column)
        if self.neg_sampling_ratio > 0:
            batch["neg_dst"] = made(negatives)
        batch["n_id"] = made(nodes)
        return batch


class _Slices:
    """Source of ranges of consecutive events, in the form of those that make batches ahead."""

    def __init__(self, num_inputs: int):
        self.num_inputs = num_inputs

    def start(self, *, epoch: int, order: np.ndarray, batch_size: int, first: int, last: int, **_: Any) -> _Ranges:
        return _Ranges((epoch, i * batch_size, min((i + 1) * batch_size, self.num_inputs)) for i in range(first, last))


class _Ranges:
    """Ranges of an epoch."""

    def __init__(self, ranges: Iterator[tuple[int, int, int]]):
        self.ranges = ranges

    def __next__(self) -> tuple[int, int, int]:
        return next(self.ranges)

    def close(self) -> None:
        self.ranges = iter(())


def columns_of(data: Any) -> dict[str, Any]:
    """Values of a stream by name: ``src``, ``dst`` and ``t`` as arrays or tensors, and the others."""
    if is_pyg(data):
        columns = {name: data[name] for name in data.keys()} if callable(data.keys) else {name: data[name] for name in data.keys}
    elif isinstance(data, dict):
        columns = dict(data)
    else:
        columns = {name: value for name, value in getattr(data, "__dict__", {}).items() if not name.startswith("_")}
    for name in ("src", "dst", "t"):
        if columns.get(name) is None:
            raise ValueError(f"data: '{name}' is missing; events need src, dst and t")
        if not is_tensor(columns[name]):
            columns[name] = np.asarray(columns[name])
    return {name: column for name, column in columns.items() if column is not None}


class LastNeighborLoader:
    """The last neighbours of every node: ``torch_geometric.nn.models.tgn.LastNeighborLoader``.

    One thing differs from PyTorch Geometric: a node with more than ``size`` events in one
    :meth:`insert` keeps the last ones, where PyTorch Geometric keeps arbitrary ones.

    Args:
        num_nodes: Number of nodes.
        size: Events stored for each node, from 1 to 2^20.
        device: Device of the tensors that calls return, with torch.

    Raises:
        ValueError: The size is out of range.

    Example:
        >>> import numpy as np, graphmill
        >>> last = graphmill.LastNeighborLoader(num_nodes=5, size=2)
        >>> last.insert(np.array([0, 0, 0]), np.array([2, 3, 4]))
        >>> last(np.array([0]))
        (array([0, 3, 4]), array([[2, 1],
               [0, 0]]), array([2, 1]))
    """

    def __init__(self, num_nodes: int, size: int, device: Any = None):
        self.num_nodes, self.size, self.device = int(num_nodes), int(size), device
        self._native = _graphmill.LastNeighbors(self.num_nodes, self.size)

    def __call__(self, n_id: Any) -> tuple[Any, Any, Any]:
        """Stored neighbours of the nodes ``n_id``, as tensors if that is one.

        Returns:
            ``n_id`` (``N``): the nodes and their neighbours, ascending. ``edge_index`` (``2 x M``):
            neighbours and nodes as positions in ``n_id``, for each node the newest event first.
            ``e_id`` (``M``): numbers of the events in the order of :meth:`insert`.

        Raises:
            TypeError, ValueError: A node is not an integer or out of range.
        """
        nodes = ids_of(n_id, "n_id")
        places, neighbors, e_id = self._native.of_nodes(nodes)
        unique, rows = np.unique(np.concatenate([nodes, neighbors]), return_inverse=True)
        edge_index = np.stack([rows[len(nodes) :], rows[: len(nodes)][places]])
        found = (unique, edge_index, e_id)
        if not is_tensor(n_id):
            return found
        torch = find("torch")
        device = n_id.device if self.device is None else self.device
        return tuple(torch.from_numpy(values).to(device) for values in found)  # type: ignore[return-value, union-attr]

    def insert(self, src: Any, dst: Any) -> None:
        """Inserts the next events at both of their ends.

        Args:
            src: Sources (``B``).
            dst: Destinations (``B``).

        Raises:
            TypeError, ValueError: A node is not an integer or out of range, or the lengths differ.
        """
        self._native.insert(ids_of(src, "src"), ids_of(dst, "dst"))

    def reset_state(self) -> None:
        """Removes all events, as at the begin of an epoch."""
        self._native.clear()

    def state_dict(self) -> dict[str, bytes]:
        """The stored events, for a checkpoint."""
        return {"last_neighbors": bytes(self._native.save())}

    def load_state_dict(self, state: dict[str, bytes]) -> None:
        """Restores the events of :meth:`state_dict`.

        Raises:
            ValueError: The state comes from a loader of another size.
        """
        self._native.restore(state["last_neighbors"])

    def __getstate__(self) -> dict[str, Any]:
        return {"num_nodes": self.num_nodes, "size": self.size, "device": self.device, **self.state_dict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["num_nodes"], state["size"], state["device"])  # type: ignore[misc]
        self.load_state_dict(state)


def ids_of(value: Any, name: str) -> np.ndarray:
    """Integers of an array, a tensor on any device or a sequence, with 64 bits."""
    if is_tensor(value):
        value = value.detach().cpu()
    ids = array_of(value, name)
    if ids.size and ids.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, not {ids.dtype}; number nodes from 0, and scale times, for example to seconds")
    if ids.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, not shape {ids.shape}")
    return ids.astype(np.int64, copy=False)
