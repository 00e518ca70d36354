"""Graphs of NetworkX, SciPy, PyTorch Geometric and DGL as datasets; absent packages are replaced by stand-ins."""

import importlib.util

import numpy as np
import pytest

import graphmill
from conftest import HAS_PYG

networkx = pytest.importorskip("networkx")


def pairs(dataset):
    """Edges by the keys of their ends."""
    keys = dataset.keys if dataset.keys is not None else np.arange(dataset.num_nodes)
    return {(keys[u].item(), keys[v].item()) for u, v in dataset.edge_index.T}


def test_networkx_attributes_become_columns():
    graph = networkx.karate_club_graph()
    dataset = graphmill.Dataset.from_networkx(graph, label="club")
    assert (dataset.num_nodes, dataset.num_edges) == (34, 2 * graph.number_of_edges())
    assert dataset.keys.tolist() == list(range(34)) and dataset.class_names == ["Mr. Hi", "Officer"]
    assert pairs(dataset) == {pair for u, v in graph.edges for pair in ((u, v), (v, u))}
    weights = {(int(u), int(v)): w for u, v, w in zip(*dataset.edge_index, dataset.edge_weight)}
    assert weights[0, 1] == weights[1, 0] == graph[0][1]["weight"]
    assert graphmill.Dataset.from_networkx(graph, weight=None).edge_weight is None
    networkx.set_node_attributes(graph, dict(graph.degree), "degree")
    dataset = graphmill.Dataset.from_networkx(graph, label="club")
    assert dataset.feature_names == ["degree"]
    run = graphmill.train(dataset, epochs=2, hidden=4, fanout=[5, 5], progress=False)
    assert len(run.epochs) == 2


def test_networkx_directed_multigraphs_and_names():
    graph = networkx.MultiDiGraph(name="flights")
    graph.add_node(("a", 1), size=2.5, tags=[1.0, 0.0])
    graph.add_node("b", size=None, tags=[0.0, 1.0])
    graph.add_node("c", tags=[0.5, 0.5], kind="hub")
    graph.add_edges_from([(("a", 1), "b"), (("a", 1), "b", {"weight": 3}), ("b", "c")])
    dataset = graphmill.Dataset.from_networkx(graph, ignore=["kind"])
    assert dataset.name == "flights" and pairs(dataset) == {("('a', 1)", "b"), ("b", "c")}
    assert dataset.edge_weight.tolist() == [4.0, 1.0] and dataset.feature_names == ["size", "tags[0]", "tags[1]"]
    assert graphmill.Dataset.from_networkx(graph, keep_duplicates=True, ignore="kind").num_edges == 3
    graph.add_node("('a', 1)")
    with pytest.raises(ValueError, match=r"are both written as .*relabel_nodes"):
        graphmill.Dataset.from_networkx(graph)
    with pytest.raises(TypeError, match="src: the graph determines it"):
        graphmill.Dataset.from_networkx(networkx.path_graph(3), src="a")
    with pytest.raises(TypeError, match="expected a graph of NetworkX, not dict"):
        graphmill.Dataset.from_networkx({})


def test_scipy_rows_are_sources():
    sparse = __import__("scipy.sparse").sparse
    matrix = sparse.csr_array(np.array([[0, 2.0, 1], [0, 0, 0], [1, 0, 0]]))
    dataset = graphmill.Dataset.from_scipy(matrix, x=np.eye(3), y=[0, 1, 1], train_mask=[0])
    assert pairs(dataset) == {(0, 1), (0, 2), (2, 0)} and dataset.name == "scipy" and dataset.num_classes == 2
    assert dataset.edge_weight.tolist() == [1.0, 2.0, 1.0]
    with pytest.raises(TypeError, match="expected a sparse matrix of SciPy, not ndarray"):
        graphmill.Dataset.from_scipy(np.eye(3))


def test_networkx_round_trips():
    graph = networkx.karate_club_graph()
    data = graphmill.Dataset.from_networkx(graph, label="club")
    again = data.to_networkx(node_attrs=["y", "train_mask"], to_undirected=True)
    assert type(again) is networkx.Graph and networkx.utils.graphs_equal(networkx.Graph(again.edges), networkx.Graph(graph.edges))
    assert all(again[u][v]["weight"] == weight for u, v, weight in graph.edges(data="weight"))
    assert [again.nodes[v]["y"] for v in again] == data.y.tolist() and again.nodes[0]["train_mask"] is data.train_mask.tolist()[0]
    back = graphmill.Dataset.from_networkx(again, label="y", ignore=["train_mask"])
    assert (back.indices == data.indices).all() and (back.edge_weight == data.edge_weight).all() and (back.y == data.y).all()

    both = networkx.DiGraph([("a", "b"), ("b", "a"), ("b", "c")])
    data = graphmill.Dataset.from_networkx(both)
    directed = data.to_networkx()
    assert type(directed) is networkx.DiGraph and set(directed.edges) == set(both.edges) and list(directed) == ["a", "b", "c"]
    assert set(map(frozenset, data.to_networkx(to_undirected=True).edges)) == {frozenset("ab"), frozenset("bc")}
    lone = graphmill.Dataset.from_arrays([[0, 0], [1, 1]], num_nodes=4, edge_weight=[1, 2])
    several = lone.to_networkx()
    assert type(several) is networkx.MultiDiGraph and several.number_of_edges(0, 1) == 2 and len(several) == 4
    with pytest.raises(ValueError, match="the edges between 0 and 1 have several weights"):
        lone.to_networkx(to_undirected=True)
    with pytest.raises(ValueError, match="no array 'time'; choose from x, y, train_mask"):
        lone.to_networkx(node_attrs=["time"])
    with pytest.raises(ValueError, match="has no 'x'; leave it out"):
        lone.to_networkx(node_attrs="x")


def test_scipy_round_trips(monkeypatch):
    sparse = __import__("scipy.sparse").sparse
    dense = np.array([[0, 2.0, 1], [0, 0, 0], [1, 0, 0]])
    data = graphmill.Dataset.from_scipy(sparse.csr_array(dense))
    matrix = data.to_scipy()
    assert isinstance(matrix, sparse.csc_array) and (matrix.toarray() == dense).all()
    matrix.data[:] = 7  # a copy
    assert sorted(data.edge_weight.tolist()) == [1, 1, 2]
    unweighted = graphmill.Dataset.from_arrays([[0, 0], [1, 1]], num_nodes=2).to_scipy()
    assert unweighted.indices.dtype == np.int32 and unweighted.nnz == 2 and unweighted.toarray().tolist() == [[0, 2], [0, 0]]
    monkeypatch.setattr(graphmill.convert, "find", lambda name: None)
    with pytest.raises(ImportError, match=r"to_scipy\(\) needs scipy; install it with pip install scipy"):
        data.to_scipy()


def test_datasets_become_dgl_graphs(monkeypatch):
    """With stand-ins for DGL and torch."""

    class Made(Graph):
        def __init__(self, ends, num_nodes):
            self.ndata, self.edata = {}, {}
            self.stores = lambda: {"_N": {"num_nodes": num_nodes, **self.ndata}, ("_N", "_E", "_N"): {"edge_index": np.stack(ends), **self.edata}}

    modules = {"torch": type("torch", (), {"from_numpy": staticmethod(lambda array: array)}), "dgl": type("dgl", (), {"graph": Made})}
    monkeypatch.setattr(graphmill.convert, "find", modules.get)
    given = dict(x=np.eye(3, dtype=np.float32), y=[0, 1, 0], train_mask=[0], test_mask=[2])
    data = graphmill.Dataset.from_arrays([[0, 1, 2], [1, 2, 0]], edge_weight=[1, 2, 3], **given)
    made = data.to_dgl()
    assert sorted(made.ndata) == ["feat", "label", "test_mask", "train_mask", "val_mask"] and sorted(made.edata) == ["weight"]
    again = graphmill.Dataset.from_dgl(Graph(made.stores()), weight="weight")
    for name in ("indptr", "indices", "edge_weight", "x", "y", "train", "valid", "test"):
        assert (getattr(again, name) == getattr(data, name)).all(), name
    bare = graphmill.Dataset.from_arrays([[0], [1]], num_nodes=2).to_dgl()
    assert "feat" not in bare.ndata and bare.edata == {}
    monkeypatch.setattr(graphmill.convert, "find", lambda name: None)
    with pytest.raises(ImportError, match=r"to_dgl\(\) needs torch"):
        data.to_dgl()


class Store(dict):
    """Stand-in for a store of PyTorch Geometric."""

    @property
    def num_nodes(self):
        return self.get("num_nodes", len(self["x"]) if "x" in self else None)


class Hetero(dict):
    """Stand-in for a ``HeteroData``."""

    node_types = property(lambda self: [key for key in self if isinstance(key, str)])
    edge_types = property(lambda self: [key for key in self if isinstance(key, tuple)])

    def to_dict(self):
        return dict(self)


def library():
    """Two node types with features, labels, times and masks."""
    x = np.arange(8, dtype=np.float64).reshape(4, 2)
    return {
        "paper": {"x": x, "y": np.array([0, 1, 1, -1]), "train_mask": np.array([True, True, False, False]), "time": np.arange(4)},
        "author": {"num_nodes": 3},
        ("author", "writes", "paper"): {"edge_index": np.array([[0, 2, 1], [3, 0, 0]]), "edge_attr": np.array([[1.0], [2.0], [3.0]])},
        ("paper", "cites", "paper"): {"edge_index": np.array([[0, 1], [1, 2]]), "edge_weight": np.array([0.5, 2.0])},
    }


def check_library(dataset):
    assert isinstance(dataset, graphmill.TypedDataset)
    assert dataset.node_types == ["paper", "author"] and dataset.num_nodes == 7 and dataset.num_edges == 5
    papers = dataset.nodes("paper")
    assert papers.x.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]] and papers.x.dtype == np.float32 and papers.time.tolist() == [0, 1, 2, 3]
    writes, cites = dataset.edges(("author", "writes", "paper")), dataset.edges(["paper", "cites", "paper"])
    # by destination, and in the given order among those of one
    assert writes.edge_index.tolist() == [[2, 1, 0], [0, 0, 3]] and writes.x.tolist() == [[2], [3], [1]]
    assert cites.weight.tolist() == [0.5, 2.0]
    task = dataset.task("paper")
    assert (task.kind, task.num_classes, task.y.tolist(), task.train.tolist()) == ("node-classification", 2, [0, 1, 1, -1], [0, 1])


def test_hetero_data_becomes_a_typed_dataset(tmp_path):
    data = Hetero({kind: Store(store) for kind, store in library().items()})
    dataset = graphmill.Dataset.from_pyg(data, name="library")
    check_library(dataset)
    dataset.save(tmp_path / "library")
    check_library(graphmill.TypedDataset(tmp_path / "library", verify=True))
    data["paper"]["title"] = ["a", "b", "c", "d"]
    with pytest.warns(UserWarning, match="not read: title of 'paper'"):
        graphmill.Dataset.from_pyg(data)
    del data["paper"]["title"], data["author"]["num_nodes"]
    with pytest.raises(ValueError, match=r"set data\['author'\].num_nodes"):
        graphmill.Dataset.from_pyg(data)
    with pytest.raises(TypeError, match="HeteroData, or an object with edge_index, not dict"):
        graphmill.Dataset.from_pyg({})


@pytest.mark.skipif(not HAS_PYG, reason="torch and torch_geometric are not installed")
def test_hetero_data_of_pytorch_geometric():
    import torch
    from torch_geometric.data import HeteroData

    data = HeteroData()
    for kind, store in library().items():
        for name, value in store.items():
            data[kind][name] = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    dataset = graphmill.Dataset.from_pyg(data)
    check_library(dataset)
    check_library(graphmill.Dataset.from_pyg(dataset.to_pyg()))


class Graph:
    """Stand-in for a ``DGLGraph`` of the given stores."""

    def __init__(self, stores):
        self.ntypes = [kind for kind in stores if isinstance(kind, str)]
        self.canonical_etypes = [kind for kind in stores if isinstance(kind, tuple)]
        self._counts = {kind: stores[kind].pop("num_nodes") for kind in self.ntypes}
        self._edges = {kind: stores[kind].pop("edge_index") for kind in self.canonical_etypes}
        frames = {kind: type("Frame", (), {"data": frame}) for kind, frame in stores.items()}
        self.nodes = frames

        class Edges(dict):
            def __call__(view, etype=None, order=None):
                return tuple(self._edges[etype])

        self.edges = Edges(frames)

    def num_nodes(self, kind):
        return self._counts[kind]


def test_dgl_graphs_of_one_type():
    stores = {
        "_N": {"num_nodes": 3, "feat": np.eye(3, dtype=np.float32), "label": np.array([0, 1, 0]), "train_mask": np.array([1, 0, 0], bool), "_ID": np.arange(3)},
        ("_N", "_E", "_N"): {"edge_index": np.array([[0, 1], [1, 2]]), "w": np.array([2.0, 3.0])},
    }  # fmt: skip
    graph = Graph(stores)
    dataset = graphmill.Dataset.from_dgl(graph, weight="w", metric="f1-micro")
    assert isinstance(dataset, graphmill.Dataset) and pairs(dataset) == {(0, 1), (1, 2)} and dataset.metric == "f1-micro"
    assert dataset.edge_weight.tolist() == [2, 3] and dataset.y.tolist() == [0, 1, 0] and dataset.train.tolist() == [0]
    with pytest.warns(UserWarning, match="not read: w of"):
        graphmill.Dataset.from_dgl(graph)
    timed = graphmill.Dataset.from_dgl(graph, edge_time="w")
    assert isinstance(timed, graphmill.TypedDataset) and timed.edges(("_N", "_E", "_N")).time.tolist() == [2, 3]
    with pytest.raises(TypeError, match="expected a dgl.DGLGraph, not int"):
        graphmill.Dataset.from_dgl(3)


def test_dgl_heterographs():
    stores = library()
    paper, writes, cites = stores["paper"], stores["author", "writes", "paper"], stores["paper", "cites", "paper"]
    paper.update(num_nodes=4, feat=paper.pop("x"), label=paper.pop("y"))
    time = paper.pop("time")
    writes["h"], cites["w"] = writes.pop("edge_attr"), cites.pop("edge_weight")
    dataset = graphmill.Dataset.from_dgl(Graph(stores), edge_features="h", weight="w")
    assert dataset.nodes("paper").time is None
    arrays = {kind: {"num_nodes": dataset.nodes(kind).num_nodes, "x": dataset.nodes(kind).x} for kind in dataset.node_types}
    arrays["paper"]["time"] = time
    edges = {kind: {name: getattr(dataset.edges(kind), name) for name in ("edge_index", "x", "weight")} for kind in dataset.edge_types}
    task = dataset.task("paper")
    tasks = {"paper": {"on": "paper", "y": task.y, "train": task.train}}
    check_library(graphmill.TypedDataset.from_arrays(arrays, edges, tasks))


def test_typed_datasets_become_dgl_heterographs(monkeypatch):
    """With stand-ins for DGL and torch."""

    def heterograph(ends, num_nodes_dict):
        stores = {kind: {"num_nodes": count} for kind, count in num_nodes_dict.items()}
        return Graph({**stores, **{kind: {"edge_index": np.stack(pair)} for kind, pair in ends.items()}})

    modules = {"torch": type("torch", (), {"from_numpy": staticmethod(lambda array: array)}), "dgl": type("dgl", (), {"heterograph": heterograph})}
    monkeypatch.setattr(graphmill.convert, "find", modules.get)
    given = Hetero({kind: Store(store) for kind, store in library().items()})
    made = graphmill.Dataset.from_pyg(given).to_dgl()
    assert made.nodes["paper"].data["time"].tolist() == [0, 1, 2, 3] and sorted(made.nodes["author"].data) == []
    assert made.edges["author", "writes", "paper"].data["feat"].tolist() == [[2], [3], [1]]
    with pytest.warns(UserWarning, match="not read: time of paper"):
        again = graphmill.Dataset.from_dgl(made, edge_features="feat", weight="weight")
    assert (again.nodes("paper").x == given["paper"]["x"]).all() and again.num_edges == 5
    assert again.edges(("paper", "cites", "paper")).weight.tolist() == [0.5, 2.0]
    assert again.task("paper").train.tolist() == [0, 1] and again.task("paper").y.tolist() == [0, 1, 1, -1]


@pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="dgl is not installed")
def test_dgl_itself():
    import dgl
    import torch

    graph = dgl.heterograph({("a", "to", "b"): (torch.tensor([0, 1]), torch.tensor([1, 1]))})
    graph.nodes["a"].data["feat"] = torch.eye(2)
    one = graphmill.Dataset.from_arrays([[0, 1], [1, 0]], x=np.eye(2), y=[0, 1], edge_weight=[1, 2])
    again = graphmill.Dataset.from_dgl(one.to_dgl(), weight="weight")
    assert (again.x == one.x).all() and (again.y == one.y).all() and (again.edge_weight == one.edge_weight).all()
    dataset = graphmill.Dataset.from_dgl(graph)
    assert dataset.edges(("a", "to", "b")).edge_index.tolist() == [[0, 1], [1, 1]]
    again = graphmill.Dataset.from_dgl(dataset.to_dgl())
    assert again.edges(("a", "to", "b")).edge_index.tolist() == [[0, 1], [1, 1]] and (again.nodes("a").x == dataset.nodes("a").x).all()


def test_typed_arrays_are_checked():
    nodes, edges = {"a": {"num_nodes": 2}}, {("a", "to", "a"): {"edge_index": [[0, 1], [1, 0]]}}
    make = graphmill.TypedDataset.from_arrays
    assert make(nodes, edges).to_dataset().num_edges == 2
    values = make(nodes, edges, {"t": {"on": "a", "y": np.array([0.5, np.nan])}})
    assert values.task("t").kind == "node-regression"
    keyed = make({"a": {"keys": ["x", "y"], "x": np.eye(2)}}, edges)
    assert keyed.nodes("a").keys.tolist() == ["x", "y"]
    for error, message, arguments in [
        (ValueError, "give num_nodes, x or keys", ({"a": {}}, edges)),
        (ValueError, r"destinations of \(a, to, a\)\[0\] is 5", (nodes, {("a", "to", "a"): {"edge_index": [[0], [5]]}})),
        (TypeError, "there is no column 'colour' here", ({"a": {"num_nodes": 2, "colour": 1}}, edges)),
        (ValueError, "the node type 'b' is unknown", (nodes, edges, {"t": {"on": "b", "y": [0, 1]}})),
        (ValueError, "'b' is not a node type", (nodes, {("a", "to", "b"): {"edge_index": np.zeros((2, 0), int)}})),
        (ValueError, "same key", ({"a": {"keys": ["x", "x"]}}, edges)),
    ]:
        with pytest.raises(error, match=message):
            make(*arguments)


def test_importers_of_typed_graphs(tmp_path):
    (tmp_path / "src").mkdir()
    for part, lines in {"train": ["a r b", "b s c"], "valid": ["c r a"], "test": ["a s c"]}.items():
        (tmp_path / "src" / f"{part}.txt").write_text("\n".join(line.replace(" ", "\t") for line in lines) + "\n")
    known = graphmill.import_dataset("triples", tmp_path / "src", tmp_path / "out", add_reverses=True, progress=False)
    bounded = graphmill.import_dataset("triples", tmp_path / "src", tmp_path / "bounded", memory=1 << 30, progress=False)
    assert bounded.num_edges < known.num_edges
    assert isinstance(known, graphmill.TypedDataset) and known.tasks and known.import_report is not None
    assert ("entity", "r", "entity") in known.edge_types or len(known.edge_types) >= 2
    for error, message, options in [
        (TypeError, "no option 'normalize' for the format 'triples'", {"normalize": "rows"}),
        (ValueError, "the option 'no-literals' has no effect", {"no_literals": True}),
    ]:
        with pytest.raises(error, match=message):
            graphmill.import_dataset("triples", tmp_path / "src", tmp_path / "other", **options)
    with pytest.raises(ValueError, match="unknown format 'nothing'.*planetoid.*hgb"):
        graphmill.import_dataset("nothing", tmp_path, tmp_path / "other")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_files_of_scipy_equal_matrices_of_scipy(kind, tmp_path):
    sparse = __import__("scipy.sparse").sparse
    entries = ([1.5, 1.0, 0.5, 0.0, 1.0], ([0, 0, 0, 2, 2], [1, 2, 1, 1, 0]))
    for name, data in [("weighted", entries[0]), ("ones", [1.0] * 5), ("bool", [True] * 5)]:
        matrix = sparse.coo_matrix((np.array(data), entries[1]), shape=(3, 3)).asformat(kind)
        sparse.save_npz(tmp_path / f"{name}.npz", matrix)
        found = graphmill.import_dataset("npz", tmp_path / f"{name}.npz", tmp_path / name, progress=False)
        expected = graphmill.Dataset.from_scipy(matrix)
        assert pairs(found) == pairs(expected)
        assert (found.edge_weight is None) == (expected.edge_weight is None), name
        if expected.edge_weight is not None:
            np.testing.assert_array_equal(found.edge_weight, expected.edge_weight)
