"""The commands as functions."""

from __future__ import annotations

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


class Record(SimpleNamespace):
    """What a run or a command found: the names of the command's JSON as attributes."""

    def to_dict(self) -> dict[str, Any]:
        """The same as nested dictionaries."""

        def plain(value: Any) -> Any:
            if isinstance(value, Record):
                return {name: plain(each) for name, each in vars(value).items()}
            return [plain(each) for each in value] if isinstance(value, list) else value

        return plain(self)


def _run(path: str | os.PathLike[str]) -> str:
    if not os.path.isdir(path):
        raise FileNotFoundError(f"{os.fspath(path)}: there is no such run directory; graphmill.train(out=...) writes one")
    return os.fspath(path)


def _record(text: str) -> Any:
    return json.loads(text, object_hook=lambda values: Record(**values))


def _open(dataset: Any) -> Dataset:
    if dataset is None:
        return Dataset.demo()
    if isinstance(dataset, Dataset):
        return dataset
    if isinstance(dataset, (str, os.PathLike)):
        return Dataset(dataset)
    raise TypeError(f"dataset: a graphmill.Dataset or the path of its directory is expected, not {type(dataset).__name__}")


def train(
    dataset: Dataset | str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
    callback: Callable[[Record], Any] | None = None,
    **options: Any,
) -> Record:
    """Trains a model in Rust, evaluates it, and with ``out`` saves it.

    Ctrl-C stops after the batch in hand, writes a checkpoint and raises ``KeyboardInterrupt``; ``resume=True`` goes on from there to the same numbers.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo; with ``resume``, ``None`` for the run's own.
        out: The run directory to write (configuration, epochs, checkpoint, best model); none by default.
        resume: Whether to go on with the run in ``out``.
        progress: Whether progress is shown; ``None``: where there is a terminal or a notebook.
        callback: Called with the record of every epoch (``epoch``, ``loss``, ``valid_score``, ``seconds``, ...); what it raises ends the run.
        **options: As of ``graphmill train``: ``model``, ``fanout``, ``hidden``, ``epochs``, ``lr``, ``sampler``, ``seed``, ...; :func:`options` lists them.

    Returns:
        The run's summary: ``epochs`` (a record each), ``best.epoch``, ``best.valid_score``, ``test.metric``, ``test.score``, ``seconds``, ``config``.

    Raises:
        TypeError: No such option.
        ValueError: An impossible value, or a dataset that cannot be trained on.
        OSError: A file cannot be read or written.
        RuntimeError: The loss is not finite.
        KeyboardInterrupt: Ctrl-C.

    Example:
        >>> import graphmill
        >>> run = graphmill.train(graphmill.generate(nodes=2000, seed=1), epochs=2, hidden=16)
        >>> len(run.epochs), run.test.metric
        (2, 'accuracy')
    """
    if resume and out is None:
        raise ValueError("resume goes on with the run in out: name it")
    with watch(progress) as line:

        def observe(message: str) -> None:
            if line is not None:
                line(message)
            if callback is not None:
                event = _record(message)
                if event.event == "epoch":
                    callback(event.record)

        told = None if line is None and callback is None else observe
        path = None if out is None else os.fspath(out)
        native = None if dataset is None else _open(dataset)._native
        return _record(_graphmill.train(native, options_of(options), path, resume, told))


def evaluate(
    run: str | os.PathLike[str], dataset: Dataset | str | os.PathLike[str] | None = None, *, last: bool = False
) -> Record:
    """Every metric of a run's model on every part of the split.

    Args:
        run: The run directory.
        dataset: Another dataset than the run's; or the same, where the run's was in memory and is not stored with it.
        last: Whether its last checkpoint is judged rather than its best model.

    Returns:
        ``metric``, ``test`` (that metric's value there), ``same_dataset`` (whether it is the run's, by its checksum), ``rescaled`` (how features of another dataset were brought to the scale of the run's) and ``parts``, each with ``part``, ``nodes`` and ``scores``.

    Raises:
        ValueError, OSError: There is no such run, or its model does not fit the dataset.
    """
    native = None if dataset is None else _open(dataset)._native
    return _record(_graphmill.evaluate(_run(run), native, last))


def predict(
    run: str | os.PathLike[str],
    nodes: Any = None,
    *,
    kind: str = "classes",
    dataset: Dataset | str | os.PathLike[str] | None = None,
    last: bool = False,
    original_ids: bool = False,
) -> np.ndarray:
    """What a run's model says of nodes, by all their neighbours.

    Args:
        run: The run directory.
        nodes: Ids (``N``), or ``None`` for all nodes.
        kind: ``"classes"`` (``N``, int64; with several labels ``N x C`` zeros and ones), ``"probabilities"`` (``N x C``, float32) or
            ``"embeddings"`` (``N x H``, float32: the last hidden rows).
        dataset: Another dataset than the run's; or the same, where the run's was in memory and is not stored with it.
        last: Whether its last checkpoint is asked rather than its best model.
        original_ids: Whether ids are those from before the dataset was reordered.

    Warns:
        UserWarning: Features of another dataset were brought to the scale of the run's, and how.

    Raises:
        ValueError, OSError: There is no such run, its model does not fit the dataset, or an id is no node.
    """
    native = None if dataset is None else _open(dataset)._native
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        listed = None
        if nodes is not None:
            ids = array_of(nodes if is_tensor(nodes) else np.asarray(nodes), "nodes")
            if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
                raise TypeError(f"nodes: one dimension of whole numbers is expected, not shape {ids.shape} of {ids.dtype}")
            listed = os.path.join(scratch, "nodes.npy")
            np.save(listed, ids.astype(np.int64))
        out = os.path.join(scratch, "predictions.npy")
        written = _record(_graphmill.predict(_run(run), native, listed, kind, last, original_ids, out))
        if written.rescaled is not None:
            warnings.warn(f"features of the dataset: {written.rescaled}", UserWarning, stacklevel=2)
        return np.load(out)


def hotness(dataset: Dataset | str | os.PathLike[str] | None = None, metric: str = "degree", **options: Any) -> np.ndarray:
    """How often each node's row will be asked for, by a metric (``V``, float64): higher is hotter.

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        metric: ``"degree"``, ``"reverse-pagerank"``, ``"analytic"``, ``"presc:K"`` (``K`` epochs of sampling), ``"optimal"``, ...
        **options: Of the run that it is for, as in :func:`train`: ``sampler``, ``fanout``, ``batch_size``, ``epochs``, ...

    Raises:
        TypeError, ValueError: No such metric or option, or an impossible value.
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
    """What caches of some sizes would serve, by policy and sampler, without training.

    Returns:
        ``results``: a record for each with ``policy``, ``sampler``, ``ratio`` (part of the rows held) and ``hit_rate`` (rows served out of those asked for);
        ``samplers``: what each asks for.

    Raises:
        TypeError, ValueError: No such policy, sampler or option, or an impossible value.
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
) -> np.ndarray:
    """Deals the nodes of a graph to parts, one for each machine: the part of each node (``V``, uint32).

    Args:
        dataset: A dataset, its directory, or ``None`` for the built-in demo.
        parts: How many, at most 65535.
        method: ``"bgl"``, ``"metis"``, ``"fennel"``, ``"ldg"``, ``"hash"`` or ``"random"``.
        seed: Of what is drawn.
        slack: How far above the mean a part's nodes may be, 0.1 by default: at most 1.1 times.
        train_slack: The same of training nodes, 0.05 by default.

    Raises:
        ValueError: No such method, more parts than nodes, or a limit that the method does not keep to.
    """
    given = _open(dataset)
    how = {"method": method, "parts": parts, "seed": seed, "slack": slack, "train_slack": train_slack}
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
    batches: int = 0,
    **options: Any,
) -> Record:
    """What partitions by some methods are like: the command ``graphmill partition``. With ``out`` that of the one method is written there, for training over several machines.

    Returns:
        ``results``: a record for each method with ``edge_cut``, ``balance``, ``locality``, ``cross_requests`` and ``seconds``.

    Raises:
        TypeError, ValueError: No such method or option, an impossible value, or several methods and ``out``.
        OSError: It cannot be written.
    """
    how = {"methods": list(methods), "parts": parts, "seed": seed, "slack": slack, "train_slack": train_slack, "batches": batches}
    path = None if out is None else os.fspath(out)
    return _record(_graphmill.partition_report(_open(dataset)._native, **how, options=options_of(options), out=path))


def options() -> dict[str, Record]:
    """Every option of :func:`train` by name, with its ``default`` and ``help``."""
    return {
        name: Record(kind=kind, default=json.loads(default), help=text)
        for name, kind, default, text in _graphmill.options()
        if name != "dataset"
    }
