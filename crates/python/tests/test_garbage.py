"""Invalid input raises an exception of the right type that names the argument and the position."""

import numpy as np
import pytest

import graphmill
from conftest import loader_of, make_data

EDGES = make_data().edge_index


def changed(at, value, dtype=np.int64):
    edges = EDGES.astype(dtype)
    edges[at] = value
    return {"edge_index": edges, "num_nodes": 100}


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (changed((0, 7), -3), ValueError, r"edge_index\[0\]\[7\] is -3, but there are 100 nodes"),
        (changed((1, 499), 100), ValueError, r"edge_index\[1\]\[499\] is 100"),
        (changed((1, 0), 2**40), ValueError, r"edge_index\[1\]\[0\] is 1099511627776"),
        (changed((0, 0), 2**64 - 1, np.uint64), ValueError, r"edge_index\[0\]\[0\] is 18446744073709551615"),
        ({"edge_index": EDGES.astype(float), "num_nodes": 100}, TypeError, "expected .*int64.*, not .*float64"),
        ({"edge_index": EDGES.astype(object), "num_nodes": 100}, TypeError, "edge_index"),
        ({"edge_index": EDGES.T, "num_nodes": 100}, ValueError, r"expected shape \(2, E\), not \(500, 2\); its rows are edges, so pass the transpose"),
        ({"edge_index": EDGES[0], "num_nodes": 100}, ValueError, r"shape \(2, E\)"),
        ({"edge_index": [[1, 2], [3]], "num_nodes": 100}, ValueError, "edge_index"),
        ({"edge_index": "edges", "num_nodes": 100}, ValueError, "edge_index"),
        ({"edge_index": EDGES}, ValueError, "num_nodes"),
        ({"x": np.zeros((100, 2))}, ValueError, "'edge_index' is missing"),
        ({"edge_index": EDGES, "x": np.zeros((100, 2), object)}, TypeError, "x: expected an array of numbers"),
        (42, TypeError, "data: expected .*, not int"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_invalid_graphs_are_refused(data, error, message):
    with pytest.raises(error, match=message):
        loader_of(data)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"input_nodes": [100]}, ValueError, r"input_nodes\[0\] is 100"),
        ({"input_nodes": [4, -1]}, ValueError, r"input_nodes\[1\] is -1"),
        ({"input_nodes": np.ones(99, bool)}, ValueError, "the mask has 99 entries for 100 nodes"),
        ({"input_nodes": [0.5]}, TypeError, "expected integers or a mask"),
        ({"input_nodes": [[1, 2]]}, ValueError, "one dimension"),
        ({"input_nodes": ("paper", [1])}, TypeError, "several node types"),
        ({"num_neighbors": [-2]}, ValueError, "num_neighbors -2"),
        ({"num_neighbors": [2] * 65}, ValueError, "65 hops"),
        ({"num_neighbors": {"a": [1]}}, ValueError, "needs a graph of several types"),
        ({"batch_size": 0}, ValueError, "batch_size 0"),
        ({"batch_size": 2.5}, ValueError, "batch_size 2.5"),
        ({"num_threads": 0}, ValueError, "num_threads 0"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor 0"),
        ({"subgraph_type": "sideways"}, ValueError, "subgraph_type 'sideways'"),
        ({"weight_attr": "w"}, ValueError, "weight_attr 'w': no such edge attribute; known: edge_attr"),
        ({"input_id": [1]}, ValueError, "1 values for 100 input nodes"),
        ({"time_attr": "time"}, ValueError, "time_attr 'time': no node or edge attribute"),
        ({"time_attr": "x"}, TypeError, "time_attr 'x': expected an integer per row"),
        ({"time_attr": "edge_attr"}, ValueError, "pass input_time"),
        ({"time_attr": "y", "input_time": [1]}, ValueError, "input_time: 1 times for 100 input nodes"),
        ({"time_attr": "y", "subgraph_type": "induced"}, NotImplementedError, "edges of later times"),
        ({"time_attr": "y", "weight_attr": "edge_attr", "temporal_strategy": "last"}, NotImplementedError, "leave out one"),
        ({"input_time": [1]}, ValueError, "pass time_attr too"),
        ({"temporal_strategy": "last"}, ValueError, "pass time_attr too"),
        ({"temporal_strategy": "first"}, ValueError, "use uniform, last or recency"),
        ({"output": "tensorflow"}, ValueError, "output 'tensorflow'"),
        ({"colour": 3}, TypeError, "unexpected keyword argument 'colour'"),
    ],
)
def test_invalid_options_are_refused(data, options, error, message):
    with pytest.raises(error, match=message):
        loader_of(data, **options)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.full(500, -1.0), ValueError, "edge 0 weighs -1"),
        (np.full(500, np.nan), ValueError, "edge 0 weighs NaN"),
        (np.ones((500, 2)), TypeError, "expected a number per edge"),
        (np.full(500, "a"), TypeError, "expected a number per edge"),
    ],
)
def test_invalid_weights_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        loader_of({"edge_index": EDGES, "num_nodes": 100, "w": weights}, weight_attr="w")


def test_empty_graphs_are_accepted():
    empty = {"edge_index": np.zeros((2, 0), int), "num_nodes": 0}
    assert list(loader_of(empty)) == []
    alone = {"edge_index": np.zeros((2, 0), np.int32), "x": np.zeros((3, 4), np.float32)}
    batch = next(iter(loader_of(alone)))
    assert batch.n_id.tolist() == [0, 1, 2] and batch.edge_index.shape == (2, 0) and batch.e_id.shape == (0,)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({"edge_index": EDGES, "num_nodes": 50}, ValueError, "but there are 50 nodes"),
        ({"num_nodes": 5}, ValueError, "either edge_index, or indptr and indices"),
        ({"indptr": [0, 2, 1], "indices": [0], "layout": "csc"}, ValueError, "indptr"),
        ({"indptr": [0, -1], "indices": [0], "layout": "csc"}, ValueError, r"indptr\[1\] is -1"),
        ({"indptr": [0, 1], "indices": [1], "layout": "csc"}, ValueError, r"indices\[0\] is 1"),
        ({"indptr": [0, 1], "indices": [0]}, ValueError, "layout None: .*'csc' .in-neighbours.*'csr'"),
        ({"edge_index": EDGES, "num_nodes": 100, "layout": "csr"}, ValueError, "leave it out with edge_index"),
        ({"indptr": [0, 1], "indices": [1], "layout": "csr"}, ValueError, "1"),
        ({"indptr": [0, -1], "indices": [0], "layout": "csr"}, ValueError, r"indptr\[1\] is -1"),
        ({"indptr": [0, 2, 1], "indices": [0], "layout": "csr"}, ValueError, "indptr: expected ascending"),
        ({"indptr": [0, 2, 2], "indices": [0, 1], "layout": "csc", "undirected": True}, ValueError, "undirected"),
        ({"edge_index": EDGES, "x": np.full((100, 2), np.nan)}, ValueError, "finite|NaN"),
        ({"edge_index": EDGES, "x": np.zeros(100)}, TypeError, "x: expected two dimensions"),
        ({"edge_index": EDGES, "x": np.zeros((99, 2)), "num_nodes": 100}, ValueError, "features"),
        ({"edge_index": EDGES, "y": np.full(100, 0.5)}, TypeError, "y: expected integers"),
        ({"edge_index": EDGES, "y": np.full(100, -2)}, ValueError, r"y\[0\] is -2"),
        ({"edge_index": EDGES, "y": np.full((100, 3), 2)}, ValueError, "zeros and ones"),
        ({"edge_index": EDGES, "num_nodes": 100, "edge_weight": [1.0]}, ValueError, "edge_weight: expected shape"),
        ({"edge_index": EDGES, "y": [0] * 100, "train_mask": [1, 2], "val_mask": [2]}, ValueError, "node 2 is in 'valid' and in 'train'"),
    ],
)
def test_invalid_arrays_of_a_dataset_are_refused(arrays, error, message):
    with pytest.raises(error, match=message):
        graphmill.Dataset.from_arrays(**arrays)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(OSError, match="nowhere"):
        graphmill.Dataset(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        graphmill.predict(tmp_path / "nowhere")
    with pytest.raises(OSError, match="nowhere"):
        graphmill.import_dataset("npz", tmp_path / "nowhere.npz", tmp_path / "out")
