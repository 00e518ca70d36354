"""People's own tables as datasets: pandas, Polars, PyArrow, DuckDB, dicts of columns, and files."""

from __future__ import annotations

import datetime
import json
import math
import numbers
import os
import shutil
import tempfile
import warnings
import weakref
from typing import Any

import numpy as np

from . import _graphmill
from .progress import watch

#: Arguments of :meth:`Dataset.from_tables` that describe its node table: their names in a schema
NODE_OPTIONS = {
    "id": "id", "node_time": "time", "label": "label", "task": "task", "split": "split",
    "features": "features", "ignore": "ignore", "columns": "columns", "missing": "missing",
    "category_limit": "category_limit", "formats": "formats", "nulls": "nulls", "separator": "separator",
    "quote": "quote",
}  # fmt: skip
#: those that describe its edge table
EDGE_OPTIONS = {
    "src": "src", "dst": "dst", "src_type": "source", "dst_type": "destination",
    "edge_time": "time", "edge_weight": "weight",
    "edge_label": "label", "edge_task": "task", "edge_split": "split", "edge_features": "features",
    "edge_columns": "columns", "missing": "missing", "reverse": "reverse",
    "undirected": "undirected", "keep_duplicates": "keep_duplicates", "edge_formats": "formats",
    "edge_nulls": "nulls", "separator": "separator", "quote": "quote",
}  # fmt: skip
#: those that describe its table of targets
TARGET_OPTIONS = {
    "target_id": "id", "target_time": "time", "target_label": "label", "target_task": "task",
    "target_split": "split", "target_name": "name", "target_formats": "formats",
    "target_nulls": "nulls", "separator": "separator", "quote": "quote",
}  # fmt: skip
#: all arguments that describe tables
OPTIONS = {
    *NODE_OPTIONS, *EDGE_OPTIONS, *TARGET_OPTIONS, "targets", "node_type", "edge_type", "name",
    "seed", "dangling",
}  # fmt: skip
#: treatments of edges to nodes without a row
DANGLING = ("error", "drop", "add")
#: entries of a table of targets that name the rows of each part of the split
PARTS = ("train", "valid", "test")
#: entries of a schema that are lists of names
LISTS = ("features", "ignore")


def native_table(table: Any, name: str) -> _graphmill.Table:
    """Converts a table; the memory of Arrow's columns is shared."""
    if isinstance(table, dict):
        return _of_columns(table, name)
    try:
        capsule = table.__arrow_c_stream__()
    except ImportError:
        # pandas converts by PyArrow, and without it by its columns
        if not hasattr(table, "to_dict"):
            raise
        return _of_columns({column: table[column] for column in table.columns}, name)
    except Exception as error:
        if isinstance(error, (KeyboardInterrupt, MemoryError)):
            raise
        raise ValueError(f"{name}: the table gives no Arrow stream: {error}; convert its columns to plain types") from error
    return _graphmill.Table.from_stream(name, capsule)


def _of_columns(columns: dict[str, Any], name: str) -> _graphmill.Table:
    """Table of columns by name: arrays, or sequences of numbers, texts, dates, lists and ``None``."""
    given, rows = [], None
    for column, values in columns.items():
        if not isinstance(column, str):
            raise TypeError(f"{name}: the column {column!r} has no text as its name; rename it")
        kind, values = _plain(values, f"{name}: column '{column}'")
        if rows is not None and rows != len(values):
            raise ValueError(f"{name}: column '{column}' has {len(values)} rows, but the first column has {rows}")
        rows = len(values)
        given.append((column, kind, values))
    return _graphmill.Table.from_columns(name, given)


def _plain(values: Any, place: str) -> tuple[str, list[Any]]:
    """Kind of a column, and its values as Python's; ``None`` if missing."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise TypeError(f"{place}: expected an array or a sequence, not {type(values).__name__}")
    array = np.asarray(values) if hasattr(values, "dtype") or hasattr(values, "__array__") else None
    if array is not None and array.dtype.kind == "M":
        texts = np.datetime_as_string(array.astype("datetime64[us]"))
        return "text", [None if text == "NaT" else text for text in texts.tolist()]
    items = array.tolist() if array is not None else list(values)
    items = [_item(item) for item in items]
    present = [item for item in items if item is not None]
    is_kind = lambda *kinds: all(isinstance(item, kinds) for item in present)  # noqa: E731
    if is_kind(bool):
        return "bool", items
    if is_kind(int) and not any(isinstance(item, bool) for item in present):
        if all(-(2**63) <= item < 2**63 for item in present):
            return "int", items
        return "text", [None if item is None else str(item) for item in items]
    if is_kind(int, float) and not any(isinstance(item, bool) for item in present):
        return "float", [None if item is None else float(item) for item in items]
    if is_kind(list):
        return "list", items
    return "text", [item if item is None or isinstance(item, str) else _text(item) for item in items]


def _item(value: Any) -> Any:
    """A value as ``None``, bool, int, float, text or list of floats."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.floating)):
        return None if math.isnan(value) else float(value)
    if isinstance(value, np.generic):
        return _item(value.item())
    if isinstance(value, (list, tuple, np.ndarray)) or (hasattr(value, "tolist") and np.ndim(value) == 1):
        items = value.tolist() if hasattr(value, "tolist") else list(value)
        if all(isinstance(item, numbers.Real) for item in items):
            return [float(item) for item in items]
        return str(value)
    if isinstance(value, (datetime.datetime, datetime.date)):
        # pandas.NaT is one, and is not equal to itself
        return value.isoformat() if value == value else None
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _item(float(value))
    try:
        # pandas.NA has no truth value
        bool(value == value)
    except TypeError:
        return None
    return str(value)


def _text(item: Any) -> str:
    return ("true" if item else "false") if isinstance(item, bool) else str(item)


class Tables:
    """Tables in memory by the names that a schema gives them."""

    def __init__(self) -> None:
        self.memory: list[tuple[str, _graphmill.Table]] = []

    def files(self, table: Any, name: str) -> list[str]:
        """Names of a table's files in a schema; a table in memory gets ``name``."""
        if table is None:
            return []
        if isinstance(table, (str, os.PathLike)):
            return [os.fspath(table)]
        if isinstance(table, (list, tuple)) and table and all(isinstance(each, (str, os.PathLike)) for each in table):
            return [os.fspath(path) for path in table]
        if isinstance(table, dict) or hasattr(table, "__arrow_c_stream__"):
            self.memory.append((name, native_table(table, name)))
            return [name]
        hint = "; call its collect()" if hasattr(table, "collect") else ""
        raise TypeError(
            f"{name}: expected a path, a dict of columns, or a table of pandas, Polars, PyArrow, DuckDB or another "
            f"library with Arrow's C stream interface, not {type(table).__name__}{hint}"
        )

    def of_types(self, tables: Any, name: str) -> list[str]:
        """Names of the files of a table, or of a dict of tables by type: ``account=new.csv``."""
        if not isinstance(tables, dict) or not tables or not all(_is_table(table) for table in tables.values()):
            return self.files(tables, name)
        found = []
        for kind, table in tables.items():
            kind = "__".join(kind) if isinstance(kind, tuple) else kind
            found += [f"{kind}={file}" for file in self.files(table, f"{name} of {kind}")]
        return found


def _is_table(value: Any) -> bool:
    """Returns true for a table, and false for a column."""
    return isinstance(value, (dict, str, os.PathLike)) or any(hasattr(value, name) for name in ("columns", "column_names", "schema"))


#: what :func:`schema_of` returns: a schema in JSON, or the path of its file; and the tables in memory
Schema = tuple[str, list[tuple[str, _graphmill.Table]]]


def schema_of(nodes: Any, edges: Any, options: dict[str, Any], schema: Any = None) -> Schema:
    """Schema of a table each of nodes, edges and targets with options, or of the dict or file ``schema``."""
    targets = options.pop("targets", None)
    options = {option: value for option, value in options.items() if value is not None and value is not False}
    general = {option: options.pop(option) for option in ("name", "seed", "dangling") if option in options}
    if general.get("dangling", "error") not in DANGLING:
        raise ValueError(f"dangling: {general['dangling']!r} is unknown; use {', '.join(map(repr, DANGLING))}")
    if schema is not None:
        given = [option for option, value in (("nodes", nodes), ("edges", edges), ("targets", targets)) if value is not None]
        if given or options:
            raise TypeError(f"{[*given, *options][0]}: the schema describes the tables; write it there")
        return _whole(schema, general)
    if nodes is None and edges is None:
        raise ValueError("there are no tables; pass nodes=, edges= or both, or schema=")
    key = "the column of the key"
    for option, what, table, which in (
        ("id", key, nodes, "nodes"),
        ("src", key, edges, "edges"),
        ("dst", key, edges, "edges"),
        ("target_id", key, targets, "targets"),
        ("target_label", "the column to predict", targets, "targets"),
    ):
        if table is not None and option not in options:
            raise TypeError(f"{option}: it is missing; name {what} in the table of {which}")
    node, edge = {"type": options.pop("node_type", "node")}, {"type": options.pop("edge_type", "edge")}
    target: dict[str, Any] = {}
    described = ((node, NODE_OPTIONS, nodes), (edge, EDGE_OPTIONS, edges), (target, TARGET_OPTIONS, targets))
    for option, value in options.items():
        here = [(entry, names[option]) for entry, names, table in described if option in names and table is not None]
        if not here:
            which = "nodes" if option in NODE_OPTIONS else "edges" if option in EDGE_OPTIONS else "targets"
            raise TypeError(f"{option}: it belongs to the table of {which}, which is missing; pass {which}=")
        for entry, column in here:
            entry[column] = _names(value) if column in LISTS else value
    node["files"], edge["files"], target["files"] = nodes, edges, targets
    given = lambda entry: [] if entry["files"] is None else [entry]  # noqa: E731
    # the ends of edges may be of types without a table, and then a node table without rows is left out
    ends = dict.fromkeys(edge.get(end, node["type"]) for end in ("source", "destination"))
    if len(ends) > 1 or node["type"] not in ends:
        for end in ("source", "destination"):
            edge.setdefault(end, node["type"])
    types = [node] if nodes is not None or node["type"] in ends else []
    types += [{"type": kind} for kind in ends if kind != node["type"]]
    return _whole({"nodes": types, "edges": given(edge), "targets": given(target)}, general)


def _whole(schema: Any, general: dict[str, Any]) -> Schema:
    """Schema with the names of its tables in memory."""
    if isinstance(schema, (str, os.PathLike)):
        if general:
            raise TypeError(f"{next(iter(general))}: the schema file says it; write it there")
        return os.fspath(schema), []
    if not isinstance(schema, dict):
        raise TypeError(f"schema: expected a dict or the path of a schema file, not {type(schema).__name__}")
    tables, whole = Tables(), {**schema, **general}
    for which, default in (("nodes", "node"), ("edges", "edge"), ("targets", "target")):
        entries = whole.get(which, [])
        if isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries):
            raise TypeError(f"schema: '{which}' is a list of dicts, one for each type; see [[{which}]] of a schema file")
        whole[which] = [
            {**entry, **_files(entry, f"{which} '{entry.get('type', entry.get('name', default))}'", tables)} for entry in entries
        ]
    try:
        return json.dumps(whole), tables.memory
    except TypeError as error:
        raise TypeError(f"schema: {error}; use texts, numbers, lists and dicts") from None


def _files(entry: dict[str, Any], name: str, tables: Tables) -> dict[str, list[str]]:
    """Names of the files of an entry of a schema: of its table, or of the parts of its split."""
    parts = {part: tables.files(entry[part], f"{part} of {name}") for part in PARTS if part in entry}
    return parts if parts and "files" not in entry else {"files": tables.files(entry.get("files"), name), **parts}


def _names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def warn_of_leaks(report: dict[str, Any]) -> None:
    """Warns of columns that determine the label, and of those that may have missing values, which an import found."""
    for which, name in (("nodes", "type"), ("edges", "type"), ("targets", "name")):
        for table in report.get(which, ()):
            notes = [leak["message"] for leak in table.get("leaks", ())]
            notes += [column["note"] for column in table["columns"] if "note" in column]
            for note in notes:
                warnings.warn(f"{which} '{table[name]}': {note}", UserWarning, stacklevel=3)


class TemporaryDirectory:
    """A new directory, removed with its contents when the object is."""

    def __init__(self) -> None:
        self.name = tempfile.mkdtemp(prefix="graphmill-")
        self.remove = weakref.finalize(self, shutil.rmtree, self.name, ignore_errors=True)


def import_tables(
    schema: Schema,
    *,
    like: str | os.PathLike[str] | None,
    path: str | os.PathLike[str] | None,
    replace: bool,
    memory: int | None,
    progress: bool | None,
) -> tuple[Any, Any, TemporaryDirectory | None]:
    """Imports tables; returns a native dataset of one type or of several, and the owner of its directory."""
    owner = TemporaryDirectory() if path is None else None
    out = os.path.join(owner.name, "tables") if path is None else os.fspath(path)
    like = None if like is None else os.fspath(like)
    with watch(progress) as observe:
        one, several = _graphmill.import_tables(schema, like, out, replace, memory, observe)
    return one, several, owner
