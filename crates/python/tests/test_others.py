"""GraphSAINT, ShaDow and Cluster loaders, and blocks for DGL."""

import pickle

import numpy as np
import pytest

import graphmill
from conftest import bytes_of, make_data
from graphmill import dgl

OPTIONS = {"output": "numpy", "seed": 0}


def undirected(nodes=100, edges=300):
    data = make_data(nodes, edges)
    data.edge_index = np.concatenate([data.edge_index, data.edge_index[::-1]], axis=1)
    data.edge_attr = np.arange(2 * edges)
    return data


def edges_among(data, nodes):
    inside = np.zeros(len(data.x), bool)
    inside[nodes] = True
    return np.flatnonzero(inside[data.edge_index].all(0))


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda d, **o: graphmill.GraphSAINTNodeSampler(d, 20, **o), 20),
        (lambda d, **o: graphmill.GraphSAINTEdgeSampler(d, 20, **o), 40),
        (lambda d, **o: graphmill.GraphSAINTRandomWalkSampler(d, 10, 3, **o), 40),
    ],
)
def test_saint_subgraphs_are_induced(make, most):
    data = undirected()
    loader = make(data, num_steps=5, sample_coverage=20, **OPTIONS)
    assert len(loader) == 5
    batches = list(loader)
    assert len(batches) == 5
    for batch in batches:
        assert 0 < len(batch.n_id) <= most and (np.diff(batch.n_id) > 0).all()
        assert sorted(batch.e_id) == edges_among(data, batch.n_id).tolist()
        assert (batch.n_id[batch.edge_index] == data.edge_index[:, batch.e_id]).all()
        assert (batch.x == data.x[batch.n_id]).all() and (batch.edge_attr == data.edge_attr[batch.e_id]).all()
        assert batch.node_norm.shape == batch.n_id.shape and batch.edge_norm.shape == batch.e_id.shape
    assert [bytes_of(b) for b in make(data, num_steps=5, sample_coverage=20, num_threads=3, **OPTIONS)] == [
        bytes_of(b) for b in batches
    ]
    other = pickle.loads(pickle.dumps(make(data, num_steps=5, sample_coverage=20, **OPTIONS)))
    assert [bytes_of(b) for b in other] == [bytes_of(b) for b in batches]


def test_saint_norms_make_sums_unbiased(tmp_path):
    """Sums over a subgraph's nodes, weighted by `node_norm`, estimate the mean over the graph."""
    data = undirected()
    options = dict(num_steps=400, sample_coverage=2000, save_dir=tmp_path, **OPTIONS)
    loader = graphmill.GraphSAINTNodeSampler(data, 30, **options)
    sums = [(batch.node_norm * batch.x[:, 0]).sum() for batch in loader]
    assert abs(np.mean(sums) - data.x[:, 0].mean()) < 5 * np.std(sums) / 20
    # the norm of an edge: draws of its destination per draw of the edge
    batch = next(iter(loader))
    assert (batch.edge_norm >= 0.999).all()
    assert len(list(tmp_path.iterdir())) == 1
    again = next(iter(graphmill.GraphSAINTNodeSampler(data, 30, **options)))
    loader.set_epoch(0)
    assert bytes_of(again) == bytes_of(next(iter(loader)))


@pytest.mark.parametrize("replace", [False, True])
def test_shadow_networks_are_disjoint(replace):
    data = undirected()
    loader = graphmill.ShaDowKHopSampler(data, 2, 3, node_idx=[5, 6, 50], replace=replace, batch_size=2, **OPTIONS)
    assert len(loader) == 2
    first, second = list(loader)
    assert first.n_id[first.root_n_id].tolist() == [5, 6] and second.n_id[second.root_n_id].tolist() == [50]
    assert (np.diff(first.batch) >= 0).all() and first.ptr.tolist() == [0, (first.batch == 0).sum(), len(first.n_id)]
    assert (first.y == data.y[[5, 6]]).all() and (first.x == data.x[first.n_id]).all()
    assert (first.batch[first.edge_index[0]] == first.batch[first.edge_index[1]]).all()
    for tree in (0, 1):
        own = first.batch[first.edge_index[0]] == tree
        nodes = first.n_id[first.batch == tree]
        assert len(set(nodes.tolist())) == len(nodes)
        assert sorted(first.e_id[own]) == edges_among(data, nodes).tolist()
    assert [bytes_of(b) for b in pickle.loads(pickle.dumps(loader))][0].keys() == bytes_of(first).keys()


def test_clusters_hold_every_node_once():
    data = undirected()
    parts = graphmill.ClusterData(data, 10, output="numpy")
    assert len(parts) == 10 and sorted(parts.nodes) == list(range(100))
    assert sorted(np.concatenate([part.n_id for part in parts]).tolist()) == list(range(100))
    loader = graphmill.ClusterLoader(parts, batch_size=4, shuffle=True, seed=0)
    batches = list(loader)
    assert len(loader) == len(batches) == 3
    assert sorted(np.concatenate([batch.n_id for batch in batches]).tolist()) == list(range(100))
    for batch in batches:
        assert sorted(batch.e_id) == edges_among(data, batch.n_id).tolist()
        assert (batch.x == data.x[batch.n_id]).all()
    assert [b.n_id.tolist() for b in loader] != [b.n_id.tolist() for b in batches]
    own = graphmill.ClusterData(data, partition=np.arange(100) % 3, output="numpy")
    assert own[1].n_id.tolist() == list(range(1, 100, 3))
    for bad, message in [({"partition": [0, 1]}, "expected 100 integers"), ({"num_parts": 0}, "parts 0"), ({}, "either")]:
        with pytest.raises(ValueError, match=message):
            graphmill.ClusterData(data, **bad)


def dense(block):
    """A block as a matrix of the number of times that each source is drawn for each destination."""
    matrix = np.zeros((block.num_dst, block.num_src), int)
    sources, destinations = block.edges()
    np.add.at(matrix, (destinations, sources), 1)
    return matrix


@pytest.mark.parametrize("sampler", ["neighbor", "labor", "full"])
def test_blocks_contain_drawn_neighbours(sbm, sampler):
    # the farthest layer first, as in DGL
    how = dgl.NeighborSampler([2, 5], sampler=sampler)
    loader = dgl.DataLoader(sbm, None, how, batch_size=100, shuffle=True, output="numpy", seed=1, num_threads=2)
    assert len(loader) == 20
    for inputs, outputs, blocks in loader:
        assert (inputs[:100] == outputs).all() and len(blocks) == 2
        assert blocks[0].num_dst == blocks[1].num_src and blocks[1].num_dst_nodes() == 100
        assert (blocks[0].srcdata["_ID"] == inputs).all() and (blocks[1].dstdata["_ID"] == outputs).all()
        assert (blocks[0].srcdata["feat"] == sbm.x[inputs]).all()
        assert (blocks[1].dstdata["label"] == sbm.y[outputs]).all()
        for block, fanout in zip(blocks, [2, 5]):
            ids = block.srcdata["_ID"]
            drawn = dense(block).sum(1)
            degrees = np.diff(sbm.indptr.astype(int))[ids[: block.num_dst]]
            if sampler == "neighbor":
                assert (drawn == np.minimum(degrees, fanout)).all()
            elif sampler == "full":
                assert (drawn == degrees).all()
            for v in range(0, block.num_dst, 37):
                row = sbm.indices[sbm.indptr[ids[v]] : sbm.indptr[ids[v] + 1]]
                assert set(ids[block.indices[block.indptr[v] : block.indptr[v + 1]]]) <= set(row)


def test_minibatches_have_graphbolts_fields(sbm):
    how = dgl.MultiLayerFullNeighborSampler(1)
    batches = list(dgl.minibatches(sbm, sbm.valid, how, batch_size=300, output="numpy", seed=1))
    assert len(batches) == 4
    for batch in batches:
        assert (sbm.y[batch.seeds] == batch.labels).all() and (sbm.valid[batch.indexes] == batch.seeds).all()
        assert (batch.node_features["feat"] == sbm.x[batch.input_nodes]).all()
        assert batch.compacted_seeds.tolist() == list(range(len(batch.seeds)))
        assert batch.num_layers() == 1 and batch.sampled_subgraphs is batch.blocks
    other = pickle.loads(pickle.dumps(dgl.DataLoader(sbm, [1, 2], how, output="numpy", seed=1)))
    assert next(iter(other))[1].tolist() == [1]
    for bad, message in [
        ((sbm, [1, 1], how), "node 1 comes twice"),
        ((sbm, [9999], how), r"\[0\] is 9999"),
        ((sbm, None, dgl.NeighborSampler([1], sampler="saint-rw")), "subgraphs"),
        ((sbm, None, dgl.NeighborSampler([1], sampler="nothing")), "unknown sampler 'nothing'"),
    ]:
        with pytest.raises(ValueError, match=message):
            dgl.DataLoader(*bad)
    with pytest.raises(TypeError, match="no such option 'colour'"):
        dgl.DataLoader(sbm, None, dgl.NeighborSampler([1], colour=1))
