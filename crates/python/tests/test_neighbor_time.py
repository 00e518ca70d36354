"""Neighbourhoods with times hold the edges that exist at the time of their seed, by a plain search."""

import pickle

import numpy as np
import pytest

import graphmill
from conftest import bytes_of, random_edges

NODES, EDGES = 40, 300


def make(of):
    rng = np.random.default_rng(5)
    times = rng.integers(0, 20, NODES if of == "node_time" else EDGES)
    return graphmill.Data(edge_index=random_edges(NODES, EDGES), x=np.arange(NODES), **{of: times})


def existing(data, of, v, latest):
    """Edges into ``v`` that exist at a time, in the order of their times."""
    src, dst = data.edge_index
    time = data.node_time[src] if of == "node_time" else data.edge_time
    into = [e for e in np.flatnonzero(dst == v) if time[e] <= latest]
    return sorted(into, key=lambda e: (time[e], e))


def expected_tree(data, of, seed, latest, fanout):
    """Edges of a seed's tree that takes the last edges of each node, hop by hop."""
    edges, seen, hop = [], {seed}, [seed]
    for k in fanout:
        found = []
        for v in hop:
            last = existing(data, of, v, latest)
            last = last if k == -1 else last[max(len(last) - k, 0) :]
            edges += last
            for u in data.edge_index[0][last]:
                if u not in seen:
                    seen.add(u)
                    found.append(u)
        hop = found
    return sorted(edges), seen


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
@pytest.mark.parametrize("strategy", ["last", "uniform"])
@pytest.mark.parametrize("fanout", [[-1, -1], [3, 2]])
def test_trees_hold_the_edges_up_to_the_time_of_their_seed(of, strategy, fanout):
    data, inputs = make(of), np.array([3, 7, 3, 11, 20, 39, 0])
    times = np.array([19, 5, 8, -1, 12, 0, 10])
    loader = graphmill.NeighborLoader(
        data, fanout, inputs, input_time=times, time_attr=of, temporal_strategy=strategy, batch_size=3, output="numpy", seed=1
    )
    seen = 0
    for batch in loader:
        assert np.array_equal(batch.seed_time, times[batch.input_id])
        assert np.array_equal(batch.n_id[: batch.batch_size], inputs[batch.input_id])
        assert np.array_equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert np.array_equal(batch[of], data[of][batch.n_id if of == "node_time" else batch.e_id])
        source, target = batch.batch[batch.edge_index]
        assert np.array_equal(source, target)
        for tree, position in enumerate(batch.input_id):
            own = batch.e_id[target == tree]
            if strategy == "last" or fanout == [-1, -1]:
                edges, nodes = expected_tree(data, of, inputs[position], times[position], fanout)
                assert sorted(own) == edges
                assert sorted(batch.n_id[batch.batch == tree]) == sorted(nodes)
            for v in np.flatnonzero(batch.batch == tree):
                drawn = batch.e_id[batch.edge_index[1] == v]
                allowed = existing(data, of, batch.n_id[v], times[position])
                assert set(drawn) <= set(allowed) and len(set(drawn)) == len(drawn)
                if v == tree:
                    assert len(drawn) == (len(allowed) if fanout[0] == -1 else min(fanout[0], len(allowed)))
            seen += 1
    assert seen == len(inputs)


def test_seeds_have_the_times_of_their_nodes_by_default():
    data = make("node_time")
    options = {"time_attr": "node_time", "temporal_strategy": "last", "batch_size": 8, "output": "numpy", "seed": 1}
    own = list(graphmill.NeighborLoader(data, [2, 2], **options))
    given = list(graphmill.NeighborLoader(data, [2, 2], input_time=data.node_time, **options))
    assert len(own) == len(given) == 5
    for a, b in zip(own, given):
        assert "seed_time" not in a and np.array_equal(a.e_id, b.e_id) and np.array_equal(a.n_id, b.n_id)


def test_draws_with_times_do_not_depend_on_threads_and_pickle():
    data = make("edge_time")
    inputs = {"input_time": np.arange(NODES) % 20, "time_attr": "edge_time", "batch_size": 8, "output": "numpy", "seed": 1}
    one = graphmill.NeighborLoader(data, [2, 2], num_threads=1, **inputs)
    batches = [bytes_of(batch) for batch in one]
    assert batches == [bytes_of(batch) for batch in graphmill.NeighborLoader(data, [2, 2], num_threads=3, **inputs)]
    again = pickle.loads(pickle.dumps(one))
    again.set_epoch(0)
    assert batches == [bytes_of(batch) for batch in again]
    replaced = next(iter(graphmill.NeighborLoader(data, [4], [3], replace=True, **{**inputs, "input_time": [19]})))
    assert replaced.edge_index.shape == (2, 4) and set(replaced.e_id) <= set(existing(data, "edge_time", 3, 19))


def test_neighbourhoods_with_times_are_those_of_pytorch_geometric():
    torch = pytest.importorskip("torch")
    pytest.importorskip("pyg_lib")
    loaders, pyg = pytest.importorskip("torch_geometric.loader"), pytest.importorskip("torch_geometric.data")
    plain = make("node_time")
    data = pyg.Data(edge_index=torch.as_tensor(plain.edge_index), x=torch.as_tensor(plain.x), node_time=torch.as_tensor(plain.node_time))
    options = {"time_attr": "node_time", "temporal_strategy": "last", "batch_size": 8, "input_time": data.node_time}
    for ours, theirs in zip(graphmill.NeighborLoader(data, [-1, -1], **options), loaders.NeighborLoader(data, [-1, -1], **options)):
        assert sorted(ours.keys()) == sorted(theirs.keys())
        assert sorted(zip(ours.batch.tolist(), ours.n_id.tolist())) == sorted(zip(theirs.batch.tolist(), theirs.n_id.tolist()))
        assert sorted(ours.e_id.tolist()) == sorted(theirs.e_id.tolist())
        assert torch.equal(ours.seed_time, theirs.seed_time)


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
@pytest.mark.parametrize("replace", [False, True])
def test_weights_draw_among_the_edges_up_to_the_time_of_their_seed(of, replace):
    timed = make(of)
    weight = np.arange(EDGES) % 3 * 1.0
    data = graphmill.Data(edge_index=timed.edge_index, x=timed.x, weight=weight, **{of: timed[of]})
    inputs = np.arange(NODES)
    options = {"input_time": np.full(NODES, 11), "time_attr": of, "batch_size": 10, "output": "numpy", "seed": 1}
    loader = graphmill.NeighborLoader(data, [2], inputs, weight_attr="weight", replace=replace, **options)
    drawn = 0
    for batch in loader:
        assert (weight[batch.e_id] > 0).all()
        for row, v in enumerate(batch.n_id[: batch.batch_size]):
            own = batch.e_id[batch.edge_index[1] == row]
            can = [e for e in existing(data, of, v, 11) if weight[e] > 0]
            assert set(own) <= set(can)
            assert len(own) == (2 if replace and can else min(2, len(can)))
            drawn += len(own)
    assert drawn > NODES


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
@pytest.mark.parametrize("strategy", ["last", "uniform", "recency"])
def test_windows_leave_out_older_edges(of, strategy):
    data, inputs = make(of), np.arange(NODES)
    time = data.node_time[data.edge_index[0]] if of == "node_time" else data.edge_time
    latest = np.arange(NODES) % 20
    options = {"input_time": latest, "time_attr": of, "temporal_strategy": strategy, "time_window": 6, "batch_size": 9, "output": "numpy", "seed": 1}
    for fanout in (-1, 2):
        for batch in graphmill.NeighborLoader(data, [fanout], inputs, **options):
            for tree, position in enumerate(batch.input_id):
                drawn = batch.e_id[batch.batch[batch.edge_index[1]] == tree]
                allowed = [e for e in existing(data, of, position, latest[position]) if time[e] > latest[position] - 6]
                assert len(set(drawn)) == len(drawn) and set(drawn) <= set(allowed)
                assert len(drawn) == (len(allowed) if fanout == -1 else min(fanout, len(allowed)))
                if strategy == "last":
                    assert sorted(drawn) == sorted(allowed[len(allowed) - len(drawn) :])
    weighted = graphmill.Data(edge_index=data.edge_index, x=data.x, weight=np.arange(EDGES) % 3 * 1.0, **{of: data[of]})
    if strategy == "uniform":
        for batch in graphmill.NeighborLoader(weighted, [2], inputs, weight_attr="weight", **options):
            seen = latest[batch.input_id][batch.batch[batch.edge_index[1]]]
            assert (batch.e_id % 3 > 0).all() and (time[batch.e_id] <= seen).all() and (time[batch.e_id] > seen - 6).all()


def test_recency_draws_recent_edges_more_often():
    count, edges = 400, 60
    data = graphmill.Data(edge_index=np.stack([np.arange(1, edges + 1), np.zeros(edges, int)]), num_nodes=edges + 1, edge_time=np.arange(edges))
    options = {"input_time": np.full(count, 49), "time_attr": "edge_time", "batch_size": count, "output": "numpy", "seed": 1}

    def drawn(**rule):
        batch = next(iter(graphmill.NeighborLoader(data, [3], np.zeros(count, int), **options, **rule)))
        assert len(batch.e_id) == 3 * count and batch.e_id.max() <= 49
        return batch.e_id

    recent = drawn(temporal_strategy="recency", time_half_life=5)
    # the last ten edges have three quarters of the weight
    assert 0.6 < (recent > 39).mean() < 0.8 and (drawn() > 39).mean() < 0.3
    assert (drawn(temporal_strategy="recency") > 39).mean() > 0.95
    assert drawn(temporal_strategy="recency", time_half_life=5, time_window=8).min() == 42
    again = graphmill.NeighborLoader(data, [3], np.zeros(count, int), temporal_strategy="recency", time_half_life=5, num_threads=1, **options)
    assert np.array_equal(next(iter(pickle.loads(pickle.dumps(again)))).e_id, recent)


def test_windows_and_recency_apply_to_several_types():
    rng = np.random.default_rng(3)
    edges, time = np.stack([rng.integers(0, 30, 500), rng.integers(0, 20, 500)]), rng.integers(0, 50, 500)
    kind = ("user", "rates", "item")
    data = graphmill.TypedDataset.from_arrays({"user": {"num_nodes": 30}, "item": {"num_nodes": 20}}, {kind: {"edge_index": edges, "time": time}})
    stored, latest = data.edges(kind), np.arange(20) + 20
    options = {"time_attr": "time", "time_window": 10, "temporal_strategy": "recency", "time_half_life": 2, "output": "numpy", "seed": 1, "batch_size": 20}
    batch = next(iter(graphmill.NeighborLoader(data, [-1], "item", input_time=latest, **options)))[kind]
    seen = lambda item: [e for e in np.flatnonzero(stored.edge_index[1] == item) if latest[item] - 10 < stored.time[e] <= latest[item]]
    assert sorted(batch.e_id) == sorted(e for item in range(20) for e in seen(item))
    links = graphmill.LinkNeighborLoader(data, [-1], (kind, stored.edge_index), edge_label_time=stored.time, **options)
    for batch in links:
        tree = batch["item"].batch[batch[kind].edge_index[1]]
        of_link = batch[kind].input_id[tree]
        age = stored.time[of_link] - stored.time[batch[kind].e_id]
        assert (age >= 0).all() and (age < 10).all()


def test_unusable_rules_of_draws_are_refused():
    data, timed = make("edge_time"), {"time_attr": "edge_time", "input_time": np.zeros(NODES, int)}
    for options, error, why in [
        ({"time_window": 5}, ValueError, "time_window: without time_attr"),
        ({"temporal_strategy": "recency"}, ValueError, "pass time_attr too"),
        ({"time_window": 0, **timed}, ValueError, "time_window 0: use a positive integer"),
        ({"time_window": 2.5, **timed}, ValueError, "time_window 2.5: use a positive integer"),
        ({"time_half_life": 2, **timed}, ValueError, "time_half_life: it weights the draws of temporal_strategy 'recency'"),
        ({"time_half_life": -1, "temporal_strategy": "recency", **timed}, ValueError, "time_half_life -1: use a positive number"),
        ({"replace": True, "temporal_strategy": "recency", **timed}, NotImplementedError, "draws without replacement"),
        ({"weight_attr": "edge_time", "temporal_strategy": "recency", **timed}, NotImplementedError, "not by weight_attr"),
    ]:
        with pytest.raises(error, match=why):
            graphmill.NeighborLoader(data, [2], output="numpy", **options)
        if "input_time" not in options:
            with pytest.raises(error, match=why):
                graphmill.LinkNeighborLoader(data, [2], output="numpy", **options)
