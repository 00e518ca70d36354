"""Training, and commands that predict the costs of training: hotness and partitioning."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, cast

import numpy as np

from . import _graphmill
from ._frameworks import options_of
from .dataset import Dataset
from .given import DatasetLike, any_types, from_files, in_directory, native_of, one_type
from .progress import watch
from .record import Record, record_of
from .result import Run, Runs
from .typed import TypedDataset

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .option_types import HotnessOptions, HotnessReportOptions, PartitionReportOptions, TrainOptions


#: Policies that :func:`hotness_report` compares by default.
DEFAULT_POLICIES = ("random", "degree", "presc:1", "optimal")


def train(
    dataset: DatasetLike | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    repeat: int | None = None,
    progress: bool | None = None,
    callback: Callable[[Record], Any] | None = None,
    **options: Unpack[TrainOptions],
) -> Run:
    """Trains and evaluates a model in Rust, and saves it if ``out`` is given.

    Ctrl-C stops after the current batch, writes a checkpoint and raises ``KeyboardInterrupt``;
    ``resume=True`` continues from there to the same numbers.

    Args:
        dataset: A dataset or its directory; or a graph of another library: any object or dict with
            ``edge_index``, ``x``, ``y`` and the masks ``train_mask``, ``val_mask`` and
            ``test_mask``, as arrays or tensors, which are copied. A dataset in memory of several
            types, or for a model of types, embeddings or events, is written to a temporary
            directory, which ends with the dataset or the :class:`Run`. ``None`` takes the built-in
            demo, or with ``resume`` the dataset of the run.
        out: Run directory to write (configuration, epochs, checkpoint, best model). ``None`` writes
            nothing.
        resume: Continues the run in ``out``. With ``repeat``, finished runs are not trained again.
        repeat: Trains so many runs, from 1 to 1000, with the seeds from ``seed`` on. The run of seed
            S is written to ``seed-S`` in ``out``, and the spread of the scores to ``repeat.json``.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook, there as a bar
            of tqdm if it is installed, or as the environment variable ``GRAPHMILL_PROGRESS`` says
            (``auto``, ``bar``, ``plain``, ``json`` or ``none``). ``True`` without a terminal prints
            lines for a log file, about one a minute. The lines of ``json`` are those of
            ``graphmill train --progress json``.
        callback: Called with the record of every epoch (``epoch``, ``loss``, ``valid_score``,
            ``seconds``, ...; with ``repeat`` also ``seed``). An exception that it raises ends the
            run.
        **options: Options of ``graphmill train``: ``model``, ``fanout``, ``hidden``, ``epochs``,
            ``lr``, ``sampler``, ``seed``, ...; :func:`options` lists them, and
            ``graphmill.TrainOptions`` has their types, by which type checkers and editors know
            them.

    Returns:
        A :class:`Run`, with its records and its model; with ``repeat`` a :class:`Runs`, a list of
        them with the mean and the standard deviation of their scores (type checkers need
        ``typing.cast(graphmill.Runs, ...)``).

    Raises:
        TypeError: An option is unknown.
        ValueError: A value is out of range, or the dataset cannot be trained on.
        OSError: A file cannot be read or written.
        RuntimeError: The loss is not finite. A loss that explodes before is a ``UserWarning``.
        KeyboardInterrupt: Ctrl-C was pressed. The message says how to continue the run.

    Example:
        >>> import graphmill
        >>> data = graphmill.generate(nodes=2000, classes=4, dim=16, signal=0.5, p_in=0.7, seed=1)
        >>> run = graphmill.train(data, model="gcn", epochs=5, hidden=32, batch_size=100, lr=0.01)
        >>> run.test.metric, run.test.score > 0.9
        ('accuracy', True)
        >>> runs = graphmill.train(data, model="gcn", epochs=5, hidden=32, batch_size=100, lr=0.01, repeat=3)
        >>> len(runs), runs.test.mean > 0.9, runs.test.deviation < 0.1
        (3, True, True)
    """
    if resume and out is None:
        raise ValueError("resume=True needs the run directory; pass it as out=...")
    path = None if out is None else os.fspath(out)
    reads_files = _graphmill.needs_directory(options_of(options), path if resume else None)
    given, native = None, None
    if isinstance(dataset, (str, os.PathLike)):
        native = native_of(dataset)
    elif dataset is not None or reads_files and not resume:
        given = any_types(dataset)
        if isinstance(given, TypedDataset):
            given = in_directory(given)
        given, native = from_files(given) if reads_files and isinstance(given, Dataset) else (given, given._native)

    def one(out: str | None, resume: bool, like: str | None, options: dict[str, Any], **seed: int) -> Run:
        summary = record_of(_train(native, (options_of(options), out, resume, like), progress, callback, seed))
        return Run._of(summary, out, given)

    if repeat is None:
        with remedy_of(path):
            return one(path, resume, None, {**options})
    like, plan = _graphmill.repeat_plan(options_of(options), repeat, path, resume)
    runs = []
    with remedy_of(path, has_several=True):
        for seed, directory, goes_on in plan:
            from_first = None if goes_on else like
            runs.append(one(directory, goes_on, from_first, {**options, "seed": seed}, seed=seed))
    records = [(seed, run.path, json.dumps(run.to_dict())) for (seed, *_), run in zip(plan, runs)]
    return cast(Run, Runs(runs, record_of(_graphmill.repeated(records, path)), path))


@contextlib.contextmanager
def remedy_of(out: str | None, has_several: bool = False) -> Iterator[None]:
    """Adds to the message of an interrupted run how to continue it."""
    try:
        yield
    except KeyboardInterrupt as error:
        message = str(error)
        if not message:
            raise
        if out is None:
            fix = "nothing is saved without out=; pass a run directory to continue an interrupted run"
        elif has_several or os.path.exists(os.path.join(out, "checkpoint")):
            fix = f"continue with the same call and resume=True, out={out!r}"
        else:
            fix = "no checkpoint is written; start again with the same call"
        raise KeyboardInterrupt(f"{message}; {fix}") from None


def _train(
    native: Any,
    how: tuple[str, str | None, bool, str | None],
    progress: bool | None,
    callback: Callable[[Record], Any] | None,
    seed: dict[str, int],
) -> str:
    """Trains a run; epochs that ``callback`` sees also have the fields of ``seed``. Returns the summary as JSON."""
    with watch(progress) as line:
        if line is not None and seed:
            line(json.dumps({"event": "note", "message": f"seed {seed['seed']}"}))

        def observe(message: str) -> None:
            event = json.loads(message)
            if line is not None:
                line(message)
            if event["event"] == "warning":
                warnings.warn(event["message"], stacklevel=5)
                return
            if callback is not None and event["event"] == "epoch":
                callback(record_of(json.dumps({**event["record"], **seed})))

        error: str | None = None
        try:
            return _graphmill.train(native, *how, observe)
        except BaseException as raised:
            error = str(raised)
            raise
        finally:
            if line is not None:
                line(json.dumps({"event": "end", "error": error}))


def hotness(dataset: DatasetLike | None = None, metric: str = "degree", **options: Unpack[HotnessOptions]) -> np.ndarray:
    """Predicted read frequency of each node's feature row, by a metric: higher is hotter.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        metric: ``"degree"``, ``"reverse-pagerank"``, ``"analytic"``, ``"presc:K"`` (``K`` epochs of
            sampling), ``"optimal"``, ...
        **options: Options of the run to predict, as in :func:`train`: ``sampler``, ``fanout``,
            ``batch_size``, ``epochs``, ...

    Returns:
        A score per node (``V``, float64).

    Raises:
        TypeError, ValueError: The metric or an option is unknown, or a value is out of range.
    """
    return _graphmill.hotness(one_type(dataset)._native, metric, options_of(options))


def hotness_report(
    dataset: DatasetLike | None = None,
    *,
    policies: Sequence[str] | None = None,
    samplers: Sequence[str] = ("neighbor",),
    ratios: Sequence[float] = (0.01, 0.05, 0.1, 0.25),
    epochs: int = 2,
    **options: Unpack[HotnessReportOptions],
) -> Record:
    """Hit rates of caches by policy, sampler and size, without training.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        policies: Cache policies, as of ``graphmill hotness --policies``. Default: ``"random"``,
            ``"degree"``, ``"presc:1"`` and ``"optimal"``.
        samplers: Samplers whose reads are counted.
        ratios: Cache sizes, as fractions of the rows.
        epochs: Number of epochs whose reads are counted.
        **options: Options of the run to predict, as in :func:`train`.

    Returns:
        ``results``: a record per combination with ``policy``, ``sampler``, ``ratio`` (fraction of
        the rows that the cache holds) and ``hit_rate`` (fraction of the reads that it serves);
        ``samplers``: reads of each sampler. Of a dataset of several types also the rates of each
        node type.

    Raises:
        TypeError, ValueError: A policy, sampler or option is unknown, or a value is out of range.
    """
    native, given = any_types(dataset)._native, options_of(options)
    names = (list(DEFAULT_POLICIES if policies is None else policies), policies is None)
    return record_of(_graphmill.hotness_report(native, names, list(samplers), list(ratios), epochs, given))


def partition(
    dataset: DatasetLike | None = None,
    parts: int = 2,
    *,
    method: str = "bgl",
    seed: int = 0,
    slack: float | None = None,
    train_slack: float | None = None,
    refine: bool | None = None,
    task: str = "",
) -> Any:
    """Assigns the nodes of a graph to parts, one per machine.

    Args:
        dataset: A dataset of one type or of several, its directory, or ``None`` for the built-in
            demo.
        parts: Number of parts, at most 65535.
        method: ``"bgl"``, ``"metis"``, ``"gminer"``, ``"pagraph"``, ``"fennel"``, ``"ldg"``,
            ``"hash"`` or ``"random"``.
        seed: Seed of the random draws.
        slack: Allowed excess of a part's nodes over the mean. Default 0.1: at most 1.1 times the
            mean.
        train_slack: Allowed excess of a part's training nodes over the mean. Default 0.05.
        refine: If false, ``"bgl"`` does not move nodes after the assignment. Default true.
        task: Task whose training nodes are balanced, of a dataset of several types. By default the
            only one, or those of all tasks on nodes.

    Returns:
        Part of each node (``V``, uint32); of a dataset of several types a dict with an array for
        each node type.

    Raises:
        ValueError: The method is unknown, there are more parts than nodes, or the method does not
            use a given option.
    """
    given = any_types(dataset)
    how: dict[str, Any] = {"method": method, "parts": parts, "seed": seed, "slack": slack, "train_slack": train_slack, "refine": refine}
    if isinstance(given, TypedDataset):
        return dict(_graphmill.partition_types(given._native, task=task, **how))
    if task:
        raise ValueError(f"task {task!r}: the dataset has one type and one task; leave it out")
    return _graphmill.partition(given._native.topology(), given.train, **how)


def partition_report(
    dataset: DatasetLike | None = None,
    parts: int | None = None,
    *,
    methods: Sequence[str] | None = None,
    like: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    slack: float | None = None,
    train_slack: float | None = None,
    refine: bool | None = None,
    batches: int = 0,
    **options: Unpack[PartitionReportOptions],
) -> Record:
    """Statistics of partitions by several methods, like ``graphmill partition``.

    Args:
        dataset: A dataset of one type or of several, its directory, or ``None`` for the built-in
            demo.
        parts: Number of parts, at most 65535. Default: 2, or that of ``like``.
        methods: Methods to compare, as in :func:`partition`. Default: ``("bgl",)``.
        like: Directory of a partition whose parts known nodes keep, instead of ``methods``: of the
            dataset that :func:`append` extended. A new node goes to the part with most of its
            neighbours, up to ``slack``.
        out: Directory to write the partition to, for training on several machines; needs exactly
            one method. ``None`` writes nothing.
        seed: Seed of the random draws.
        slack: Allowed excess of a part's nodes over the mean. Default 0.1.
        train_slack: Allowed excess of a part's training nodes over the mean. Default 0.05.
        refine: If false, ``"bgl"`` does not move nodes after the assignment. Default true.
        batches: Minibatches drawn to count requests between parts; 0 draws a whole epoch.
        **options: Options of the run to predict, as in :func:`train`. ``task`` chooses one of a
            dataset of several types.

    Returns:
        ``results``: a record per method with ``edge_cut``, ``balance``, ``locality``,
        ``cross_requests`` and ``seconds``; of several types also ``node_types`` and
        ``edge_types``.

    Raises:
        TypeError, ValueError: A method or option is unknown, a value is out of range, ``out`` is
            given with several methods, or ``like`` is a partition of another dataset.
        OSError: The partition cannot be written.
    """
    given = {"parts": parts, "methods": methods, "train_slack": train_slack, "refine": refine}
    if like is not None and (unread := [name for name, value in given.items() if value is not None]):
        raise ValueError(f"{unread[0]}: like keeps the parts of known nodes and does not use it; leave one out")
    methods, parts = ["bgl"] if methods is None else list(methods), 2 if parts is None else parts
    how = {"methods": methods, "parts": parts, "seed": seed, "slack": slack, "train_slack": train_slack, "refine": refine, "batches": batches}
    paths = tuple(None if path is None else os.fspath(path) for path in (out, like))
    return record_of(_graphmill.partition_report(any_types(dataset)._native, **how, options=options_of(options), paths=paths))


def options(of: str = "train") -> dict[str, Record]:
    """Options of a function by name, each with its ``kind``, ``default``, ``help`` and ``choices``.

    Args:
        of: ``"train"``, ``"hotness"``, ``"hotness_report"``, ``"partition_report"``,
            ``"reorder"``, ``"plan"`` or ``"bench"``.

    Returns:
        A record per option. ``choices`` are all values of an option that names one of several, and
        else ``None``.

    Raises:
        ValueError: The function takes no options of a run.
    """
    return {
        name: Record(kind=kind, default=json.loads(default), help=text, choices=choices)
        for name, kind, default, text, _, choices in _graphmill.options(of)
    }
