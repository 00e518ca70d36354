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
