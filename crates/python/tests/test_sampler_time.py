"""The sampler for PyTorch Geometric's loaders keeps to the times of its seeds, by a plain search."""

import numpy as np
import pytest
from conftest import HAS_PYG, random_edges

if not HAS_PYG:
    pytest.skip("torch and torch_geometric are not installed", allow_module_level=True)

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkLoader, NodeLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, NodeSamplerInput

import graphmill
from graphmill.sampler import NeighborSampler

LATEST = 20
CLICKS, BY = ("event", "clicks", "item"), ("item", "rev_clicks", "event")
FOLLOWS = ("user", "follows", "user")
MADE = ("user", "makes", "event")
KINDS = {CLICKS: (60, 40), BY: (40, 60), FOLLOWS: (30, 30), MADE: (30, 60)}


def edges_between(sources, destinations, count, seed):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([rng.integers(0, sources, count), rng.integers(0, destinations, count)]))


def homogeneous(of):
    rng = np.random.default_rng(5)
    data = Data(edge_index=torch.from_numpy(random_edges(40, 300)), x=torch.arange(40), num_nodes=40)
    data[of] = torch.from_numpy(rng.integers(0, LATEST, 40 if of == "node_time" else 300))
    return data


def database(of):
    """Tables as RelBench makes a graph of them: events and items have times, users have none."""
    data, rng = HeteroData(), np.random.default_rng(2)
    for name, count in {"user": 30, "event": 60, "item": 40}.items():
        data[name].num_nodes = count
        data[name].x = torch.arange(count)
        if name != "user" and of != "edges":
            data[name].time = torch.from_numpy(rng.integers(0, LATEST, count))
    for seed, (kind, (sources, destinations)) in enumerate(KINDS.items()):
        data[kind].edge_index = edges_between(sources, destinations, 200, seed)
    data[BY].edge_index = data[CLICKS].edge_index.flip(0)
    if of != "nodes":
        for kind in KINDS:
            data[kind].time = torch.from_numpy(rng.integers(0, LATEST, 200))
    return data


def assert_no_later(data, batch, latest):
    """Checks every drawn edge and its source against the time of its tree; returns their number."""
    count = 0
    for kind in KINDS:
        store, source, target = batch[kind], batch[kind[0]], batch[kind[2]]
        edges = data[kind].edge_index[:, store.e_id]
        assert torch.equal(torch.stack([source.n_id[store.edge_index[0]], target.n_id[store.edge_index[1]]]), edges)
        tree = target.batch[store.edge_index[1]]
        assert torch.equal(tree, source.batch[store.edge_index[0]])
        if "time" in data[kind[0]]:
            assert (data[kind[0]].time[edges[0]] <= latest[tree]).all()
        if "time" in data[kind]:
            assert (data[kind].time[store.e_id] <= latest[tree]).all()
        count += len(tree)
    return count


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
@pytest.mark.parametrize("strategy", ["last", "uniform"])
def test_seeds_of_one_type_see_no_later_edge(of, strategy):
    data, seeds = homogeneous(of), torch.tensor([3, 7, 3, 11, 20, 39, 0])
    given = torch.tensor([19, 5, 8, -1, 12, 0, 10])
    own = data.node_time[data.edge_index[0]] if of == "node_time" else data.edge_time
    sampler = NeighborSampler(data, [3, 2], temporal_strategy=strategy, time_attr=of, seed=1)
    assert sampler.disjoint
    for batch in NodeLoader(data, sampler, seeds, input_time=given, batch_size=3):
        assert torch.equal(batch.seed_time, given[batch.input_id]) and torch.equal(batch.x, batch.n_id)
        assert torch.equal(batch.n_id[: batch.batch_size], seeds[batch.input_id])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        tree = batch.batch[batch.edge_index[1]]
        assert torch.equal(tree, batch.batch[batch.edge_index[0]])
        assert (own[batch.e_id] <= batch.seed_time[tree]).all()
        for place, (seed, time) in enumerate(zip(seeds[batch.input_id], batch.seed_time)):
            exist = torch.nonzero((data.edge_index[1] == seed) & (own <= time)).view(-1)
            drawn = batch.e_id[batch.edge_index[1] == place]
            assert len(drawn) == min(3, len(exist)) and set(drawn.tolist()) <= set(exist.tolist())
            if strategy == "last":
                assert sorted(own[drawn].tolist()) == sorted(own[exist].tolist())[-3:]


def test_seeds_have_the_times_of_their_nodes_by_default():
    data = homogeneous("node_time")
    options = {"time_attr": "node_time", "temporal_strategy": "last", "seed": 1}
    own = NodeLoader(data, NeighborSampler(data, [2, 2], **options), batch_size=8)
    given = NodeLoader(data, NeighborSampler(data, [2, 2], **options), input_time=data.node_time, batch_size=8)
    for a, b in zip(own, given, strict=True):
        assert "seed_time" not in a and torch.equal(a.e_id, b.e_id) and torch.equal(a.n_id, b.n_id)
    typed = database("nodes")
    for batch in NodeLoader(typed, NeighborSampler(typed, [3, 2], time_attr="time", seed=1), ("event", None), batch_size=9):
        assert assert_no_later(typed, batch, typed["event"].time[batch["event"].input_id]) > 0


@pytest.mark.parametrize("of", ["nodes", "edges", "both"])
@pytest.mark.parametrize("strategy", ["last", "uniform"])
def test_the_loaders_of_relbench_see_no_later_row(of, strategy):
    """Entities at times, with labels that a transform attaches: the shape of RelBench's examples."""
    data, rng = database(of), np.random.default_rng(3)
    entities, times = torch.from_numpy(rng.integers(0, 40, 50)), torch.from_numpy(rng.integers(4, LATEST, 50))
    target = torch.from_numpy(rng.random(50))

    def attach(batch):
        batch["item"].y = target[batch["item"].input_id]
        return batch

    # the arguments of RelBench's link loader
    options = {"subgraph_type": "directional", "disjoint": True, "temporal_strategy": strategy, "share_memory": False}
    sampler = NeighborSampler(data, num_neighbors=[4, 3], time_attr="time", seed=1, **options)
    count = 0
    for batch in NodeLoader(data, sampler, ("item", entities), input_time=times, transform=attach, batch_size=8, shuffle=True):
        item = batch["item"]
        assert torch.equal(item.n_id[: item.batch_size], entities[item.input_id])
        assert torch.equal(item.seed_time, times[item.input_id]) and torch.equal(item.y, target[item.input_id])
        count += assert_no_later(data, batch, item.seed_time)
    assert count > 100

    class CustomNodeLoader(NodeLoader):
        def around(self, nodes, time):
            return self.filter_fn(self.node_sampler.sample_from_nodes(NodeSamplerInput(nodes, nodes, time, self.input_data.input_type)))

    # sources and destinations of links at one time
    for kind in ("user", "item"):
        batch = CustomNodeLoader(data, sampler, kind).around(torch.arange(20), times[:20])
        assert torch.equal(batch[kind].n_id[:20], torch.arange(20)) and torch.equal(batch[kind].seed_time, times[:20])
        assert_no_later(data, batch, times[:20])


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("amount", [1, 2])
def test_links_of_one_type_see_no_later_edge(of, mode, amount):
    data, rng = homogeneous(of), np.random.default_rng(3)
    edges, given = data.edge_index[:, :30], torch.from_numpy(rng.integers(5, LATEST, 30))
    own = data.node_time[data.edge_index[0]] if of == "node_time" else data.edge_time
    negatives = None if mode is None else NegativeSampling(mode, amount)
    sampler = NeighborSampler(data, [3, 2], time_attr=of, seed=1)
    known = set(map(tuple, data.edge_index.t().tolist()))
    for batch in LinkLoader(data, sampler, edges, edge_label_time=given, neg_sampling=negatives, batch_size=7):
        times = given[batch.input_id]
        count = len(times)
        tree = batch.batch[batch.edge_index[1]]
        assert (own[batch.e_id] <= times[tree]).all() and torch.equal(tree, batch.batch[batch.edge_index[0]])
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        if mode == "triplet":
            assert torch.equal(batch.seed_time, times)
            src, negative = batch.n_id[batch.src_index].repeat_interleave(amount), batch.n_id[batch.dst_neg_index].view(-1)
            assert torch.equal(torch.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]]), edges[:, batch.input_id])
            assert batch.batch[batch.dst_neg_index].view(-1).tolist() == [i for i in range(count) for _ in range(amount)]
            latest = times.repeat_interleave(amount)
        else:
            total = count * (1 if mode is None else 1 + amount)
            pairs = batch.n_id[batch.edge_label_index]
            assert torch.equal(pairs[:, :count], edges[:, batch.input_id])
            assert batch.edge_label_time.tolist() == times.tolist() * (total // count)
            assert torch.equal(batch.batch[batch.edge_label_index], torch.arange(total).remainder(count).repeat(2, 1))
            label = [] if mode is None else [1] * count + [0] * (total - count)
            assert batch.get("edge_label", torch.tensor([])).tolist() == label
            src, negative, latest = pairs[0, count:], pairs[1, count:], batch.edge_label_time[count:]
        assert not set(zip(src.tolist(), negative.tolist())) & known
        if of == "node_time":
            assert (data.node_time[negative] <= latest).all()


@pytest.mark.parametrize("of", ["nodes", "edges", "both"])
@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_links_of_several_types_see_no_later_row(of, mode):
    data = database(of)
    edges, given = data[CLICKS].edge_index[:, :30], 6 + torch.arange(30) % 14
    loader = LinkLoader(data, NeighborSampler(data, [3, 2], time_attr="time", seed=1), (CLICKS, edges), edge_label_time=given, neg_sampling=mode, batch_size=7)
    count = 0
    for batch in loader:
        times = given[batch[CLICKS].input_id]
        count += assert_no_later(data, batch, times)
        if mode == "triplet":
            assert torch.equal(batch["event"].seed_time, times) and torch.equal(batch["item"].seed_time, times)
            negative = batch["item"].n_id[batch["item"].dst_neg_index]
        else:
            assert torch.equal(batch[CLICKS].edge_label_time, times.repeat(2))
            negative = batch["item"].n_id[batch[CLICKS].edge_label_index[1, len(times) :]]
        if of != "edges":
            assert (data["item"].time[negative] <= times).all()
    assert count > 100


@pytest.mark.parametrize("make_data", [lambda: database("both"), lambda: homogeneous("edge_time")])
def test_subgraphs_of_the_sampler_are_those_of_the_loader(make_data):
    data = make_data()
    typed = isinstance(data, HeteroData)
    seeds = ("item", torch.arange(20)) if typed else torch.arange(20)
    # not every edge type of the database has a reverse
    for kind in ("induced",) if typed else ("induced", "bidirectional"):
        theirs = NodeLoader(data, NeighborSampler(data, [-1, -1], subgraph_type=kind), seeds, batch_size=6)
        ours = graphmill.NeighborLoader(data, [-1, -1], seeds, subgraph_type=kind, batch_size=6)
        for a, b in zip(theirs, ours, strict=True):
            for one, other in [(a[edge_type], b[edge_type]) for edge_type in KINDS] if typed else [(a, b)]:
                by_ends = [sorted(zip(*store.edge_index.tolist())) for store in (one, other)]
                assert by_ends[0] == by_ends[1] and sorted(one.e_id.tolist()) == sorted(other.e_id.tolist())
    if typed:
        with pytest.raises(NotImplementedError, match=r"needs a reverse edge type of \('user', 'makes', 'event'\)"):
            NeighborSampler(data, [2], subgraph_type="bidirectional")


def test_the_sampler_draws_the_edges_of_the_loader():
    """With all neighbours, the sampler and the package's own loaders agree."""
    data = database("both")
    seeds, given = torch.arange(0, 40, 2), 4 + torch.arange(20) % 16
    theirs = NodeLoader(data, NeighborSampler(data, [-1, -1], time_attr="time"), ("item", seeds), input_time=given, batch_size=6)
    ours = graphmill.NeighborLoader(data, [-1, -1], ("item", seeds), input_time=given, time_attr="time", batch_size=6)
    for a, b in zip(theirs, ours, strict=True):
        assert torch.equal(a["item"].seed_time, b["item"].seed_time)
        assert_no_later(data, b, b["item"].seed_time)
        for kind in KINDS:
            assert torch.equal(a[kind].e_id, b[kind].e_id) and torch.equal(a[kind].edge_index, b[kind].edge_index)


def test_a_call_takes_seeds_of_several_types():
    data = database("both")
    seeds = {"item": torch.tensor([3, 9, 20]), "user": torch.tensor([4, 1])}
    # with one hop of all neighbours, the edges are those of each type alone
    full = NeighborSampler(data, [-1], seed=1)
    out = full.sample_from_nodes(seeds)
    assert out.metadata == (None, None) and out.batch is None
    for kind, ids in seeds.items():
        assert torch.equal(out.node[kind][: len(ids)], ids) and out.num_sampled_nodes[kind][0] == len(ids)
    for kind in KINDS:
        ids = seeds.get(kind[2], torch.tensor([], dtype=torch.int64))
        alone = full.sample_from_nodes(NodeSamplerInput(None, ids, input_type=kind[2]))
        assert sorted(out.edge[kind].tolist()) == sorted(alone.edge[kind].tolist())
    masks = {kind: torch.zeros(data[kind].num_nodes, dtype=torch.bool) for kind in seeds}
    for kind, ids in seeds.items():
        masks[kind][ids] = True
    assert full.sample_from_nodes(masks).node["item"][:3].tolist() == [3, 9, 20]
    # every seed at its time, the trees in the order of the dict
    times = {"item": torch.tensor([5, 12, 18]), "user": torch.tensor([15, 7])}
    latest = torch.cat(list(times.values()))
    count = 0
    for seed in range(20):
        out = NeighborSampler(data, [4, 3], time_attr="time", seed=seed).sample_from_nodes(seeds, time=times)
        assert out.metadata == (None, times)
        assert out.batch["item"][:3].tolist() == [0, 1, 2] and out.batch["user"][:2].tolist() == [3, 4]
        for kind in KINDS:
            edges, tree = data[kind].edge_index[:, out.edge[kind]], out.batch[kind[2]][out.col[kind]]
            assert torch.equal(torch.stack([out.node[kind[0]][out.row[kind]], out.node[kind[2]][out.col[kind]]]), edges)
            assert torch.equal(tree, out.batch[kind[0]][out.row[kind]])
            assert (data[kind].time[out.edge[kind]] <= latest[tree]).all()
            count += len(tree)
    assert count > 100
    again = [NeighborSampler(data, [2, 2], seed=7).sample_from_nodes(seeds) for _ in range(2)]
    assert all(torch.equal(again[0].edge[kind], again[1].edge[kind]) for kind in KINDS)
    # items have times of their own, users have none
    typed = database("nodes")
    sampler = NeighborSampler(typed, [3], time_attr="time", seed=1)
    given = {"user": times["user"]}
    out = sampler.sample_from_nodes(seeds, time=given)
    own = torch.cat([typed["item"].time[seeds["item"]], times["user"]])
    for kind in (BY, CLICKS, MADE):
        if "time" in typed[kind[0]]:
            tree = out.batch[kind[2]][out.col[kind]]
            assert (typed[kind[0]].time[out.node[kind[0]][out.row[kind]]] <= own[tree]).all()
    one = NeighborSampler(homogeneous("edge_time"), [2])
    for call, error, why in [
        (lambda: sampler.sample_from_nodes(seeds), ValueError, "nodes of type 'user' have no times; pass input_time"),
        (lambda: sampler.sample_from_nodes({"item": seeds["item"]}, time=given), ValueError, "times for 'user' but no seeds"),
        (lambda: sampler.sample_from_nodes(seeds, time={"user": times["item"]}), ValueError, "3 times for 2 inputs"),
        (lambda: full.sample_from_nodes(seeds, time=times), ValueError, "input_time: without time_attr"),
        (lambda: full.sample_from_nodes({"items": [1]}), ValueError, "node type 'items' is unknown"),
        (lambda: full.sample_from_nodes({"item": [1], "user": [30]}), ValueError, r"nodes of 'user'\[0\] is 30"),
        (lambda: full.sample_from_nodes({"user": np.ones(3, bool)}), ValueError, r"^index\['user'\]: the mask has 3 entries"),
        (lambda: sampler.sample_from_nodes(NodeSamplerInput(None, seeds["item"], input_type="item"), time=times), TypeError, "^time: "),
        (lambda: one.sample_from_nodes({"node": [1]}), TypeError, "needs a graph of several types"),
    ]:
        with pytest.raises(error, match=why):
            call()


def test_unusable_arguments_are_refused_with_a_remedy():
    data, typed = homogeneous("edge_time"), database("nodes")
    seeds = torch.arange(4)
    for options, error, why in [
        ({"time_attr": "when"}, ValueError, "known: edge_time, x"),
        ({"temporal_strategy": "last"}, ValueError, "pass time_attr too"),
        ({"time_attr": "edge_time", "weight_attr": "edge_time", "temporal_strategy": "last"}, NotImplementedError, "leave out one"),
        ({"subgraph_type": "induced", "time_attr": "edge_time"}, NotImplementedError, "use 'directional'"),
        ({"directed": False, "time_attr": "edge_time"}, NotImplementedError, "use 'directional'"),
        ({"subgraph_type": "both"}, ValueError, "use directional, bidirectional or induced"),
        ({"sample_direction": "backward"}, NotImplementedError, "use 'forward'"),
    ]:
        with pytest.raises(error, match=why):
            NeighborSampler(data, [2], **options)
    timed, plain = NeighborSampler(data, [2], time_attr="edge_time"), NeighborSampler(data, [2])
    nodes = lambda time=None: NodeSamplerInput(None, seeds, time)
    links = lambda time=None: EdgeSamplerInput(None, seeds, seeds + 1, time=time)
    for call, error, why in [
        (lambda: plain.sample_from_nodes(nodes(seeds)), ValueError, "input_time: without time_attr"),
        (lambda: plain.sample_from_edges(links(seeds)), ValueError, "edge_label_time: without time_attr"),
        (lambda: timed.sample_from_nodes(nodes()), ValueError, "have no times; pass input_time"),
        (lambda: timed.sample_from_edges(links()), ValueError, "pass it to the loader"),
        (lambda: timed.sample_from_nodes(nodes(seeds[:3])), ValueError, "3 times for 4 inputs"),
        (lambda: timed.sample_from_edges(links(seeds[:3])), ValueError, "3 times for 4 inputs"),
        (lambda: timed.sample_from_nodes(nodes(seeds / 2)), TypeError, "an integer per row"),
        (lambda: plain.sample_from_nodes(NodeSamplerInput(None, seeds + 100)), ValueError, "node"),
    ]:
        with pytest.raises(error, match=why):
            call()
    users = NeighborSampler(typed, [2], time_attr="time")
    with pytest.raises(ValueError, match="nodes of type 'user' have no times; pass input_time"):
        users.sample_from_nodes(NodeSamplerInput(None, seeds, input_type="user"))
    by_degree = graphmill.NegativeSampling(method="degree")
    with pytest.raises(NotImplementedError, match="may not exist yet"):
        users.sample_from_edges(EdgeSamplerInput(None, seeds, seeds, time=seeds, input_type=CLICKS), by_degree)
