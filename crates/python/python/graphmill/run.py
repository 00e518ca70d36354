"""Commands as functions: training, evaluation, prediction, hotness and partitioning."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import warnings
from types import SimpleNamespace
from typing import Any, Callable, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of, is_tensor, options_of
from .dataset import Dataset
from .progress import watch
from .tables import Tables
from .typed import TypedDataset


class Record(SimpleNamespace):
    """Result of a run or a command, with the fields of the command's JSON as attributes."""

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries with the same fields."""

        def plain(value: Any) -> Any:
            if isinstance(value, Record):
                return {name: plain(each) for name, each in vars(value).items()}
            return [plain(each) for each in value] if isinstance(value, list) else value

        return plain(self)


def _run(path: str | os.PathLike[str]) -> str:
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{os.fspath(path)}: no such run directory; graphmill.train(out=...) writes one")
    return os.fspath(path)


def _record(text: str) -> Any:
    return json.loads(text, object_hook=lambda values: Record(**values))


def _open(dataset: Any) -> Dataset:
    if dataset is None:
        return Dataset.demo()
    if isinstance(dataset, Dataset):
        return dataset
    if isinstance(dataset, TypedDataset):
        # several types are refused, with a message that lists them
        return dataset.to_dataset()
    if isinstance(dataset, (str, os.PathLike)):
        return Dataset(dataset)
    raise TypeError(f"dataset: expected a graphmill.Dataset or the path of its directory, not {type(dataset).__name__}")


def _given(dataset: Any) -> Dataset | TypedDataset:
    """A dataset of one type or of several."""
    if isinstance(dataset, TypedDataset) and not dataset._native.is_one_type:
        return dataset
    if isinstance(dataset, (str, os.PathLike)) and _graphmill.is_typed(os.fspath(dataset)):
        return TypedDataset(dataset)
    return _open(dataset)


def train(
    dataset: Dataset | TypedDataset | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    callback: Callable[[Record], Any] | None = None,
    **options: Any,
) -> Record:
    """Trains and evaluates a model in Rust, and saves it if ``out`` is given.

    Ctrl-C stops after the current batch, writes a checkpoint and raises ``KeyboardInterrupt``;
    ``resume=True`` continues from there to the same numbers.

    Args:
        dataset: A dataset or its directory. One of several types must be in a directory. ``None``
            takes the built-in demo, or with ``resume`` the dataset of the run.
        out: Run directory to write (configuration, epochs, checkpoint, best model). ``None`` writes
            nothing.
        resume: Continues the run in ``out``.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook.
        callback: Called with the record of every epoch (``epoch``, ``loss``, ``valid_score``,
            ``seconds``, ...). An exception that it raises ends the run.
        **options: Options of ``graphmill train``: ``model``, ``fanout``, ``hidden``, ``epochs``,
            ``lr``, ``sampler``, ``seed``, ...; :func:`options` lists them.

    Returns:
        Summary of the run: ``epochs`` (a record each), ``best.epoch``, ``best.valid_score``,
        ``test.metric``, ``test.score``, ``seconds``, ``config``.

    Raises:
        TypeError: An option is unknown.
        ValueError: A value is out of range, or the dataset cannot be trained on.
        OSError: A file cannot be read or written.
        RuntimeError: The loss is not finite.
        KeyboardInterrupt: Ctrl-C was pressed.

    Example:
        >>> import graphmill
        >>> run = graphmill.train(graphmill.generate(nodes=2000, seed=1), epochs=2, hidden=16)
        >>> len(run.epochs), run.test.metric
        (2, 'accuracy')
    """
    if resume and out is None:
        raise ValueError("resume=True needs the run directory; pass it as out=...")
    with watch(progress) as line:

        def observe(message: str) -> None:
            if line is not None:
                line(message)
            if callback is not None:
                event = _record(message)
                if event.event == "epoch":
                    callback(event.record)

        observer = None if line is None and callback is None else observe
        path = None if out is None else os.fspath(out)
        native = None if dataset is None else _given(dataset)._native
        return _record(_graphmill.train(native, options_of(options), path, resume, observer))


def evaluate(
    run: str | os.PathLike[str],
    dataset: Dataset | TypedDataset | str | os.PathLike[str] | None = None,
    *,
    last: bool = False,
) -> Record:
    """Scores a run's model by every metric on every part of the split.

    Args:
        run: Run directory.
        dataset: Dataset to score on. ``None`` takes the run's dataset, unless that was in memory
            and so was not stored.
        last: Scores the last checkpoint instead of the best model.

    Returns:
        ``metric``, ``test`` (its value on the test nodes), ``same_dataset`` (true if the dataset is
        the run's, by its checksum), ``rescaled`` (how features of another dataset were scaled to
        match the run's) and ``parts``, each with ``part``, ``nodes`` and ``scores``.

    Raises:
        ValueError, OSError: The run does not exist, or its model does not fit the dataset.
    """
    native = None if dataset is None else _given(dataset)._native
    return _record(_graphmill.evaluate(_run(run), native, last))


def predict(
    run: str | os.PathLike[str],
    nodes: Any = None,
    *,
    kind: str = "classes",
    dataset: Dataset | TypedDataset | str | os.PathLike[str] | None = None,
    last: bool = False,
    original_ids: bool = False,
    on: Any = None,
    edges: Any = None,
) -> np.ndarray:
    """Predictions of a run's model for nodes, computed with all of their neighbours.

    Args:
        run: Run directory.
        nodes: Node ids (``N``), or ``None`` for all nodes.
        kind: ``"classes"`` (``N``, int64; with several labels per node ``N x C`` zeros and ones),
            ``"probabilities"`` (``N x C``, float32) or ``"embeddings"`` (``N x H``, float32: rows
            of the last hidden layer).
        dataset: Dataset to predict on. ``None`` takes the run's dataset, unless that was in memory
            and so was not stored.
        last: Uses the last checkpoint instead of the best model.
        original_ids: Interprets ids as those from before the dataset was reordered.
        on: Table of new nodes to predict, as of :meth:`Dataset.from_tables`, for a dataset that was
            imported from tables: its columns are encoded by the dataset's statistics, and nodes are
            computed as if they were in the dataset, which does not change. With several node types,
            a table of nodes of the predicted type, or a dict of tables by node type.
        edges: Table with the edges of the new nodes, which names new and known nodes by their keys.
            With several edge tables, a dict of tables by edge type: its name, or ``(source, name,
            destination)``.

    Returns:
        One row per node, in the order of ``nodes``, or of the rows of ``on`` of the predicted type.

    Warns:
        UserWarning: Features of another dataset were scaled to match the run's; new rows have
            values that the dataset does not have; or edges between known nodes were left out. The
            message says how.

    Raises:
        ValueError, OSError: The run does not exist, its model does not fit the dataset, an id is
            out of range, or tables of new nodes have faults.
    """
    native = None if dataset is None else _given(dataset)._native
    if on is None and edges is not None:
        raise TypeError("edges: these are the edges of new nodes; pass on= too")
    if on is not None and (nodes is not None or original_ids):
        raise TypeError("on: all rows of the table are predicted; leave out nodes and original_ids")
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        out = os.path.join(scratch, "predictions.npy")
        if on is not None:
            tables = Tables()
            files = tables.of_types(on, "new nodes"), tables.of_types(edges, "new edges")
            written, notes = _graphmill.predict_new(_run(run), native, (*files, tables.memory), kind, last, out)
            for note in notes:
                warnings.warn(note, UserWarning, stacklevel=2)
        else:
            listed = None
            if nodes is not None:
                ids = array_of(nodes if is_tensor(nodes) else np.asarray(nodes), "nodes")
                if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
                    raise TypeError(f"nodes: expected one dimension of integers, not shape {ids.shape} of {ids.dtype}")
                listed = os.path.join(scratch, "nodes.npy")
                np.save(listed, ids.astype(np.int64))
            written = _graphmill.predict(_run(run), native, listed, kind, last, original_ids, out)
        rescaled = _record(written).rescaled
        if rescaled is not None:
            warnings.warn(f"features of the dataset: {rescaled}", UserWarning, stacklevel=2)
        return np.load(out)


def export_model(
    run: str | os.PathLike[str], to: str, out: str | os.PathLike[str], *, last: bool = False, force: bool = False
) -> Record:
    """Writes a run's model for another library.

    Args:
        run: Run directory.
        to: ``"safetensors"``, a file of the weights oriented as in PyTorch, or ``"pyg"``, a
            directory with ``model.py``, a ``torch.nn.Module`` of PyTorch Geometric's layers, its
            options and the weights.
        out: File or directory to write.
        last: Exports the last checkpoint instead of the best model.
        force: Replaces an existing export.

    Returns:
        ``to``, ``files`` and ``values``, the number of values of all parameters.

    Raises:
        ValueError, OSError: The run does not exist, the target cannot represent its model, or
            ``out`` exists.
    """
    if os.path.exists(out) and not force:
        raise FileExistsError(f"{os.fspath(out)}: it exists; pass force=True to replace it")
    return _record(_graphmill.export_model(_run(run), to, os.fspath(out), last))


def load_model(run: str | os.PathLike[str], *, last: bool = False) -> Any:
    """A run's model as a ``torch.nn.Module`` of PyTorch Geometric's layers, in evaluation mode.

    ``model(x, edge_index)`` takes the feature rows and edges of all nodes of a graph, where edges
    point from neighbour to node, and returns a row for each node: scores before softmax or sigmoid,
    or values. They agree with :func:`predict` to rounding. The module can be trained further.

    Args:
        run: Run directory, of ``model`` ``"sage"``, ``"gcn"``, ``"gat"`` or ``"gin"``.
        last: Takes the last checkpoint instead of the best model.

    Raises:
        ModuleNotFoundError: PyTorch or PyTorch Geometric is not installed.
        ValueError, OSError: The run does not exist, or its model has no such layers.
    """
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        out = os.path.join(scratch, "model")
        _graphmill.export_model(_run(run), "pyg", out, last)
        spec = importlib.util.spec_from_file_location("graphmill_exported_model", os.path.join(out, "model.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load(out)


def hotness(dataset: Dataset | str | os.PathLike[str] | None = None, metric: str = "degree", **options: Any) -> np.ndarray:
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
    return _graphmill.hotness(_open(dataset)._native, metric, options_of(options))


def hotness_report(
    dataset: Dataset | str | os.PathLike[str] | None = None,
    *,
    policies: Sequence[str] = ("random", "degree", "presc:1", "optimal"),
    samplers: Sequence[str] = ("neighbor",),
    ratios: Sequence[float] = (0.01, 0.05, 0.1, 0.25),
    epochs: int = 2,
    **options: Any,
) -> Record:
    """Hit rates of caches by policy, sampler and size, without training.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        policies: Cache policies, as of ``graphmill hotness --policies``.
        samplers: Samplers whose reads are counted.
        ratios: Cache sizes, as fractions of the rows.
        epochs: Number of epochs whose reads are counted.
        **options: Options of the run to predict, as in :func:`train`.

    Returns:
        ``results``: a record per combination with ``policy``, ``sampler``, ``ratio`` (fraction of
        the rows that the cache holds) and ``hit_rate`` (fraction of the reads that it serves);
        ``samplers``: reads of each sampler.

    Raises:
        TypeError, ValueError: A policy, sampler or option is unknown, or a value is out of range.
    """
    native, given = _open(dataset)._native, options_of(options)
    return _record(_graphmill.hotness_report(native, list(policies), list(samplers), list(ratios), epochs, given))


def partition(
    dataset: Dataset | str | os.PathLike[str] | None = None,
    parts: int = 2,
    *,
    method: str = "bgl",
    seed: int = 0,
    slack: float | None = None,
    train_slack: float | None = None,
    refine: bool | None = None,
) -> np.ndarray:
    """Assigns the nodes of a graph to parts, one per machine.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        parts: Number of parts, at most 65535.
        method: ``"bgl"``, ``"metis"``, ``"gminer"``, ``"pagraph"``, ``"fennel"``, ``"ldg"``,
            ``"hash"`` or ``"random"``.
        seed: Seed of the random draws.
        slack: Allowed excess of a part's nodes over the mean. Default 0.1: at most 1.1 times the
            mean.
        train_slack: Allowed excess of a part's training nodes over the mean. Default 0.05.
        refine: If false, ``"bgl"`` does not move nodes after the assignment. Default true.

    Returns:
        Part of each node (``V``, uint32).

    Raises:
        ValueError: The method is unknown, there are more parts than nodes, or the method does not
            use a given option.
    """
    given = _open(dataset)
    how = {"method": method, "parts": parts, "seed": seed, "slack": slack, "train_slack": train_slack, "refine": refine}
    return _graphmill.partition(given._native.topology(), given.train, **how)


def partition_report(
    dataset: Dataset | str | os.PathLike[str] | None = None,
    parts: int = 2,
    *,
    methods: Sequence[str] = ("bgl",),
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    slack: float | None = None,
    train_slack: float | None = None,
    refine: bool | None = None,
    batches: int = 0,
    **options: Any,
) -> Record:
    """Statistics of partitions by several methods, like ``graphmill partition``.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        parts: Number of parts, at most 65535.
        methods: Methods to compare, as in :func:`partition`.
        out: Directory to write the partition to, for training on several machines; needs exactly
            one method. ``None`` writes nothing.
        seed: Seed of the random draws.
        slack: Allowed excess of a part's nodes over the mean. Default 0.1.
        train_slack: Allowed excess of a part's training nodes over the mean. Default 0.05.
        refine: If false, ``"bgl"`` does not move nodes after the assignment. Default true.
        batches: Minibatches drawn to count requests between parts; 0 draws a whole epoch.
        **options: Options of the run to predict, as in :func:`train`.

    Returns:
        ``results``: a record per method with ``edge_cut``, ``balance``, ``locality``,
        ``cross_requests`` and ``seconds``.

    Raises:
        TypeError, ValueError: A method or option is unknown, a value is out of range, or ``out`` is
            given with several methods.
        OSError: The partition cannot be written.
    """
    how = {"methods": list(methods), "parts": parts, "seed": seed, "slack": slack, "train_slack": train_slack, "refine": refine, "batches": batches}
    path = None if out is None else os.fspath(out)
    return _record(_graphmill.partition_report(_open(dataset)._native, **how, options=options_of(options), out=path))


def options() -> dict[str, Record]:
    """Options of :func:`train` by name, each with its ``kind``, ``default`` and ``help``."""
    return {
        name: Record(kind=kind, default=json.loads(default), help=text)
        for name, kind, default, text in _graphmill.options()
        if name != "dataset"
    }
