"""Access to PyTorch, PyTorch Geometric and SciPy, which are imported only when needed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Any, Mapping

import numpy as np


def find(name: str) -> Any | None:
    """Imports a module; ``None`` if it is not installed."""
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
    """Returns true for a tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_scipy(value: Any) -> bool:
    """Returns true for a sparse matrix or array of SciPy, without importing it."""
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(value)


def is_pyg(data: Any) -> bool:
    """Returns true for an object of PyTorch Geometric, without importing it."""
    return type(data).__module__.split(".")[0] == "torch_geometric" or any(
        base.__module__.split(".")[0] == "torch_geometric" for base in type(data).__mro__
    )


def edges_of_scipy(matrix: Any) -> tuple[np.ndarray, np.ndarray | None, int]:
    """Edges of a sparse adjacency matrix, their weights (``None`` if all are 1) and its number of nodes.

    ``A[i, j]`` is an edge from ``i`` to ``j``. Duplicates are summed and zeros dropped, as in SciPy.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"edge_index: expected a square sparse matrix, not shape {matrix.shape}")
    if matrix.dtype.kind not in "biuf":
        raise TypeError(f"edge_index: expected a sparse matrix of real numbers, not of {matrix.dtype}")
    # bools have no sum: an edge exists or not
    entries = matrix.tocsr(copy=True)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    entries = entries.tocoo()
    ones = entries.dtype.kind == "b" or bool((entries.data == 1).all())
    return np.stack([entries.row, entries.col]), None if ones else entries.data.astype(np.float32), matrix.shape[0]


#: Devices of DLPack whose memory the processor reads: its own, and pinned for CUDA and ROCm
HOST_DEVICES = (1, 3, 11)


def array_of(value: Any, name: str) -> np.ndarray:
    """Converts a tensor, an array, an object with DLPack's interface or a sequence to an array.

    Contiguous tensors and arrays in the processor's memory are not copied.
    """
    if is_tensor(value):
        value = value.detach()
        if value.device.type != "cpu":
            raise ValueError(f"{name}: expected a tensor on the CPU, not on {value.device}; pass {name}.cpu()")
        if value.layout != sys.modules["torch"].strided:
            raise TypeError(f"{name}: expected a dense tensor, not {value.layout}")
        value = value.contiguous().numpy()
    elif hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray):
        # arrays of JAX, CuPy and others
        try:
            device = int(value.__dlpack_device__()[0])
        except Exception:
            # pyarrow refuses types that DLPack lacks, which NumPy converts
            device = HOST_DEVICES[0]
        if device not in HOST_DEVICES:
            raise ValueError(f"{name}: expected an array in the processor's memory, not a {type(value).__name__} on a device; copy it to the host")
        if not hasattr(value, "__array__"):
            value = np.from_dlpack(value)
    if is_scipy(value):
        remedy = "pass its toarray()"
        if name == "edge_index":
            remedy = "pass graphmill.Dataset.from_arrays(matrix, x=...) as the graph"
        raise TypeError(f"{name}: expected a dense array, not a sparse matrix; {remedy}")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    # ascontiguousarray turns a scalar into a vector
    return np.ascontiguousarray(array) if array.ndim else array


def edge_list(edge_index: Any, name: str = "edge_index") -> np.ndarray:
    """Edges as an array of shape ``2 x E``.

    Raises:
        ValueError: The array has another shape.
    """
    edges = array_of(edge_index, name)
    if edges.ndim != 2 or edges.shape[0] != 2:
        is_of_rows = edges.ndim == 2 and edges.shape[1] == 2
        fix = "its rows are edges, so pass the transpose" if is_of_rows else "pass sources and destinations as two rows"
        raise ValueError(f"{name}: expected shape (2, E), not {edges.shape}; {fix}")
    return edges


def options_of(options: Mapping[str, object]) -> str:
    """Encodes options of a run as JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, np.generic):
            return value.item()
        return os.fspath(value) if isinstance(value, os.PathLike) else list(value)

    return json.dumps(dict(options), default=plain)


def draw_seed(generator: Any = None) -> int:
    """Draws a seed from torch's generator if torch is imported, and else from NumPy's.

    So ``torch.manual_seed`` decides in a script that uses torch.
    """
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.randint(2**62, (), generator=generator))
    return int(np.random.randint(2**31)) << 31 | int(np.random.randint(2**31))
