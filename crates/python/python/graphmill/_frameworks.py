"""PyTorch and PyTorch Geometric, where they are: neither is imported before somebody needs it."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Any

import numpy as np


def find(name: str) -> Any | None:
    """The module of that name, or ``None`` where it is not installed."""
    module = sys.modules.get(name)
    if module is not None:
        return module
    try:
        if importlib.util.find_spec(name) is None:
            return None
    except (ImportError, ValueError):
        return None
    return importlib.import_module(name)


def is_tensor(value: Any) -> bool:
    """Whether that is a tensor, without importing torch for the question."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_scipy(value: Any) -> bool:
    """Whether that is a sparse matrix or array of SciPy, without importing it for the question."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(value)


def is_pyg(data: Any) -> bool:
    """Tells whether the object is PyTorch Geometric's, without importing it."""
    return type(data).__module__.split(".")[0] == "torch_geometric" or any(
        base.__module__.split(".")[0] == "torch_geometric" for base in type(data).__mro__
    )


def edges_of_scipy(matrix: Any) -> tuple[np.ndarray, np.ndarray | None, int]:
    """The edges of a sparse adjacency matrix, ``A[i, j]`` from ``i`` to ``j``, their weights where not all are 1, and the number of nodes.
    Entries at the same place are summed, and zeros are no edges, as in SciPy's own sums and products."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"edge_index: a square sparse matrix is expected, not shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"edge_index: a sparse matrix of real numbers is expected, not of {matrix.dtype}")
    # a bool has no sum: an edge is there or not
    entries = matrix.tocsr(copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    entries = entries.tocoo()
    ones = entries.dtype.kind == "b" or bool((entries.data == 1).all())
    return np.stack([entries.row, entries.col]), None if ones else entries.data.astype(np.float32), matrix.shape[0]


def array_of(value: Any, name: str) -> np.ndarray:
    """The values of a tensor, an array or a sequence as an array; no copy of the first two where they lie one behind the other in the
    processor's memory."""
    if is_tensor(value):
        value = value.detach()
        if value.device.type != "cpu":
            raise ValueError(f"{name}: a tensor in the processor's memory is expected, not on {value.device}")
        if value.layout != sys.modules["torch"].strided:
            raise TypeError(f"{name}: a dense tensor is expected, not {value.layout}")
        value = value.contiguous().numpy()
    if is_scipy(value):
        remedy = "give its toarray()"
        if name == "edge_index":
            remedy = "graphmill.Dataset.from_arrays(matrix, x=...) takes an adjacency, and its dataset takes this place"
        raise TypeError(f"{name}: a dense array is expected, not a sparse matrix; {remedy}")
    try:
        array = np.ascontiguousarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    # a scalar becomes a vector there
    return array if np.ndim(value) else array.reshape(())


def options_of(options: dict[str, Any]) -> str:
    """Options of a run as JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        return os.fspath(value) if isinstance(value, os.PathLike) else list(value)

    return json.dumps(options, default=plain)


def draw_seed(generator: Any = None) -> int:
    """A seed from torch's generator where torch has been imported (so that ``torch.manual_seed`` decides), or else from NumPy's."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.randint(2**62, (), generator=generator))
    return int(np.random.randint(2**31)) << 31 | int(np.random.randint(2**31))
