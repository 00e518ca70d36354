"""Batches of several types and of links, as PyTorch Geometric's own loaders make them."""

import pickle

import numpy as np
import pytest
from conftest import HAS_PYG

if not HAS_PYG:
    pytest.skip("torch and torch_geometric are not installed", allow_module_level=True)

import torch
import torch_geometric.data
import torch_geometric.nn as gnn
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, NegativeSampling, NumNeighbors
from torch_geometric.utils import trim_to_layer

import graphmill
from graphmill import HGTLoader, LinkNeighborLoader, NeighborLoader

PP, PA, AP = ("paper", "cites", "paper"), ("paper", "to", "author"), ("author", "to", "paper")


def random_edges(src, dst, count, seed):
    rng = np.random.default_rng(seed)
    # distinct, so that an edge is identified by its ends
    flat = rng.choice(src * dst, count, replace=False)
    return torch.from_numpy(np.stack([flat // dst, flat % dst]))


@pytest.fixture
def data():
    data = torch_geometric.data.HeteroData()
    data["paper"].x = torch.arange(100)
    data["paper"].y = torch.arange(100) % 4
    data["author"].x = torch.arange(100, 300).to(torch.bfloat16).float()
    data["author"].half = torch.arange(200).to(torch.bfloat16)
    for kind, (src, dst, count, first) in {PP: (100, 100, 500, 0), PA: (100, 200, 1000, 500), AP: (200, 100, 1000, 1500)}.items():
        data[kind].edge_index = random_edges(src, dst, count, first)
        data[kind].edge_attr = torch.arange(first, first + count)
    data.year = 2024
    return data


def assert_batch(batch, data):
    assert isinstance(batch, torch_geometric.data.HeteroData) and batch.node_types == data.node_types
    assert set(batch.edge_types) == set(data.edge_types) and batch.year == 2024
    for kind in data.node_types:
        n_id = batch[kind].n_id
        assert batch[kind].num_nodes == len(n_id)
        assert torch.equal(batch[kind].x, data[kind].x[n_id])
    assert batch["author"].half.dtype == torch.bfloat16
    for kind in data.edge_types:
        src, dst = batch[kind].edge_index
        drawn = torch.stack([batch[kind[0]].n_id[src], batch[kind[2]].n_id[dst]])
        assert torch.equal(drawn, data[kind].edge_index[:, batch[kind].e_id])
        assert torch.equal(batch[kind].edge_attr, data[kind].edge_attr[batch[kind].e_id])


def test_hetero_neighbour_loader(data):
    for input_nodes in ("paper", ("paper", None), ("paper", torch.arange(100)), ("paper", torch.ones(100, dtype=torch.bool))):
        loader = NeighborLoader(data, num_neighbors=[10] * 2, input_nodes=input_nodes, batch_size=20, directed=True)
        assert str(loader) == "NeighborLoader()" and len(loader) == 5
        for i, batch in enumerate(loader):
            assert_batch(batch, data)
            assert batch["paper"].batch_size == 20
            assert batch["paper"].n_id[:20].tolist() == list(range(20 * i, 20 * i + 20))
            assert torch.equal(batch["paper"].input_id, batch["paper"].n_id[:20])
            for kind in data.edge_types:
                degrees = torch.bincount(batch[kind].edge_index[1])
                assert degrees.max() <= 10
    by_type = {PP: [5, 5], PA: [0, 0], AP: [3, 0]}
    for numbers in (by_type, NumNeighbors(by_type), NumNeighbors({PP: [5, 5], AP: [3, 0]}, default=[0, 0])):
        batch = next(iter(NeighborLoader(data, numbers, "paper", batch_size=20, seed=1)))
        assert batch[PA].num_sampled_edges == [0, 0] and batch[AP].num_sampled_edges[1] == 0
        assert batch["paper"].num_sampled_nodes[0] == 20


def test_full_neighbourhoods_give_the_outputs_of_the_whole_graph(data):
    torch.manual_seed(0)
    data["paper"].x, data["author"].x = torch.randn(100, 8), torch.randn(200, 8)
    conv = lambda: gnn.HeteroConv({kind: gnn.SAGEConv((8, 8), 8) for kind in data.edge_types})
    first, second = conv(), conv()

    def model(x, edge_index):
        return second(first(x, edge_index), edge_index)["paper"]

    seeds = torch.tensor([3, 60, 7])
    expected = model(data.x_dict, data.edge_index_dict)[seeds]
    batch = next(iter(NeighborLoader(data, [-1, -1], ("paper", seeds), batch_size=3)))
    torch.testing.assert_close(model(batch.x_dict, batch.edge_index_dict)[:3], expected)

    # the edges of the outer hop serve the first layer only
    x, edge_index = batch.x_dict, batch.edge_index_dict
    for layer, one in enumerate((first, second)):
        x, edge_index, _ = trim_to_layer(layer, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edge_index)
        x = one(x, edge_index)
    torch.testing.assert_close(x["paper"][:3], expected)


def test_disjoint_hetero_batches(data):
    for batch in NeighborLoader(data, [4, 4], ("paper", torch.arange(30)), batch_size=10, disjoint=True):
        assert batch["paper"].batch[:10].tolist() == list(range(10))
        for kind in data.edge_types:
            src, dst = batch[kind].edge_index
            assert torch.equal(batch[kind[0]].batch[src], batch[kind[2]].batch[dst])


def test_hgt_loader(data):
    loader = HGTLoader(data, num_samples=[5] * 4, batch_size=20, input_nodes=("paper", torch.arange(100)))
    for batch in loader:
        assert_batch(batch, data)
        assert batch["paper"].batch_size == 20 and len(batch["paper"].n_id) <= 40 and len(batch["author"].n_id) <= 20
        assert "num_sampled_nodes" not in batch["paper"]


def one_type(nodes=100, edges=500):
    return torch_geometric.data.Data(
        edge_index=random_edges(nodes, nodes, edges, 3), x=torch.arange(nodes), edge_attr=torch.arange(edges), num_nodes=nodes
    )


@pytest.mark.parametrize("neg_sampling", [None, "binary", NegativeSampling("binary", amount=2)])
def test_homogeneous_link_loader(neg_sampling):
    data = one_type()
    edges = data.edge_index[:, :100]
    loader = LinkNeighborLoader(data, [-1] * 2, edge_label_index=edges, neg_sampling=neg_sampling, batch_size=20)
    assert str(loader) == "LinkNeighborLoader()" and len(loader) == 5
    known = set(map(tuple, data.edge_index.t().tolist()))
    for batch in loader:
        assert isinstance(batch, torch_geometric.data.Data)
        assert torch.equal(batch.x, batch.n_id) and torch.equal(batch.edge_attr, batch.e_id)
        pairs = batch.n_id[batch.edge_label_index]
        assert torch.equal(pairs[:, :20], edges[:, batch.input_id])
        # the seeds are the first nodes, ascending
        ends = pairs.unique()
        assert torch.equal(batch.n_id[: len(ends)], ends) and batch.num_sampled_nodes[0] == len(ends)
        if neg_sampling is None:
            assert "edge_label" not in batch
        else:
            negatives = 20 if neg_sampling == "binary" else 40
            assert batch.edge_label.dtype == torch.float32
            assert batch.edge_label.tolist() == [1] * 20 + [0] * negatives
            assert not set(map(tuple, pairs[:, 20:].t().tolist())) & known


def test_link_loaders_of_a_split_and_of_several_types(data):
    whole = one_type()
    whole.edge_label, whole.edge_label_index = torch.zeros(500), whole.edge_index
    batch = next(iter(LinkNeighborLoader(whole, [2], neg_sampling="triplet", batch_size=8)))
    assert "edge_label" not in batch and "edge_label_index" not in batch and batch.src_index.shape == (8,)
    edges = data[PA].edge_index
    loader = LinkNeighborLoader(data, [3, 3], (PA, edges), edge_label=torch.arange(1000) % 5, batch_size=50)
    for batch in loader:
        assert_batch(batch, data)
        src, dst = batch[PA].edge_label_index
        assert torch.equal(torch.stack([batch["paper"].n_id[src], batch["author"].n_id[dst]]), edges[:, batch[PA].input_id])
        assert torch.equal(batch[PA].edge_label, batch[PA].input_id % 5)
    for batch in LinkNeighborLoader(data, [3], PA, neg_sampling=NegativeSampling("triplet", amount=2), batch_size=100):
        assert batch["author"].dst_neg_index.shape == (100, 2) and batch["paper"].src_index.shape == (100,)
    with pytest.raises(ValueError, match="dst_weight: 3 weights for"):
        LinkNeighborLoader(data, [3], PA, neg_sampling=NegativeSampling("binary", dst_weight=torch.ones(3)))


def test_loaders_are_data_loaders(data):
    for loader in (NeighborLoader(data, [2], "paper"), NeighborLoader(one_type(), [2]), LinkNeighborLoader(one_type(), [2])):
        assert isinstance(loader, torch.utils.data.DataLoader) and isinstance(loader, graphmill.Loader)
        assert isinstance(loader, type(loader)) and not isinstance(loader, HGTLoader)
        again = pickle.loads(pickle.dumps(loader))
        assert type(again) is type(loader) and str(next(iter(again))) == str(next(iter(loader)))


def test_the_sampler_serves_the_loaders_of_torch_geometric(data):
    from graphmill.sampler import NeighborSampler

    sampler = NeighborSampler(data, {PP: [5, 5], PA: [3, 3], AP: [3, 3]}, seed=1)
    assert isinstance(sampler, BaseSampler) and sampler.edge_permutation is None
    for batch in NodeLoader(data, sampler, ("paper", torch.arange(40)), batch_size=10):
        assert_batch(batch, data)
        assert batch["paper"].batch_size == 10 and batch["paper"].num_sampled_nodes[0] == 10
    loader = LinkLoader(data, sampler, (PA, data[PA].edge_index[:, :60]), neg_sampling="binary", batch_size=20)
    known = set(map(tuple, data[PA].edge_index.t().tolist()))
    for batch in loader:
        assert_batch(batch, data)
        src, dst = batch[PA].edge_label_index
        pairs = list(zip(batch["paper"].n_id[src].tolist(), batch["author"].n_id[dst].tolist()))
        assert set(pairs[:20]) <= known and not set(pairs[20:]) & known
    one = one_type()
    sampler = NeighborSampler(one, [3, 3], seed=1)
    for batch in NodeLoader(one, sampler, torch.arange(30), batch_size=10):
        assert torch.equal(batch.x, batch.n_id) and torch.equal(batch.edge_attr, batch.e_id)
    triplets = LinkLoader(one, sampler, one.edge_index[:, :60], neg_sampling="triplet", batch_size=20)
    assert all(batch.dst_neg_index.shape == (20,) for batch in triplets)


def test_datasets_are_stores_of_features_and_graphs(data):
    from torch_geometric.data import FeatureStore, GraphStore, TensorAttr

    from graphmill.sampler import NeighborSampler

    typed = graphmill.Dataset.from_pyg(torch_geometric.data.HeteroData({
        "paper": {"x": torch.randn(100, 3), "y": torch.arange(100) % 4},
        "author": {"x": torch.randn(200, 2)},
        **{kind: {"edge_index": data[kind].edge_index} for kind in data.edge_types},
    }))  # fmt: skip
    one = graphmill.Dataset.from_arrays(one_type().edge_index, x=np.random.rand(100, 4).astype(np.float32), y=np.arange(100) % 3)
    for dataset in (typed, one):
        assert isinstance(dataset, FeatureStore) and isinstance(dataset, GraphStore)
        with pytest.raises(NotImplementedError, match="read-only"):
            dataset.put_tensor(torch.zeros(1), group_name=None, attr_name="x", index=None)
    index = torch.tensor([5, 3])
    rows = typed.get_tensor(TensorAttr("paper", "x", index))
    assert torch.equal(rows, torch.from_numpy(np.array(typed.nodes("paper").x))[index])
    assert typed.get_tensor_size(group_name="author", attr_name="x", index=None) == (200, 2)
    with pytest.raises(KeyError):
        typed.get_tensor("paper", "z", None)
    row, colptr, perm = typed.csc()
    assert set(row) == set(map(tuple, typed.edge_types)) and len(colptr[PA]) == 201
    assert len(row[PA]) == 1000 and colptr[PA][-1] == 1000
    assert one.get_tensor(None, "x", index).shape == (2, 4)

    loader = NodeLoader((typed, typed), NeighborSampler(typed, [4, 4], seed=0), ("paper", torch.arange(20)), batch_size=10)
    for batch in loader:
        n_id = batch["paper"].n_id
        assert torch.equal(batch["paper"].x, typed.get_tensor("paper", "x", n_id)) and torch.equal(batch["paper"].y, n_id % 4)
    for batch in NodeLoader((one, one), NeighborSampler(one, [4], seed=0), torch.arange(20), batch_size=10):
        assert torch.equal(batch.x, one.get_tensor(None, "x", batch.n_id))
