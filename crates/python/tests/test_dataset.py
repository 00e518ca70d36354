"""Datasets: arrays, directories, generators and importers."""

import pickle
from pathlib import Path

import numpy as np
import pytest

import graphmill
from conftest import make_data, random_edges


def arrays(**more):
    data = make_data(20, 60)
    return dict(edge_index=data.edge_index, x=data.x, y=data.y, train_mask=[0, 1, 2], val_mask=np.arange(20) == 5, **more)


def test_datasets_return_their_arrays():
    given = arrays(test_mask=[9, 7])
    dataset = graphmill.Dataset.from_arrays(**given, name="mine")
    assert (dataset.num_nodes, dataset.num_edges, dataset.num_features, dataset.num_classes) == (20, 60, 2, 7)
    assert (dataset.x == given["x"]).all() and (dataset.y == given["y"]).all() and dataset.y.dtype == np.int64
    assert (dataset.train.tolist(), dataset.valid.tolist(), dataset.test.tolist()) == ([0, 1, 2], [5], [7, 9])
    assert np.flatnonzero(dataset.test_mask).tolist() == [7, 9]
    # the same edges, sorted by destination
    order = np.lexsort(given["edge_index"])
    assert (dataset.edge_index == given["edge_index"][:, order]).all()
    again = graphmill.Dataset.from_arrays(indptr=dataset.indptr, indices=dataset.indices, layout="csc")
    assert (again.edge_index == dataset.edge_index).all()
    assert repr(dataset) == "Dataset('mine', num_nodes=20, num_edges=60, num_features=2, num_classes=7)"


def test_arrays_of_other_libraries_are_read_by_dlpack():
    class Foreign:
        """An array with DLPack's interface alone."""

        def __init__(self, array, device=(1, 0)):
            self.array, self.device = np.ascontiguousarray(array), device

        def __dlpack__(self, **how):
            return self.array.__dlpack__(**how)

        def __dlpack_device__(self):
            return self.device

    given = arrays()
    own = graphmill.Dataset.from_arrays(**given)
    foreign = {name: Foreign(given[name]) for name in ("edge_index", "x", "y", "train_mask", "val_mask")}
    other = graphmill.Dataset.from_arrays(**{**given, **foreign})
    assert (own.indices == other.indices).all() and (own.x == other.x).all() and (own.y == other.y).all()
    assert (own.train == other.train).all() and (own.valid == other.valid).all()
    with pytest.raises(ValueError, match="x: expected an array in the processor's memory, not a Foreign on a device; copy it"):
        graphmill.Dataset.from_arrays(**{**given, "x": Foreign(given["x"], (2, 0))})
    with pytest.raises(ValueError, match="in the processor's memory, not a Foreign on a device"):
        graphmill.Dataset.from_arrays(**{**given, "train_mask": Foreign([0, 1, 2], (2, 0))})

    class WithoutDevice(Foreign):
        """An array of a type that DLPack lacks, as those of pyarrow."""

        def __array__(self, dtype=None, copy=None):
            return self.array

        def __dlpack_device__(self):
            raise TypeError("data type not supported by DLPack")

    foreign = {name: WithoutDevice(given[name]) for name in ("x", "val_mask")}
    other = graphmill.Dataset.from_arrays(**{**given, **foreign})
    assert (own.x == other.x).all() and (own.valid == other.valid).all()


def test_a_rule_draws_the_split_of_arrays():
    given = {name: value for name, value in arrays().items() if name not in ("train_mask", "val_mask")}
    of = lambda rule, **more: graphmill.Dataset.from_arrays(**{**given, **more}, split=rule)  # noqa: E731
    sizes = lambda data: (len(data.train), len(data.valid), len(data.test))  # noqa: E731
    drawn = of("random:60,20,20")
    assert sizes(drawn) == (12, 4, 4) == sizes(of("random:0.6,0.2,0.2"))
    assert sorted([*drawn.train, *drawn.valid, *drawn.test]) == list(range(20))
    assert (of("random:60,20,20").train == drawn.train).all() and (of("random:60,20,20", split_seed=1).train != drawn.train).any()
    # of the nodes with a class, or a value
    known = of("random:50,50,0", y=np.where(np.arange(20) < 8, given["y"], -1))
    assert sizes(known) == (4, 4, 0) and max(known.train) < 8
    assert sizes(of("random:50,25,25", y=None, values=np.where(np.arange(20) < 8, 0.5, np.nan))) == (4, 2, 2)
    assert sizes(of("planetoid:2,3", y=np.arange(20) % 2)) == (4, 6, 10)
    for rule, more, message in [
        ("random:60,20,20", {"val_mask": [1]}, "val_mask is the split already; leave out one of them"),
        ("random:60,20,20", {"y": None}, "give y or values, or masks"),
        ("random:60,50,20", {}, "must sum to at most 1 .or 100 as percentages"),
        ("given", {}, "comes from no source with splits; use planetoid"),
        ("half", {}, "unknown rule"),
    ]:
        with pytest.raises(ValueError, match=message):
            of(rule, **more)


def test_arrays_are_views_that_outlive_the_dataset():
    dataset = graphmill.Dataset.from_arrays(**arrays())
    indices, x = dataset.indices, dataset.x
    assert np.shares_memory(indices, dataset.indices) and not indices.flags.writeable
    expected = indices.copy(), x.copy()
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 1
    del dataset
    graphmill.Dataset.demo()
    assert (indices == expected[0]).all() and (x == expected[1]).all()


def test_a_directory_of_format_2_opens_as_the_same_dataset(tmp_path):
    dataset = graphmill.Dataset.from_arrays(**arrays(test_mask=[9, 7]), name="mine")
    dataset.save(tmp_path / "old")
    dataset.save(tmp_path / "new", format=2)
    assert not (tmp_path / "new/indptr.npy").exists()
    assert (np.load(tmp_path / "new/edges/node__edge__node/indices.npy") == dataset.indices).all()
    # the second time by the record of verified files
    for _ in range(2):
        old, new = graphmill.Dataset(tmp_path / "old"), graphmill.Dataset(tmp_path / "new")
        for name in ("indptr", "indices", "x", "y", "train", "valid", "test"):
            assert (getattr(old, name) == getattr(new, name)).all()
        assert repr(old) == repr(new)
    assert (tmp_path / "new/verified.json").exists()
    with pytest.raises(ValueError, match="format 3: expected 1 or 2"):
        dataset.save(tmp_path / "other", format=3)


def test_types_of_features_labels_and_weights():
    given = arrays()
    half = graphmill.Dataset.from_arrays(**{**given, "x": given["x"].astype(np.float16)})
    assert half.x.dtype == np.float16
    batch = next(iter(graphmill.NeighborLoader(half, [2], output="numpy", seed=0, batch_size=4)))
    assert batch.x.dtype == np.float16 and (batch.x == half.x[batch.n_id]).all()
    several = graphmill.Dataset.from_arrays(**{**given, "y": np.eye(20, 4, dtype=int)})
    assert several.is_multilabel and several.num_classes == 4 and several.y.dtype == np.uint8
    batch = next(iter(graphmill.NeighborLoader(several, [2], output="numpy", seed=0)))
    assert batch.y.dtype == np.float32 and batch.y.shape == (len(batch.n_id), 4)
    weighted = graphmill.Dataset.from_arrays(**given, edge_weight=np.arange(60))
    assert (weighted.edge_weight == np.arange(60)[np.lexsort(given["edge_index"])]).all()
    loader = graphmill.NeighborLoader(weighted, [2], weight_attr="edge_weight", output="numpy", seed=0)
    batch = next(iter(loader))
    assert (batch.edge_weight == weighted.edge_weight[batch.e_id]).all()
    both = graphmill.Dataset.from_arrays(edge_index=[[0, 1, 1, 2], [1, 0, 2, 2]], num_nodes=3, undirected=True)
    assert both.edge_index.tolist() == [[1, 0, 2, 1], [0, 1, 1, 2]]


def test_datasets_are_saved_opened_and_pickled(tmp_path):
    dataset = graphmill.Dataset.from_arrays(**arrays(), metric="f1-micro")
    dataset.save(tmp_path / "it")
    opened = graphmill.Dataset(tmp_path / "it", verify=True)
    assert (opened.x == dataset.x).all() and (opened.edge_index == dataset.edge_index).all()
    assert opened.metric == "f1-micro" and str(opened.path) == str(tmp_path / "it")
    with pytest.raises(ValueError, match="it"):
        dataset.save(tmp_path / "it")
    dataset.save(tmp_path / "it", replace=True)
    for one in (dataset, opened):
        other = pickle.loads(pickle.dumps(one))
        assert (other.edge_index == one.edge_index).all() and (other.y == one.y).all()
        assert other.train.tolist() == one.train.tolist() and other.metric == "f1-micro"
    (tmp_path / "it" / "labels.npy").write_bytes(b"garbage")
    with pytest.raises(ValueError, match="labels.npy"):
        graphmill.Dataset(tmp_path / "it")


def test_generated_datasets_depend_only_on_their_options(tmp_path):
    one = graphmill.generate("sbm", nodes=300, classes=3, dim=4, seed=5)
    two = graphmill.generate("sbm", tmp_path / "it", nodes=300, classes=3, dim=4, seed=5, progress=False)
    assert (one.num_nodes, one.num_features, one.num_classes) == (300, 4, 3)
    assert (one.edge_index == two.edge_index).all() and (one.x == two.x).all() and two.path is not None
    assert graphmill.generate("kronecker", scale=6, dim=0).num_nodes == 64
    for bad, message in [
        ({"generator": "nothing"}, "unknown generator 'nothing'"),
        ({"colour": 1}, "colour"),
        ({"nodes": -1}, "invalid value"),
        ({"out": tmp_path / "it"}, "it"),
    ]:
        with pytest.raises(ValueError, match=message):
            graphmill.generate(**bad)


def test_parquet_tables_are_imported(tmp_path):
    # a seed of the fuzz targets: options, then the files
    seed = Path(__file__).parents[3] / "fuzz/seeds/import_parquet/made-plain"
    data = seed.read_bytes()
    (tmp_path / "edges.parquet").write_bytes(data[data.index(b"PAR1") : data.rindex(b"PAR1") + 4])
    dataset = graphmill.import_dataset("parquet", tmp_path / "edges.parquet", tmp_path / "out")
    assert dataset.num_edges > 0
    (tmp_path / "no.parquet").write_text("0 1\n")
    with pytest.raises(ValueError, match="no.parquet"):
        graphmill.import_dataset("parquet", tmp_path / "no.parquet", tmp_path / "other")


def test_edge_lists_are_imported_and_reported(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 0\n3 1\n")
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32).reshape(4, 2))
    options = {"features": tmp_path / "x.npy", "undirected": True, "name": "small"}
    dataset = graphmill.import_dataset("edges", tmp_path / "edges.txt", tmp_path / "out", **options)
    assert (dataset.name, dataset.num_nodes, dataset.num_edges) == ("small", 4, 8)
    assert dataset.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    (tmp_path / "twice.txt").write_text("0 1\n0 1\n1 1\n")
    report = graphmill.import_dataset("edges", tmp_path / "twice.txt", tmp_path / "twice").import_report
    assert (report["source_edges"], report["duplicate_edges_merged"], report["self_loops_kept"]) == (3, 1, 1)
    assert (report["missing_labels"], report["ignored_columns"]) == (2, [])
    assert graphmill.Dataset(tmp_path / "twice").import_report is None
    for bad, error, message in [
        ({"colour": 1}, TypeError, "no option 'colour'"),
        ({"undirected": 1}, TypeError, "undirected: expected True or False"),
        ({"num_nodes": "many"}, ValueError, "num_nodes 'many'"),
        ({"split": "somehow"}, ValueError, "split 'somehow'"),
    ]:
        with pytest.raises(error, match=message):
            graphmill.import_dataset("edges", tmp_path / "edges.txt", tmp_path / "other", **bad)
    with pytest.raises(ValueError, match="unknown format 'nothing'"):
        graphmill.import_dataset("nothing", tmp_path / "edges.txt", tmp_path / "other")


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "lil_matrix", "csr_matrix", "dok_array"])
def test_scipy_entries_are_edges_from_row_to_column(kind):
    sparse = __import__("scipy.sparse").sparse
    dense = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]], np.float32)  # 0 -> 1, 0 -> 2, 2 -> 0
    dataset = graphmill.Dataset.from_arrays(getattr(sparse, kind)(dense))
    assert {tuple(edge) for edge in dataset.edge_index.T} == {(0, 1), (0, 2), (2, 0)}
    assert dataset.num_nodes == 3 and dataset.edge_weight is None
    weighted = graphmill.Dataset.from_arrays(getattr(sparse, kind)(dense * [[3], [1], [0.5]]))
    edges = zip(*weighted.edge_index, weighted.edge_weight)
    assert {(int(u), int(v)): float(w) for u, v, w in edges} == {(0, 1): 3.0, (0, 2): 3.0, (2, 0): 0.5}


def test_loaders_refuse_scipy_matrices_with_a_remedy():
    sparse = __import__("scipy.sparse").sparse
    data = {"edge_index": sparse.csr_array(np.eye(4)), "num_nodes": 4, "x": np.eye(4, dtype=np.float32)}
    for make in (lambda: graphmill.NeighborLoader(data, num_neighbors=[2]), lambda: graphmill.ClusterData(data, 2)):
        with pytest.raises(TypeError, match=r"Dataset\.from_arrays\(matrix, x=\.\.\.\)"):
            make()
    loader = graphmill.NeighborLoader(graphmill.Dataset.from_arrays(data["edge_index"], x=data["x"]), num_neighbors=[2])
    assert len(next(iter(loader)).n_id) > 0


def test_scipy_duplicates_are_summed_and_zeros_dropped():
    sparse = __import__("scipy.sparse").sparse
    entries = ([1.0, 2.0, 0.0, 1.0], ([0, 0, 1, 2], [1, 1, 2, 0]))
    dataset = graphmill.Dataset.from_arrays(sparse.coo_array(entries, shape=(4, 4)))
    edges = zip(*dataset.edge_index, dataset.edge_weight)
    assert {(int(u), int(v)): float(w) for u, v, w in edges} == {(0, 1): 3.0, (2, 0): 1.0}
    assert dataset.num_nodes == 4
    with pytest.raises(ValueError, match=r"square.*\(2, 3\)"):
        graphmill.Dataset.from_arrays(sparse.csr_array((2, 3)))
    with pytest.raises(ValueError, match="values of a sparse edge_index are the weights"):
        graphmill.Dataset.from_arrays(sparse.csr_array((2, 2)), edge_weight=[])
    with pytest.raises(TypeError, match="x: expected a dense array"):
        graphmill.Dataset.from_arrays(sparse.csr_array((2, 2)), x=sparse.csr_array((2, 2)))


def test_csr_and_csc_layouts_give_the_same_edges():
    sparse = __import__("scipy.sparse").sparse
    matrix = sparse.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]]))
    edges = {(0, 1), (0, 2), (2, 0)}
    rows = graphmill.Dataset.from_arrays(indptr=matrix.indptr, indices=matrix.indices, layout="csr")
    columns = matrix.tocsc()
    columns = graphmill.Dataset.from_arrays(indptr=columns.indptr, indices=columns.indices, layout="csc")
    for dataset in (rows, columns):
        assert {tuple(edge) for edge in dataset.edge_index.T} == edges
    with pytest.raises(ValueError, match="layout None"):
        graphmill.Dataset.from_arrays(indptr=matrix.indptr, indices=matrix.indices)


@pytest.mark.parametrize("width", [None, 1, 3])
def test_datasets_of_values_train_and_come_back(tmp_path, width):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    values = x[:, 0] * 2 if width is None else np.repeat(x[:, :1], width, axis=1) * np.arange(1, width + 1)
    values[7] = np.nan
    parts = {"train_mask": np.arange(100, 200), "val_mask": np.arange(50, 100), "test_mask": np.arange(10, 50)}
    made = graphmill.Dataset.from_arrays(random_edges(200, 800), x=x, values=values, metric="rmse", **parts)
    expected = values[:, 0] if width == 1 else values
    assert made.y.dtype == np.float32 and np.array_equal(made.y, expected.astype(np.float32), equal_nan=True)
    made.save(tmp_path / "it")
    for other in (pickle.loads(pickle.dumps(made)), graphmill.Dataset(tmp_path / "it")):
        assert np.array_equal(other.y, made.y, equal_nan=True) and other.metric == "rmse"
    assert f"{width or 1} values per node" in made._repr_html_()
    run = graphmill.train(made, model="sage", fanout=[3, 2], epochs=3, hidden=8, lr=0.05, batch_size=50, out=tmp_path / "run")
    assert run.test.metric == "rmse" and run.history[-1].loss < run.history[0].loss
    assert graphmill.predict(run, [1, 2], dataset=made).reshape(2, -1).shape == (2, width or 1)


def test_wrong_values_are_refused():
    def make(**arrays):
        return graphmill.Dataset.from_arrays(random_edges(4, 3), num_nodes=4, **arrays)

    with pytest.raises(ValueError, match="either classes or values"):
        make(values=[0.5] * 4, y=[0] * 4)
    with pytest.raises(TypeError, match="values: expected a number"):
        make(values=["a"] * 4)
    with pytest.raises(ValueError, match="3 values for 4 nodes x 1 targets"):
        make(values=[0.5] * 3)
    with pytest.raises(ValueError, match="value 0 of node 1 is infinite"):
        make(values=[0.5, np.inf, 1, 2])
    with pytest.raises(ValueError, match="node 2"):
        make(values=[0.5, 1, np.nan, 2], train_mask=[2])
    with pytest.raises(TypeError, match="y: expected integers.*values="):
        make(y=[0.5] * 4)
