"""What all loaders share: epochs, order, threads, resuming."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of, draw_seed, is_tensor, options_of

#: Arguments of torch's DataLoader that mean nothing here, because batches are made by threads within this process.
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


#: Options of `train` that say which tiers a dataset's rows come from.
TIERS = ("cache", "cache_ratio", "host_budget", "devices", "host_cache", "placement")


def input_nodes_of(nodes: Any, num_nodes: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Ids of the input nodes, and their ``input_id`` where it is not their place among them: a mask's are the ids."""
    if nodes is None:
        return np.arange(num_nodes, dtype=np.int64), None
    if isinstance(nodes, tuple) and nodes and isinstance(nodes[0], str):
        raise TypeError("input_nodes: ids or a mask are expected; graphs of several kinds of nodes are not sampled")
    array = array_of(nodes if is_tensor(nodes) else np.asarray(nodes), "input_nodes")
    if array.ndim != 1:
        raise ValueError(f"input_nodes: one dimension is expected, not shape {array.shape}")
    if array.dtype == bool:
        if len(array) != num_nodes:
            raise ValueError(f"input_nodes: a mask of {len(array)} for {num_nodes} nodes")
        ids = np.flatnonzero(array)
        return ids, ids
    if array.size == 0:
        return np.zeros(0, np.int64), None
    if array.dtype.kind not in "iu":
        raise TypeError(f"input_nodes: whole numbers or a mask are expected, not {array.dtype}")
    if array.dtype not in (np.int64, np.int32, np.uint32, np.uint64):
        array = array.astype(np.int64)
    return array, None


def hops_of(num_neighbors: Sequence[int]) -> list[int]:
    """The same for the engine's samplers, which draw at least one neighbour over at least one hop."""
    return [k if k == -1 else max(k, 1) for k in num_neighbors] or [1]


def threads_of(num_threads: int | None, num_workers: int) -> int:
    """How many threads: as told, or as many as workers were asked for, or half of the processor's cores."""
    if num_workers < 0 or (num_threads is not None and num_threads < 1):
        raise ValueError(f"num_threads {num_threads}, num_workers {num_workers}: give 1 or more threads")
    if num_threads is not None:
        return num_threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return num_workers or max(1, cores // 2)


class Loader:
    """Iterates over minibatches, an epoch for each ``iter()``; made by threads in Rust ahead of whoever asks.

    Batches are a function of ``seed``, the epoch's number and the batch's: they do not depend on the number of threads, nor on where an epoch was taken up.
    ``iter()`` begins the next epoch; :meth:`state_dict` and :meth:`load_state_dict` go on in the middle of one. The loader can be pickled (its threads
    are not).

    Args:
        batch_size: Inputs of a batch, at least 1.
        shuffle: Whether every epoch has an order of its own.
        drop_last: Whether a last batch that is not full is left out.
        seed: What all draws follow from; ``None`` draws one from torch's (or ``generator``), so that ``torch.manual_seed`` decides, or without torch from NumPy's.
        num_threads: Threads that make batches; ``None``: ``num_workers`` where that is not 0, and otherwise half the cores.
        num_workers: Accepted so that scripts run unchanged. There are no worker processes: it says how many threads.
        prefetch_factor: Batches ahead for each thread. Default 2.
        rank, world_size: Which of the processes that share the inputs this is: each gets every ``world_size``-th of the epoch's order,
            and as many as the others (as ``torch.utils.data.DistributedSampler``).
        sampler: An iterable of places among the inputs, asked for each epoch in the place of ``shuffle``, ``rank`` and ``world_size``.
        transform: Called with each batch; what it returns is yielded.
        pin_memory: Whether tensors are copied to pinned memory (where CUDA is available).
        host_budget: Of a :class:`graphmill.Dataset` in a directory: host memory for feature rows, in bytes or as ``"4G"``. Where they take more, a
            cache fills it and the others are read from the disk. This and what follows are the options of ``graphmill train`` by these names; batches are the same whatever they
            say. Without any of them rows are read where they are, in memory or in the mapped file.
        cache_ratio: The part of the rows that the nearest cache holds, from 0 to 1, in the place of as many as fit.
        cache: What that cache holds: the hottest rows by a metric (``"degree"``, ``"reverse-pagerank"``, ``"analytic"``, ``"presc:K"``, ``"posterior:K"``, ...), counted for this
            loader's inputs, neighbours and batches; or rows that come and go (``"fifo"``, ``"lru"``, ``"lfu"``, ``"sieve"``, ``"s3-fifo"``, ...). ``"auto"``: ``"posterior:2"``.
        devices: ``"virtual:N"``: caches of N devices that are made up stand before the host, to count what would be read from where.
        host_cache, placement: With such devices what the host's cache holds, and how rows are spread over them.
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
            raise ValueError(f"batch_size {batch_size!r}: a number of at least 1")
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle both say the order: leave out one")
        if prefetch_factor is not None and prefetch_factor < 1:
            raise ValueError(f"prefetch_factor {prefetch_factor}: a number of at least 1")
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

    # what subclasses fill in

    _source: Any

    def _yield(self, arrays: tuple) -> Any:
        """A user's batch of what the source made."""
        raise NotImplementedError

    # what they may change

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
        """Batches of an epoch."""
        return self._num_batches(None)

    def __iter__(self) -> Iterator[Any]:
        running = _Epoch(self, self._epoch, self._first)
        self._epoch, self._first = self._epoch + 1, 0
        # the iterator knows the loader; a reference back would keep its threads until the next collection of garbage
        self._place, self._running = running.place, weakref.ref(running)
        return running

    def set_epoch(self, epoch: int) -> None:
        """The next ``iter()`` is that epoch, from its beginning."""
        self._epoch, self._first, self._place = int(epoch), 0, _Place(0, 0, 0)

    def state_dict(self) -> dict[str, int]:
        """Where the epoch in hand stands: the batches that were yielded so far are done."""
        place = self._place
        epoch, batch = (place.epoch, place.batch) if place.batch < place.last else (self._epoch, self._first)
        return {"epoch": epoch, "batch": batch, "seed": self.seed, "batch_size": self.batch_size, "world_size": self.world_size}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next ``iter()`` goes on where :meth:`state_dict` was asked, with the same batches.

        Raises:
            ValueError: The state is of a loader with another batch size or number of processes.
        """
        for name in ("batch_size", "world_size"):
            if state.get(name, getattr(self, name)) != getattr(self, name):
                raise ValueError(f"this state is of a loader with {name} {state[name]}, not {getattr(self, name)}")
        if state["seed"] != self.seed:
            self.seed = int(state["seed"])
            self._reseed()
        self._epoch, self._first, self._place = int(state["epoch"]), int(state["batch"]), _Place(0, 0, 0)

    def _reseed(self) -> None:
        """Makes what depends on the seed again."""
        raise NotImplementedError

    def _open_tiers(self, data: Any, inputs: np.ndarray | None, **sampling: Any) -> Any:
        """What the feature rows of ``data`` are gathered from, where tiers were asked for; ``sampling`` says what asks for them."""
        if not self._tier_options:
            return None
        native = getattr(data, "_native", None)
        if native is None:
            raise TypeError(f"{next(iter(self._tier_options))}: tiers hold the rows of a graphmill.Dataset, not of a {type(data).__name__}")
        fixed = {"batch_size": self.batch_size, "seed": self.seed % 2**63, **sampling}
        self._tiers = _graphmill.Tiers(native, inputs, options_of({**fixed, **self._tier_options}), list(self._tier_options))
        return self._tiers

    def _tier_graph(self, graph: Any, data: Any, inputs: np.ndarray | None, **sampling: Any) -> None:
        """Puts tiers, where they were asked for, in the place of a dataset's own rows."""
        tiers = self._open_tiers(data, inputs, **sampling)
        if tiers is not None:
            graph.tables = [(name, whose, tiers if rows is data._native else rows) for name, whose, rows in graph.tables]

    @property
    def tiers(self) -> str | None:
        """Which tiers feature rows come from and what each holds, in words; ``None`` where they are read where they are."""
        return None if self._tiers is None else self._tiers.description

    def traffic(self) -> dict[str, Any] | None:
        """What gathering feature rows through tiers has cost since the loader was made, batches that were made ahead included.

        Returns:
            For ``"device"``, ``"peer"``, ``"host"`` and ``"disk"`` the ``rows`` that came from there, the ``bytes`` that were read for them and the ``seconds`` that threads
            spent on it; and ``hit_rate``: the part of the rows that the nearest cache served, ``None`` before the first. ``None`` without tiers.
        """
        return None if self._tiers is None else self._tiers.traffic()

    def close(self) -> None:
        """Ends the threads of the epoch in hand; they also end with it, or with the last reference to its iterator."""
        running = self._running() if self._running is not None else None
        if running is not None:
            running.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # what is made again after pickling: memory and threads of this process
    _made: tuple[str, ...] = ("_source", "_graph", "_output", "_tiers")

    def _open(self) -> None:
        """Makes all of that."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in self.__dict__.items() if name not in self._made and name != "_running"}
        place = self.state_dict()
        return {**state, "_epoch": place["epoch"], "_first": place["batch"], "_place": _Place(0, 0, 0)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._running = self._tiers = None
        self._open()


@dataclass
class _Place:
    """How far an epoch is."""

    epoch: int
    #: batches that were yielded
    batch: int
    #: batches that it has
    last: int


class _Epoch:
    """The iterator of an epoch."""

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
