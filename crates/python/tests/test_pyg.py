"""The neighbour loader behaves like PyTorch Geometric's.

book/src/reference/pyg-tests.md maps the tests to PyTorch Geometric's own.
"""

import pickle

import numpy as np
import pytest

from conftest import HAS_PYG, random_edges

if not HAS_PYG:
    pytest.skip("torch and torch_geometric are not installed", allow_module_level=True)

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import NeighborLoader as Theirs
from torch_geometric.nn import GraphConv, SAGEConv
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import is_undirected, k_hop_subgraph, subgraph, to_undirected, trim_to_layer

import graphmill
from graphmill import NeighborLoader, dgl


def make(nodes=100, edges=500, dtype=torch.int64):
    return Data(
        x=torch.arange(nodes), edge_index=torch.from_numpy(random_edges(nodes, edges)).to(dtype), edge_attr=torch.arange(edges)
    )


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced", SubgraphType.induced])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("filter_per_worker", [None, True])
def test_basic(subgraph_type, dtype, filter_per_worker):
    data = make(dtype=dtype)
    loader = NeighborLoader(
        data, num_neighbors=[5] * 2, batch_size=20, subgraph_type=subgraph_type, filter_per_worker=filter_per_worker
    )
    assert (str(loader), len(loader)) == ("NeighborLoader()", 5)
    alone = loader([0])
    assert isinstance(alone, Data) and alone.n_id[:1].tolist() == [0]
    for i, batch in enumerate(loader):
        assert isinstance(batch, Data)
        assert batch.n_id.size() == (batch.num_nodes,) and batch.input_id.numel() == batch.batch_size == 20
        assert torch.equal(batch.x, batch.n_id) and batch.x.max() < 100
        assert 0 <= batch.edge_index.min() and batch.edge_index.max() < batch.num_nodes
        assert torch.equal(batch.x[:20], torch.arange(20 * i, 20 * i + 20))
        assert batch.e_id.size() == (batch.num_edges,)
        assert torch.equal(batch.edge_attr, batch.e_id)
        if subgraph_type == "directional":
            assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id].long())
        elif subgraph_type == "bidirectional":
            assert is_undirected(batch.edge_index)
        else:
            expected, _ = subgraph(batch.n_id, data.edge_index.long(), relabel_nodes=False)
            assert batch.num_edges == expected.size(1)


def graph_conv(in_channels, out_channels):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = GraphConv(in_channels, 16), GraphConv(16, out_channels)

        def forward(self, x, edge_index, edge_weight):
            return self.conv2(self.conv1(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

    return Net()


@pytest.mark.parametrize("subgraph_type", ["directional", "bidirectional", "induced"])
def test_full_neighbourhoods_give_the_outputs_of_the_whole_graph(subgraph_type):
    torch.manual_seed(1)
    edge_index, weight = to_undirected(torch.from_numpy(random_edges(300, 700)), torch.rand(700))
    data = Data(x=torch.randn(300, 12), edge_index=edge_index, edge_weight=weight)
    seeds = torch.arange(5, 8)
    loader = NeighborLoader(data, [-1, -1], seeds, batch_size=3, subgraph_type=subgraph_type)
    assert len(loader) == 1
    batch = next(iter(loader))
    net = graph_conv(12, 4)
    whole = net(data.x, data.edge_index, data.edge_weight)[seeds]
    assert torch.allclose(net(batch.x, batch.edge_index, batch.edge_weight)[:3], whole, atol=1e-5)
    nodes, _, _, mask = k_hop_subgraph(seeds, 2, data.edge_index, num_nodes=300)
    assert batch.n_id.sort()[0].tolist() == nodes.tolist()
    if subgraph_type == "induced":
        assert batch.num_edges == int(mask.sum())


def test_full_neighbourhoods_match_pytorch_geometric():
    """Nodes, edges, their order within a node, and all fields are equal."""
    pytest.importorskip("torch_sparse")
    data = make()
    data.y, data.name, data.level = torch.arange(100) % 3, "a graph", torch.tensor(4.0)
    options = dict(num_neighbors=[-1, -1], batch_size=7, input_nodes=torch.arange(40))
    for ours, theirs in zip(NeighborLoader(data, **options), Theirs(data, **options), strict=True):
        counts = {"num_sampled_nodes", "num_sampled_edges"}
        assert set(ours.keys()) - counts == set(theirs.keys()) - counts
        seeds = ours.batch_size
        assert ours.n_id[:seeds].tolist() == theirs.n_id[:seeds].tolist() and ours.n_id.sort()[0].equal(theirs.n_id.sort()[0])
        assert ours.e_id.sort()[0].equal(theirs.e_id.sort()[0])
        assert ours.n_id[ours.edge_index][:, ours.e_id.argsort()].equal(theirs.n_id[theirs.edge_index][:, theirs.e_id.argsort()])
        for name in ("x", "y", "edge_attr", "n_id", "e_id", "input_id", "edge_index"):
            assert ours[name].dtype == theirs[name].dtype, name
        assert ours.input_id.equal(theirs.input_id) and ours.batch_size == theirs.batch_size
        assert ours.name == theirs.name and ours.level == theirs.level


def test_counts_per_hop():
    edge_index = torch.tensor([[2, 3, 4, 5, 7, 7, 10, 11, 12, 13], [0, 1, 2, 3, 2, 3, 7, 7, 7, 7]])
    data = Data(edge_index=edge_index, num_nodes=14)
    batch = next(iter(NeighborLoader(data, [1, 2, 4], batch_size=2)))
    assert batch.num_sampled_nodes == [2, 2, 3, 4] and batch.num_sampled_edges == [2, 4, 4]
    assert batch.num_nodes == 11


def test_layers_can_be_trimmed():
    torch.manual_seed(2)
    data = Data(x=torch.randn(200, 8), edge_index=torch.from_numpy(random_edges(200, 900)))
    convs = [SAGEConv(8, 8), SAGEConv(8, 8), SAGEConv(8, 8)]
    batch = next(iter(NeighborLoader(data, [3, 3, 3], batch_size=10, seed=0)))
    whole = trimmed = batch.x
    edges = edge_index = batch.edge_index
    for layer, conv in enumerate(convs):
        trimmed, edge_index, _ = trim_to_layer(layer, batch.num_sampled_nodes, batch.num_sampled_edges, trimmed, edge_index)
        trimmed, whole = conv(trimmed, edge_index), conv(whole, edges)
    assert torch.allclose(trimmed[:10], whole[:10], atol=1e-5)


def test_weighted_draws():
    edge_index = torch.tensor([[1, 3, 0, 4], [2, 2, 1, 3]])
    data = Data(num_nodes=5, edge_index=edge_index, edge_weight=torch.tensor([0.0, 1.0, 0.0, 1.0]))
    batch = next(iter(NeighborLoader(data, [1, 1], torch.tensor([2]), weight_attr="edge_weight", batch_size=1)))
    assert batch.n_id.tolist() == [2, 3, 4] and batch.e_id.tolist() == [1, 3]


def test_disjoint_batches():
    data = make()
    for batch in NeighborLoader(data, [-1, -1], batch_size=4, disjoint=True, input_nodes=torch.arange(8)):
        assert batch.batch.size() == (batch.num_nodes,) and batch.batch[:4].tolist() == [0, 1, 2, 3]
        assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
        for tree in range(4):
            nodes = k_hop_subgraph(int(batch.n_id[tree]), 2, data.edge_index)[0]
            assert batch.n_id[batch.batch == tree].sort()[0].tolist() == nodes.tolist()


def test_numpy_arrays_in_data_are_read_in_place(tmp_path):
    """A memory-mapped feature table is not copied."""
    x = np.memmap(tmp_path / "x.npy", dtype=np.float32, mode="w+", shape=(100, 32))
    x[:] = np.random.default_rng(0).standard_normal((100, 32))
    data = make()
    data.x = np.memmap(tmp_path / "x.npy", dtype=np.float32, mode="r", shape=(100, 32))
    batch = next(iter(NeighborLoader(data, [5, 5], batch_size=20, num_workers=2)))
    assert isinstance(batch.x, torch.Tensor) and torch.equal(batch.x, torch.from_numpy(np.array(x))[batch.n_id])


def test_attributes_of_every_kind():
    data = make()
    data.half, data.brain = torch.randn(100, 3).half(), torch.randn(100, 3).bfloat16()
    data.deep, data.mask = torch.randn(100, 2, 2), torch.arange(100) % 2 == 0
    data.strided, data.learned = torch.randn(4, 100).t(), torch.randn(100, 2, requires_grad=True)
    data.complex_ = torch.randn(100, dtype=torch.cfloat)
    data.edge_brain = torch.randn(500, 2).bfloat16()
    data.note, data.vector, data.num_things = "text", torch.arange(3), 7
    batch = next(iter(NeighborLoader(data, [3, 2], batch_size=10)))
    for name in ("half", "brain", "deep", "mask", "strided", "complex_"):
        assert torch.equal(batch[name], data[name][batch.n_id]) and batch[name].dtype == data[name].dtype, name
    assert torch.equal(batch.learned, data.learned.detach()[batch.n_id])
    assert torch.equal(batch.edge_brain, data.edge_brain[batch.e_id])
    assert (batch.note, batch.vector.tolist(), batch.num_things) == ("text", [0, 1, 2], 7)
    # the graph itself is unchanged
    assert data.num_nodes == 100 and "n_id" not in data and "batch_size" not in data


def test_own_n_id_and_input_id():
    data = make()
    data.n_id = torch.arange(1000, 1100)
    batch = next(iter(NeighborLoader(data, [2], torch.tensor([3, 9]), batch_size=2)))
    assert batch.n_id.tolist() == (batch.x + 1000).tolist() and batch.input_id.tolist() == [0, 1]
    mask = torch.zeros(100, dtype=torch.bool)
    mask[[3, 9]] = True
    assert next(iter(NeighborLoader(data, [2], mask, batch_size=2))).input_id.tolist() == [3, 9]


def test_torchs_seed_decides():
    data = make()

    def draw(seed):
        torch.manual_seed(seed)
        return [batch.n_id.tolist() for batch in NeighborLoader(data, [2, 2], batch_size=10, shuffle=True)]

    assert draw(1) == draw(1) != draw(2)
    generator = torch.Generator().manual_seed(9)
    again = torch.Generator().manual_seed(9)
    assert NeighborLoader(data, [2], generator=generator).seed == NeighborLoader(data, [2], generator=again).seed


def test_tensors_are_views_of_rusts_memory():
    batch = next(iter(NeighborLoader(make(), [5], batch_size=50)))
    x = batch.x
    address, expected = x.data_ptr(), x.clone()
    assert address % 64 == 0
    del batch
    list(NeighborLoader(make(), [5], batch_size=50))
    assert torch.equal(x, expected)
    x += 1
    assert x.sum() == expected.sum() + len(x)


def test_pickling_and_lightning_arguments():
    loader = NeighborLoader(
        make(), [3], batch_size=9, shuffle=True, seed=3, num_workers=2, persistent_workers=True, pin_memory=False, prefetch_factor=3
    )
    other = pickle.loads(pickle.dumps(loader))
    for ours, theirs in zip(loader, other, strict=True):
        assert torch.equal(ours.n_id, theirs.n_id) and isinstance(theirs, Data)
    sampler = torch.utils.data.SequentialSampler(range(100))
    assert [b.batch_size for b in NeighborLoader(make(), [3], batch_size=60, sampler=sampler)] == [60, 40]


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (HeteroData(), TypeError, "expected a node type and its nodes"),
        (Data(x=torch.zeros(3, 2)), ValueError, "'edge_index' is missing"),
        (Data(edge_index=torch.tensor([[0], [5]]), x=torch.zeros(3, 2)), ValueError, r"edge_index\[1\]\[0\] is 5"),
        (Data(edge_index=torch.tensor([[-1], [0]]), num_nodes=3), ValueError, "is -1"),
        (Data(edge_index=torch.zeros(2, 3), num_nodes=3), TypeError, "float32"),
    ],
)
def test_invalid_data_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        NeighborLoader(data, [2])


@pytest.mark.parametrize("sampler", ["node", "edge", "walk", "shadow", "cluster"])
def test_other_loaders_yield_data(sbm, sampler):
    data = sbm.to_pyg()
    loader = {
        "node": lambda: graphmill.GraphSAINTNodeSampler(data, 200, num_steps=2, sample_coverage=2),
        "edge": lambda: graphmill.GraphSAINTEdgeSampler(data, 200, num_steps=2),
        "walk": lambda: graphmill.GraphSAINTRandomWalkSampler(data, 100, 2, num_steps=2, sample_coverage=2),
        "shadow": lambda: graphmill.ShaDowKHopSampler(data, 2, 5, node_idx=data.train_mask, batch_size=1000),
        "cluster": lambda: graphmill.ClusterLoader(graphmill.ClusterData(data, 20), batch_size=10, shuffle=True),
    }[sampler]()
    batches = list(loader)
    assert len(batches) == len(loader) == 2
    for batch in batches:
        assert isinstance(batch, Data) and torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        if sampler in ("node", "walk"):
            assert batch.node_norm.dtype == torch.float32 and batch.edge_norm.shape == batch.e_id.shape
        if sampler == "shadow":
            assert torch.equal(batch.y, data.y[batch.n_id[batch.root_n_id]])
            assert torch.equal(batch.batch.bincount().cumsum(0), batch.ptr[1:])


def test_blocks_are_tensors(sbm):
    inputs, outputs, blocks = next(iter(dgl.DataLoader(sbm, None, dgl.NeighborSampler([2, 5]), batch_size=50)))
    assert inputs.dtype == outputs.dtype == torch.int64 and blocks[0].srcdata["feat"].dtype == torch.float32
    sources, destinations = blocks[0].edges()
    assert len(sources) == len(destinations) == blocks[0].num_edges()


def test_datasets_convert_to_pyg_and_back(sbm):
    data = sbm.to_pyg()
    assert data.validate() and data.num_edges == sbm.num_edges
    again = graphmill.Dataset.from_pyg(data)
    assert (again.edge_index == sbm.edge_index).all() and (again.x == sbm.x).all() and again.train.tolist() == sbm.train.tolist()
    batch = next(iter(NeighborLoader(sbm, [3], sbm.train_mask, batch_size=10, seed=0)))
    other = next(iter(NeighborLoader(data, [3], data.train_mask, batch_size=10, seed=0)))
    assert torch.equal(batch.n_id, other.n_id) and torch.equal(batch.x, other.x) and torch.equal(batch.y, other.y)
