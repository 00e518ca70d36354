"""Base class of the loaders: epochs, order, threads and resuming."""

from __future__ import annotations

import os
import sys
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of, draw_seed, options_of

#: Arguments of torch's DataLoader without effect here: threads of this process make the batches.
IGNORED = (
    "collate_fn",
    "dataset",
    "filter_per_worker",
    "is_sorted",
    "multiprocessing_context",
    "persistent_workers",
    "pin_memory_device",
    "timeout",
    "worker_init_fn",
)


#: Options of `train` that configure the tiers of a dataset's feature rows.
TIERS = ("cache", "cache_ratio", "host_budget", "devices", "host_cache", "placement")


def input_nodes_of(nodes: Any, num_nodes: int, name: str = "input_nodes") -> tuple[np.ndarray, np.ndarray | None]:
    """Ids of the input nodes, and their ``input_id``: ids for a mask, ``None`` for positions.

    Errors name the argument ``name``.
    """
    if nodes is None:
        return np.arange(num_nodes, dtype=np.int64), None
    if isinstance(nodes, tuple) and nodes and isinstance(nodes[0], str):
        raise TypeError(f"{name}: expected ids or a mask; a node type needs a graph of several node types")
    array = array_of(nodes, name)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, not shape {array.shape}")
    if array.dtype == bool:
        if len(array) != num_nodes:
            raise ValueError(f"{name}: the mask has {len(array)} entries for {num_nodes} nodes")
        ids = np.flatnonzero(array)
        return ids, ids
    if array.size == 0:
        return np.zeros(0, np.int64), None
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers or a mask, not {array.dtype}")
    if array.dtype not in (np.int64, np.int32, np.uint32, np.uint64):
        array = array.astype(np.int64)
    return array, None


def check_ids(ids: np.ndarray, num_nodes: int, name: str) -> None:
    """Refuses ids out of range, as the sources do, which are built after the tiers.

    Raises:
        ValueError: An id is negative, or not below ``num_nodes``.
    """
    outside = np.flatnonzero((ids < 0) | (ids >= num_nodes))
    if outside.size:
        at = outside[0]
        raise ValueError(f"{name}[{at}] is {ids[at]}, but there are {num_nodes} nodes; ids start at 0")


def hops_of(num_neighbors: Sequence[int]) -> list[int]:
    """Fanouts for the engine's samplers: at least one hop, of at least one neighbour."""
    return [k if k == -1 else max(k, 1) for k in num_neighbors] or [1]


def refuse_sampler_output(loader: Any, transform: Any, remedy: str) -> None:
    """Refuses a transform between sampling and gathering, which are one step of the threads in Rust."""
    if transform is not None:
        raise NotImplementedError(
            f"{type(loader).__name__}: transform_sampler_output would get the sampler's output before rows are gathered, but "
            f"one thread does both; use transform, which gets the batch, or {remedy}"
        )


def refuse_sampler(loader: Any, sampler: Any) -> None:
    """Refuses a sampler in Python, which the threads in Rust cannot call."""
    if sampler is not None:
        name = type(loader).__name__
        raise NotImplementedError(
            f"{name}: neighbor_sampler is a sampler in Python, and batches are drawn by threads in Rust that cannot call it; "
            f"leave it out, or pass it to torch_geometric.loader.{name}"
        )


def threads_of(num_threads: int | None, num_workers: int) -> int:
    """Number of threads: as given, or ``num_workers``, or half of the processor's cores."""
    if num_workers < 0 or (num_threads is not None and num_threads < 1):
        raise ValueError(f"num_threads {num_threads}, num_workers {num_workers}: use at least 1 thread")
    if num_threads is not None:
        return num_threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return num_workers or max(1, cores // 2)


class Loader:
    """Iterates over minibatches that threads in Rust make ahead of time; ``iter()`` is an epoch.

    Batches are a function of ``seed``, the epoch number and the batch number: they do not depend on
    the number of threads or on where an epoch was resumed. ``iter()`` starts the next epoch;
    :meth:`state_dict` and :meth:`load_state_dict` resume in the middle of one. The loader can be
    pickled, without its threads.

    Args:
        batch_size: Inputs per batch, at least 1.
        shuffle: Draws a new order for every epoch.
        drop_last: Drops the last batch if it is not full.
        seed: Seed of all draws. ``None`` draws one from ``generator`` or torch's generator, so that
            ``torch.manual_seed`` decides; without torch from NumPy's.
        num_threads: Threads that make batches. ``None`` takes ``num_workers``, or half the cores if
            that is 0.
        num_workers: Number of threads if ``num_threads`` is not given, so that scripts run
            unchanged. Worker processes are never started.
        prefetch_factor: Batches made ahead per thread. Default 2.
        rank, world_size: Position of this process among those that share the inputs: each gets
            every ``world_size``-th input of the epoch's order, and all get equally many (like
            ``torch.utils.data.DistributedSampler``).
        sampler: Iterable of positions among the inputs, read in each epoch instead of ``shuffle``,
            ``rank`` and ``world_size``.
        transform: Function of a batch; its result is yielded.
        pin_memory: Copies tensors to pinned memory if CUDA is available.
        host_budget: Host memory for the feature rows of the nodes of a :class:`graphmill.Dataset`
            or :class:`graphmill.TypedDataset` in a directory, in bytes or like ``"4G"``. Larger
            features are cached up to the budget, and the rest is read from disk; the types share
            the budget. This option and those below are the options of ``graphmill train`` of the
            same names; they never change a batch. Without them rows are read in place, in memory or
            from the mapped file. So are features of edges, and features of a node type that are
            sparse or not stored as f16 or f32, which do not count.
        cache_ratio: Fraction of the rows in the nearest cache, from 0 to 1; of several types of the
            bytes of all rows. Default: as many as fit.
        cache: Contents of that cache: the hottest rows by a metric (``"degree"``,
            ``"reverse-pagerank"``, ``"analytic"``, ``"presc:K"``, ``"posterior:K"``, ...) for this
            loader's inputs, neighbours and batches; or rows that follow the reads (``"fifo"``,
            ``"lru"``, ``"lfu"``, ``"sieve"``, ``"s3-fifo"``, ...). ``"auto"`` is ``"posterior:2"``,
            and of several types ``"presc:2"``, because ``"analytic"`` and ``"posterior:K"`` expect
            one fanout. The inputs of links are the ends of the edges.
        devices: ``"virtual:N"`` puts the caches of N simulated devices before the host, to count
            the rows that would be read from each tier.
        host_cache, placement: With simulated devices, the contents of the host's cache and the
            distribution of rows over the devices.
    """

    def __init__(
        self,
        *,
        batch_size: int = 1,
        shuffle: bool | None = False,
        drop_last: bool = False,
        seed: int | None = None,
        num_threads: int | None = None,
        num_workers: int = 0,
        prefetch_factor: int | None = None,
        rank: int = 0,
        world_size: int = 1,
        sampler: Any = None,
        transform: Callable[[Any], Any] | None = None,
        generator: Any = None,
        cache: str | None = None,
        cache_ratio: float | str | None = None,
        host_budget: int | str | None = None,
        devices: str | None = None,
        host_cache: str | None = None,
        placement: str | None = None,
        **ignored: Any,
    ):
        for name in ignored:
            if name not in IGNORED:
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument '{name}'")
        if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
            raise ValueError(f"batch_size {batch_size!r}: use an integer of at least 1")
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle both set the order; leave out one")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"prefetch_factor {prefetch_factor}: use an integer of at least 1")
        self.batch_size = int(batch_size)
        self.shuffle = bool(shuffle)
        self.drop_last = bool(drop_last)
        self.seed = (draw_seed(generator) if seed is None else int(seed)) % 2**64
        self.num_threads = threads_of(num_threads, num_workers)
        self.num_workers = num_workers
        self.prefetch = (prefetch_factor or 2) * self.num_threads
        self.rank, self.world_size = int(rank), int(world_size)
        self.sampler = sampler
        self.transform = transform
        tiers = (cache, cache_ratio, host_budget, devices, host_cache, placement)
        self._tier_options = {name: value for name, value in zip(TIERS, tiers) if value is not None}
        self._tiers: Any = None
        self._epoch, self._first = 0, 0
        self._place = _Place(0, 0, 0)
        self._running: Any = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class, as a ``torch.utils.data.DataLoader`` if torch is imported: for ``isinstance``."""
        return _as_data_loader(type(self))

    def __reduce__(self) -> Any:
        return _empty, (type(self),), self.__getstate__()

    # implemented by subclasses

    _source: Any

    def _yield(self, arrays: tuple) -> Any:
        """Converts the arrays of the source to the batch that users get."""
        raise NotImplementedError

    # may be overridden by subclasses

    def _ordering(self) -> dict[str, Any]:
        return {
            "inputs": self._source.num_inputs,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed": self.seed,
            "rank": self.rank,
            "world_size": self.world_size,
        }

    def _num_batches(self, order: np.ndarray | None) -> int:
        inputs = len(self.sampler) if order is None and self.sampler is not None else None if order is None else len(order)
        if inputs is None:
            return _graphmill.num_batches(**self._ordering())
        return inputs // self.batch_size if self.drop_last else -(-inputs // self.batch_size)

    def _order(self, epoch: int) -> np.ndarray:
        if self.sampler is not None:
            return np.fromiter((int(i) for i in self.sampler), np.uint64)
        return _graphmill.order(epoch, **self._ordering())

    def __len__(self) -> int:
        """Number of batches in an epoch."""
        return self._num_batches(None)

    def __iter__(self) -> Iterator[Any]:
        running = _Epoch(self, self._epoch, self._first)
        self._epoch, self._first = self._epoch + 1, 0
        # a strong reference back would keep the threads until the next garbage collection
        self._place, self._running = running.place, weakref.ref(running)
        return running

    def set_epoch(self, epoch: int) -> None:
        """Makes the next ``iter()`` start with this epoch."""
        self._epoch, self._first, self._place = int(epoch), 0, _Place(0, 0, 0)

    def state_dict(self) -> dict[str, int]:
        """Position in the current epoch: the batches yielded so far count as done."""
        place = self._place
        epoch, batch = (place.epoch, place.batch) if place.batch < place.last else (self._epoch, self._first)
        return {"epoch": epoch, "batch": batch, "seed": self.seed, "batch_size": self.batch_size, "world_size": self.world_size}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Makes the next ``iter()`` continue from :meth:`state_dict`, with the same batches.

        Raises:
            ValueError: The state comes from a loader with another batch size or number of
                processes, or does not come from a loader.
        """
        absent = [name for name in ("epoch", "batch", "seed") if name not in state]
        if absent:
            raise ValueError(f"the state has no '{absent[0]}', so it does not come from state_dict() of a loader")
        for name in ("batch_size", "world_size"):
            if state.get(name, getattr(self, name)) != getattr(self, name):
                raise ValueError(f"the state comes from a loader with {name} {state[name]}, not {getattr(self, name)}")
        if state["seed"] != self.seed:
            self.seed = int(state["seed"])
            self._reseed()
        self._epoch, self._first, self._place = int(state["epoch"]), int(state["batch"]), _Place(0, 0, 0)

    def _reseed(self) -> None:
        """Rebuilds everything that depends on the seed."""
        raise NotImplementedError

    def _open_tiers(self, data: Any, inputs: np.ndarray | None, **sampling: Any) -> Any:
        """Opens the tiers of the rows of ``data``, if configured, for the reads of ``sampling``."""
        if not self._tier_options:
            return None
        native = getattr(data, "_native", None)
        if native is None:
            raise TypeError(f"{next(iter(self._tier_options))}: tiers need a graphmill.Dataset, not a {type(data).__name__}")
        fixed = {"batch_size": self.batch_size, "seed": self.seed % 2**63, **sampling}
        self._tiers = _graphmill.Tiers(native, inputs, options_of({**fixed, **self._tier_options}), list(self._tier_options))
        return self._tiers

    def _tier_types(self, graph: Any, data: Any, seeds: list[tuple[int, Any]], sampler: tuple[str, list[list[int]], str], together: bool = False) -> None:
        """Replaces the feature rows of the node types in ``graph`` by tiers, if configured.

        The tiers are filled for batches of ``seeds``, types with ids: of each node, or with
        ``together`` of the nodes at the same place of each list. ``sampler`` has its name, the
        numbers of each edge type or node type, and its options.
        """
        if not self._tier_options:
            return
        native = getattr(data, "_native", None)
        if not isinstance(native, _graphmill.TypedDataset):
            raise TypeError(
                f"{next(iter(self._tier_options))}: tiers need a graphmill.TypedDataset, not a {type(data).__name__}; "
                "Dataset.from_pyg converts a HeteroData, and save() writes the result to a directory"
            )
        for t, ids in seeds:
            check_ids(ids, graph.types[t][1], "input_nodes")
        options = options_of({"batch_size": self.batch_size, "seed": self.seed % 2**63, **self._tier_options})
        self._tiers = _graphmill.Tiers.of_types(native, seeds, together, sampler, options, list(self._tier_options))
        held = self._tiers.types
        graph.tables = [
            (name, whose, t, self._tiers if (name, whose) == ("x", "nodes") and t in held else rows)
            for name, whose, t, rows in graph.tables
        ]  # fmt: skip

    def _tier_graph(self, graph: Any, data: Any, inputs: np.ndarray | None, **sampling: Any) -> None:
        """Replaces the dataset's own rows in ``graph`` by tiers, if configured."""
        tiers = self._open_tiers(data, inputs, **sampling)
        if tiers is not None:
            graph.tables = [(name, whose, tiers if rows is data._native else rows) for name, whose, rows in graph.tables]

    @property
    def tiers(self) -> str | None:
        """Description of the tiers of the feature rows; ``None`` if rows are read in place."""
        return None if self._tiers is None else self._tiers.description

    def traffic(self) -> dict[str, Any] | None:
        """Traffic of gathering feature rows through tiers since the loader was created.

        Batches made ahead of time count, and the rows of all types.

        Returns:
            For each of ``"device"``, ``"peer"``, ``"host"`` and ``"disk"`` the ``rows`` read from
            it, the ``bytes`` read for them and the ``seconds`` that threads spent; and
            ``hit_rate``, the fraction of the rows that the nearest cache served, or ``None`` before
            the first read. ``None`` without tiers.
        """
        return None if self._tiers is None else self._tiers.traffic()

    def close(self) -> None:
        """Ends the threads of the current epoch.

        They also end with the epoch, or with the last reference to its iterator.
        """
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # attributes rebuilt after unpickling: memory and threads of this process
    _made: tuple[str, ...] = ("_source", "_graph", "_output", "_tiers")

    def _open(self) -> None:
        """Builds the attributes in ``_made``."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in self._made and name != "_running"}
        place = self.state_dict()
        return {**state, "_epoch": place["epoch"], "_first": place["batch"], "_place": _Place(0, 0, 0)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._running = self._tiers = None
        self._open()


_data_loaders: dict[type, type] = {}


def _as_data_loader(kind: type) -> type:
    """A class that derives from ``kind`` and from torch's ``DataLoader``, which is never instantiated."""
    data = sys.modules.get("torch.utils.data")
    base = getattr(data, "DataLoader", None)
    if base is None:
        return kind
    if kind not in _data_loaders:
        _data_loaders[kind] = type(kind.__name__, (kind, base), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    return _data_loaders[kind]


def _empty(kind: type) -> Any:
    """A loader without attributes, which unpickling sets."""
    return kind.__new__(kind)


@dataclass
class _Place:
    """Position in an epoch."""

    epoch: int
    #: number of batches yielded
    batch: int
    #: number of batches in the epoch
    last: int


class _Epoch:
    """Iterator over an epoch."""

    def __init__(self, loader: Loader, epoch: int, first: int):
        order = loader._order(epoch)
        last = loader._num_batches(order)
        self.loader, self.place = loader, _Place(epoch, first, last)
        self.batches = loader._source.start(
            epoch=epoch,
            order=order,
            batch_size=loader.batch_size,
            first=min(first, last),
            last=last,
            threads=loader.num_threads,
            ahead=loader.prefetch,
        )

    def __iter__(self) -> _Epoch:
        return self

    def __len__(self) -> int:
        return self.place.last

    def __next__(self) -> Any:
        arrays = next(self.batches)
        self.place.batch += 1
        loader = self.loader
        batch = loader._yield(arrays)
        return batch if loader.transform is None else loader.transform(batch)

    def close(self) -> None:
        self.batches.close()
