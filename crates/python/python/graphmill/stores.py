"""Datasets as PyTorch Geometric's ``FeatureStore`` and ``GraphStore``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._frameworks import find, is_tensor


class Stores:
    """A read-only ``FeatureStore`` and ``GraphStore`` of PyTorch Geometric.

    Give ``(dataset, dataset)`` to a loader of PyTorch Geometric. The group of a feature is its node
    type or edge type, ``None`` in a dataset of one type; its attributes are ``"x"``, ``"y"``,
    ``"train_mask"`` and so on. The edge type of a dataset of one type is ``("node", "to",
    "node")``. All methods need PyTorch Geometric.
    """

    _adapters: Any = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        _register(type(self))
        return type(self)

    def _store_columns(self) -> dict[Any, dict[str, Any]]:
        """Columns by group: arrays, or functions that return one."""
        raise NotImplementedError

    def _store_edges(self) -> dict[tuple[str, str, str], tuple[Any, Any, tuple[int, int]]]:
        """Row starts, sources and sizes by edge type."""
        raise NotImplementedError

    def get_tensor(self, *args: Any, convert_type: bool = False, **kwargs: Any) -> Any:
        """Rows of a feature: of ``TensorAttr(group_name, attr_name, index)``, or its arguments.

        Raises:
            KeyError: There is no such feature.
        """
        return _adapter(self)[0].get_tensor(*args, convert_type=convert_type, **kwargs)

    def multi_get_tensor(self, attrs: list[Any], convert_type: bool = False) -> list[Any]:
        """Rows of several features."""
        return _adapter(self)[0].multi_get_tensor(attrs, convert_type=convert_type)

    def get_tensor_size(self, *args: Any, **kwargs: Any) -> tuple[int, ...] | None:
        """Shape of a feature."""
        return _adapter(self)[0].get_tensor_size(*args, **kwargs)

    def get_all_tensor_attrs(self) -> list[Any]:
        """All features, as ``TensorAttr``."""
        return _adapter(self)[0].get_all_tensor_attrs()

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """A view of a feature, as ``AttrView``."""
        return _adapter(self)[0].view(*args, **kwargs)

    def get_edge_index(self, *args: Any, **kwargs: Any) -> Any:
        """Edges of an edge type and a layout: of ``EdgeAttr(edge_type, layout)``, or its arguments.

        Raises:
            KeyError: There is no such edge type.
        """
        return _adapter(self)[1].get_edge_index(*args, **kwargs)

    def get_all_edge_attrs(self) -> list[Any]:
        """All edge types, as ``EdgeAttr`` of the layout CSC."""
        return _adapter(self)[1].get_all_edge_attrs()

    def coo(self, edge_types: list[Any] | None = None, store: bool = False) -> Any:
        """Rows, columns and permutations by edge type, as lists of edges."""
        return _adapter(self)[1].coo(edge_types, _unstored(store))

    def csr(self, edge_types: list[Any] | None = None, store: bool = False) -> Any:
        """Rows, columns and permutations by edge type, as compressed rows."""
        return _adapter(self)[1].csr(edge_types, _unstored(store))

    def csc(self, edge_types: list[Any] | None = None, store: bool = False) -> Any:
        """Rows, columns and permutations by edge type, as compressed columns: without a copy."""
        return _adapter(self)[1].csc(edge_types, _unstored(store))

    def put_tensor(self, *args: Any, **kwargs: Any) -> bool:
        """Refused: datasets are read-only."""
        raise _read_only("put_tensor")

    def update_tensor(self, *args: Any, **kwargs: Any) -> bool:
        """Refused: datasets are read-only."""
        raise _read_only("update_tensor")

    def remove_tensor(self, *args: Any, **kwargs: Any) -> bool:
        """Refused: datasets are read-only."""
        raise _read_only("remove_tensor")

    def put_edge_index(self, *args: Any, **kwargs: Any) -> bool:
        """Refused: datasets are read-only."""
        raise _read_only("put_edge_index")

    def remove_edge_index(self, *args: Any, **kwargs: Any) -> bool:
        """Refused: datasets are read-only."""
        raise _read_only("remove_edge_index")


def _read_only(name: str) -> NotImplementedError:
    return NotImplementedError(f"{name}: datasets are read-only; change the arrays and create the dataset again with from_arrays()")


def _unstored(store: bool) -> bool:
    if store:
        raise NotImplementedError("store=True: datasets are read-only and keep their own layout; leave it out")
    return False


_registered: set[type] = set()


def _register(kind: type) -> None:
    """Makes ``isinstance`` of PyTorch Geometric's stores true, if these are imported."""
    import sys

    data = sys.modules.get("torch_geometric.data")
    if kind not in _registered and data is not None and hasattr(data, "FeatureStore") and hasattr(data, "GraphStore"):
        _registered.add(kind)
        data.FeatureStore.register(kind)
        data.GraphStore.register(kind)


def _adapter(dataset: Stores) -> tuple[Any, Any]:
    """PyTorch Geometric's stores over a dataset."""
    if dataset._adapters is None:
        data = find("torch_geometric.data")
        if data is None:
            raise ImportError("stores of features and graphs need torch_geometric; install it with pip")
        dataset._adapters = _stores(data, dataset._store_columns(), dataset._store_edges())
    return dataset._adapters


def _tensor(array: Any) -> Any:
    import warnings

    torch = find("torch")
    array = array() if callable(array) else array
    array = array.view(np.int64) if array.dtype == np.uint64 else array.astype(np.int64) if array.dtype == np.uint32 else array
    with warnings.catch_warnings():
        # torch warns about tensors over read-only memory
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def _stores(data: Any, columns: dict[Any, dict[str, Any]], edges: dict[Any, Any]) -> tuple[Any, Any]:
    """PyTorch Geometric's stores over columns and edges."""
    cache: dict[Any, Any] = {}

    def column(attr: Any) -> Any:
        key = attr.group_name, attr.attr_name
        if key not in cache:
            found = columns.get(key[0], {}).get(key[1])
            cache[key] = None if found is None else _tensor(found)
        return cache[key]

    class Features(data.FeatureStore):
        def _put_tensor(self, tensor: Any, attr: Any) -> bool:
            raise _read_only("put_tensor")

        def _remove_tensor(self, attr: Any) -> bool:
            raise _read_only("remove_tensor")

        def _get_tensor(self, attr: Any) -> Any:
            tensor = column(attr)
            if tensor is None or attr.index is None:
                return tensor
            index = attr.index
            return tensor[index if is_tensor(index) or isinstance(index, (slice, int)) else find("torch").as_tensor(index)]

        def _get_tensor_size(self, attr: Any) -> Any:
            tensor = column(attr)
            return None if tensor is None else tuple(tensor.shape)

        def get_all_tensor_attrs(self) -> list[Any]:
            return [data.TensorAttr(group, name) for group, names in columns.items() for name in names]

    class Graphs(data.GraphStore):
        def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:
            raise _read_only("put_edge_index")

        def _remove_edge_index(self, edge_attr: Any) -> bool:
            raise _read_only("remove_edge_index")

        def _get_edge_index(self, edge_attr: Any) -> Any:
            found = edges.get(tuple(edge_attr.edge_type))
            if found is None or str(getattr(edge_attr.layout, "value", edge_attr.layout)) != "csc":
                return None
            key = "edges", tuple(edge_attr.edge_type)
            if key not in cache:
                cache[key] = (_tensor(found[1]), _tensor(found[0]))
            return cache[key]

        def get_all_edge_attrs(self) -> list[Any]:
            return [data.EdgeAttr(kind, "csc", size=size) for kind, (_, _, size) in edges.items()]

    return Features(), Graphs()
