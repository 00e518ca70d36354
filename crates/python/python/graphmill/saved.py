"""Commands on saved runs: evaluation, prediction, export, report and comparison."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
import warnings
from typing import Any, Literal, Mapping, NamedTuple, Sequence

import numpy as np

from . import _graphmill
from ._frameworks import array_of
from .given import DatasetLike, RunLike, for_run, run_directory
from .record import Record, record_of
from .tables import Tables


def evaluate(
    run: RunLike,
    dataset: DatasetLike | None = None,
    *,
    last: bool = False,
    propagate: Literal["label-propagation", "correct-and-smooth"] | None = None,
    propagation: Mapping[str, float] | None = None,
) -> Record:
    """Scores a run's model by every metric on every part of the split.

    Args:
        run: Run, or its directory.
        dataset: Dataset to score on. ``None`` takes the run's dataset, unless that was in memory
            and so was not stored.
        last: Scores the last checkpoint instead of the best model.
        propagate: Spreads labels over the graph after the model: ``"label-propagation"`` predicts
            from the labels of the training nodes alone, a baseline; ``"correct-and-smooth"``
            corrects the model by its errors on the training nodes. For classes or values of
            nodes; on several types labels spread between nodes of the task's type.
        propagation: Options of ``propagate``: ``propagation_steps``, ``propagation_alpha``,
            ``correction_alpha``.

    Returns:
        ``metric``, ``test`` (its value on the test nodes), ``same_dataset`` (true if the dataset is
        the run's, by its checksum), ``rescaled`` (how features of another dataset were scaled to
        match the run's), ``propagation`` (method and options, if one was applied) and ``parts``,
        each with ``part``, ``nodes`` and ``scores``. A run on links, of a table of embeddings or of
        events is scored by rankings of its edges.

    Raises:
        ValueError, OSError: The run does not exist, or its model does not fit the dataset.
    """
    spread = _propagation(propagate, propagation)
    _held, native = for_run(dataset, run)
    return record_of(_graphmill.evaluate(run_directory(run), native, last, spread))


def _propagation(name: str | None, options: Mapping[str, float] | None) -> tuple[str, str] | None:
    """Name and options of a propagation, as the library takes them."""
    if name is None and options is not None:
        raise TypeError("propagation: these are options of propagate=; pass it too")
    return None if name is None else (name, json.dumps(dict(options or {})))


def predict(
    run: RunLike,
    nodes: Any = None,
    *,
    kind: Literal["classes", "probabilities", "embeddings"] = "classes",
    keys: Sequence[Any] | None = None,
    dataset: DatasetLike | None = None,
    last: bool = False,
    original_ids: bool = False,
    at: int | None = None,
    on: Any = None,
    edges: Any = None,
    propagate: Literal["label-propagation", "correct-and-smooth"] | None = None,
    propagation: Mapping[str, float] | None = None,
) -> np.ndarray:
    """Predictions of a run's model for nodes, computed with all of their neighbours.

    Args:
        run: Run, or its directory.
        nodes: Node ids (``N``), or ``None`` for all nodes.
        kind: ``"classes"`` (``N``, int64; with a class in each of several columns ``N x K``, with
            several labels per node ``N x C`` zeros and ones), ``"probabilities"`` (``N x C``, float32) or ``"embeddings"`` (``N x H``, float32: rows
            of the last hidden layer).
        keys: Keys of nodes instead of ids, of a dataset that was imported from tables; a key of
            several columns is a tuple.
        dataset: Dataset to predict on. ``None`` takes the run's dataset, unless that was in memory
            and so was not stored.
        last: Uses the last checkpoint instead of the best model.
        original_ids: Interprets ids as those from before the dataset was reordered.
        at: Time to predict as of, if nodes or edges have times: only edges before it are read, and only
            nodes that exist by then; ``nodes=None`` predicts those. Default: everything is read.
        on: Table of new nodes to predict, as of :meth:`Dataset.from_tables`, for a dataset that was
            imported from tables: its columns are encoded by the dataset's statistics, and nodes are
            computed as if they were in the dataset, which does not change. With several node types,
            a table of nodes of the predicted type, or a dict of tables by node type.
        edges: Table with the edges of the new nodes, which names new and known nodes by their keys.
            With several edge tables, a dict of tables by edge type: its name, or ``(source, name,
            destination)``.
        propagate, propagation: Labels that spread over the graph after the model, and options, as
            of :func:`evaluate`.

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
    _held, native = for_run(dataset, run)
    if on is None and edges is not None:
        raise TypeError("edges: these are the edges of new nodes; pass on= too")
    if on is not None and (nodes is not None or keys is not None or original_ids or at is not None):
        raise TypeError("on: all rows of the table are predicted, and have no times; leave out nodes, keys, original_ids and at")
    if on is not None and propagate is not None:
        raise TypeError("propagate: labels spread over the dataset's graph, without new nodes; leave out on")
    spread = _propagation(propagate, propagation)
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        out = os.path.join(scratch, "predictions.npy")
        if on is not None:
            tables = Tables()
            files = tables.of_types(on, "new nodes"), tables.of_types(edges, "new edges")
            written, notes = _graphmill.predict_new(run_directory(run), native, (*files, tables.memory), kind, last, out)
            for note in notes:
                warnings.warn(note, UserWarning, stacklevel=2)
        else:
            asked = _asked(nodes, keys, scratch)
            written = _graphmill.predict(run_directory(run), native, asked, kind, last, original_ids, at, spread, out)
        return _read(written, out)


def _asked(nodes: Any, keys: Sequence[Any] | None, scratch: str) -> tuple[str | None, list[str] | None]:
    """File of node ids in ``scratch``, or keys; neither for all nodes."""
    if keys is not None:
        if nodes is not None:
            raise TypeError("keys: pass either nodes or keys")
        if isinstance(keys, str):
            raise TypeError("keys: expected a sequence of keys, not one text")
        return None, ["|".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in keys]
    if nodes is None:
        return None, None
    ids = array_of(nodes, "nodes")
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise TypeError(f"nodes: expected one dimension of integers, not shape {ids.shape} of {ids.dtype}")
    listed = os.path.join(scratch, "nodes.npy")
    np.save(listed, ids.astype(np.int64))
    return listed, None


def _read(written: str, out: str) -> np.ndarray:
    """Rows that a command wrote to ``out``, after its warnings."""
    rescaled = record_of(written).rescaled
    if rescaled is not None:
        warnings.warn(f"features of the dataset: {rescaled}", UserWarning, stacklevel=3)
    return np.load(out)


def export_model(
    run: RunLike, to: Literal["safetensors", "pyg", "onnx"], out: str | os.PathLike[str], *, last: bool = False, force: bool = False
) -> Record:
    """Writes a run's model for another library.

    Args:
        run: Run, or its directory.
        to: ``"safetensors"``, a file of the weights oriented as in PyTorch; ``"pyg"``, a
            directory with ``model.py``, a ``torch.nn.Module`` of PyTorch Geometric's layers, its
            options and the weights; or ``"onnx"``, a file of the model over feature rows and the
            edges of each layer.
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
    return record_of(_graphmill.export_model(run_directory(run), to, os.fspath(out), last))


def load_model(run: RunLike, *, last: bool = False) -> Any:
    """A run's model as a ``torch.nn.Module`` of PyTorch Geometric's layers, in evaluation mode.

    ``model(x, edge_index)`` takes the feature rows and edges of all nodes of a graph, where edges
    point from neighbour to node, and returns a row for each node: scores before softmax or sigmoid,
    or values. They agree with :func:`predict` to rounding. The module can be trained further.

    The module of several node types takes ``model(x_dict, edge_index_dict)`` of a ``HeteroData``, and
    returns a row for each node of the type that the run predicts. A type without features has learned
    rows, which are parameters, and no entry in ``x_dict``. A model that reads edge features, also of one
    type, takes ``model(x_dict, edge_index_dict, edge_attr_dict)``.

    The module of a run on links returns the scores of pairs of nodes, those of :func:`recommend`:
    ``model(x, edge_index, pairs)`` with ``pairs`` (``2 x P``) like the ``edge_label_index`` of PyTorch
    Geometric, or ``model(x_dict, edge_index_dict, pairs, relation)`` of several types, with
    ``edge_attr=edge_attr_dict`` if the model reads edge features. That of a table of embeddings takes
    ``model(pairs, relation)``, and ``edge_index``, the training edges, for LightGCN. ``model.encode``
    and ``model.decode`` are its two halves.

    Args:
        run: Run, or its directory, on nodes or links of one type or several, or of a table of embeddings.
        last: Takes the last checkpoint instead of the best model.

    Raises:
        ModuleNotFoundError: PyTorch or PyTorch Geometric is not installed.
        ValueError, OSError: The run does not exist, or its model has no such layers.
    """
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        out = os.path.join(scratch, "model")
        _graphmill.export_model(run_directory(run), "pyg", out, last)
        spec = importlib.util.spec_from_file_location("graphmill_exported_model", os.path.join(out, "model.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.load(out)


def import_model(run: RunLike, module: Any, out: str | os.PathLike[str], *, last: bool = False) -> str:
    """Writes a run whose model has the parameters of a module: the inverse of :func:`load_model`.

    The new run has the options and the dataset of ``run``, and answers with the outputs of the module
    in :func:`predict`, :func:`evaluate`, :func:`export_model` and the service. It has no scores of its
    own, because it was not trained here.

    Args:
        run: Run, or its directory, that :func:`load_model` can load.
        module: A ``torch.nn.Module`` with the parameters of that of :func:`load_model`, for example
            one that was trained further; or its ``state_dict()``.
        out: Directory of the new run.
        last: As of :func:`load_model`.

    Returns:
        Path of the new run.

    Raises:
        ModuleNotFoundError: PyTorch or PyTorch Geometric is not installed.
        ValueError, OSError: The run does not exist, its model has no such layers, the parameters have
            other names or shapes or are not finite, or ``out`` holds a run.
    """
    own = load_model(run, last=last)
    state = module if isinstance(module, Mapping) else module.state_dict()
    scale = {name: values.clone() for name, values in own.state_dict().items() if name in ("mean", "deviation")}
    try:
        own.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"module: its parameters are not those of load_model({run_directory(run)!r}): {error}") from None
    for name, values in scale.items():
        if not bool((own.state_dict()[name] == values).all()):
            raise ValueError(f"module: '{name}' differs from that of the run, whose dataset has the scale of the targets; restore it")
    weights = [(name, values.numpy()) for name, values in own.weights().items()]
    _graphmill.import_model(run_directory(run), weights, os.fspath(out), last)
    return os.fspath(out)


def embed(
    run: RunLike,
    nodes: Any = None,
    *,
    keys: Sequence[Any] | None = None,
    dataset: DatasetLike | None = None,
    last: bool = False,
    original_ids: bool = False,
    node_type: str | None = None,
    all_edges: bool = False,
    at: int | None = None,
) -> np.ndarray:
    """Embeddings of nodes: rows of the last hidden layer, or those that the decoder of a run on links scores.

    Args:
        run: Run, or its directory.
        nodes, keys, dataset, last, original_ids: As of :func:`predict`.
        node_type: Node type to embed, for a table of embeddings, links of several types or events. Default: the
            first that it learned.
        all_edges: Reads all edges, for a run on links. By default those of training only, so that
            embeddings know no edge that validates or tests.
        at: Time that only earlier events or edges are read for, as of :func:`predict`. Not for runs on links
            without times. Default: everything is read.

    Returns:
        One row per node (``N x H``, float32), in the order of ``nodes``.

    Raises:
        ValueError, OSError: As of :func:`predict`; or an option is not for this kind of run.
    """
    if original_ids:
        if node_type is not None or all_edges:
            raise TypeError("original_ids: ids of links are those of the dataset; leave out node_type and all_edges")
        return predict(run, nodes, kind="embeddings", keys=keys, dataset=dataset, last=last, original_ids=True, at=at)
    _held, native = for_run(dataset, run)
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        out = os.path.join(scratch, "embeddings.npy")
        asked = _asked(nodes, keys, scratch)
        written = _graphmill.embed(run_directory(run), native, asked, (node_type, all_edges, at), last, out)
        return _read(written, out)


class Recommendations(NamedTuple):
    """Best candidates of nodes: a row for each pair (``N``), those of a node together, the best first."""

    #: Nodes that were asked for (uint32).
    nodes: np.ndarray
    #: Their candidates (uint32): ids of the type at the other end of the edges.
    candidates: np.ndarray
    #: Scores of the pairs (float32).
    scores: np.ndarray


def recommend(
    run: RunLike,
    nodes: Any = None,
    *,
    k: int = 10,
    keys: Sequence[Any] | None = None,
    dataset: DatasetLike | None = None,
    last: bool = False,
    all_edges: bool = False,
    relation: str | None = None,
    sources: bool = False,
    at: int | None = None,
    on: Any = None,
    edges: Any = None,
) -> Recommendations:
    """Best candidates of nodes by a run on links or events, like ``graphmill predict --top-k``.

    Known edges are left out, so a node may have fewer than ``k``. Those of events are not, because events repeat.
    :class:`LinkPredictor` answers many such questions by a run on links that it opens once.

    Args:
        run: Run on links (``task="link"``), on a stream of events, or of a table of embeddings
            (``model="embedding"`` or ``"lightgcn"``), or its directory.
        nodes: Ids of the sources (``N``), or ``None`` for all.
        k: Number of candidates of each node.
        keys, dataset, last: As of :func:`predict`.
        all_edges: As of :func:`embed`.
        relation: Relation, for a table of embeddings or links of several types with several.
        sources: Ranks the sources of given destinations, for a run on links.
        at: As of :func:`embed`.
        on, edges: Tables of new nodes and of their edges, as of :func:`predict`, for a run on links:
            nodes of the dataset are recommended to them, but for those to which they have an edge.
            Nodes are then the rows of the table.

    Warns:
        UserWarning: As of :func:`predict`, for new nodes.

    Raises:
        ValueError, OSError: The run does not exist or learned no links or events, or a node, key or relation is
            unknown.
    """
    if k < 1:
        raise ValueError(f"k {k}: pass at least 1")
    _held, native = for_run(dataset, run)
    if on is None and edges is not None:
        raise TypeError("edges: these are the edges of new nodes; pass on= too")
    if on is not None:
        if nodes is not None or keys is not None or at is not None:
            raise TypeError("on: all rows of the table are asked for, and have no times; leave out nodes, keys and at")
        tables, how = Tables(), (all_edges, relation, sources, at)
        new = tables.of_types(on, "new nodes"), tables.of_types(edges, "new edges"), tables.memory
        found, notes = _graphmill.candidates_of_new(run_directory(run), native, new, k, how, last)
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=2)
        return Recommendations(*found)
    with tempfile.TemporaryDirectory(prefix="graphmill-") as scratch:
        asked, how = _asked(nodes, keys, scratch), (all_edges, relation, sources, at)
        return Recommendations(*_graphmill.candidates(run_directory(run), native, asked, k, how, last))


def report(run: RunLike) -> str:
    """Rewrites the page ``report.html`` of a run or a sweep from its records.

    Args:
        run: Run, or its directory, or that of a sweep.

    Returns:
        Path of the page.

    Raises:
        ValueError, OSError: The run does not exist, or the page cannot be written.
    """
    return os.fspath(_graphmill.write_report(run_directory(run)))


def runs(*dirs: RunLike) -> list[Record]:
    """Compares runs: their scores, and the options in which they differ.

    Args:
        dirs: Runs, their directories, or directories that hold runs up to two levels deep.

    Returns:
        A record per run, with ``run``, ``dataset``, ``metric``, ``valid``, ``test``, ``epochs``,
        ``best_epoch``, ``seconds`` and ``options``. The best validation score of each metric comes
        first.

    Raises:
        ValueError, OSError: A directory holds no run, or a record cannot be read.
    """
    if not dirs:
        raise TypeError("runs: pass at least one run, or a directory that holds runs")
    return record_of(_graphmill.runs([run_directory(run) for run in dirs]))
