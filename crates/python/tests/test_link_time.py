"""Batches of links with times: no edge or node is newer than the link, by a plain search."""

import pickle

import numpy as np
import pytest

import graphmill
from conftest import random_edges

NODES, EDGES, LATEST = 40, 300, 20


def make(of):
    """A graph with times of its nodes or edges."""
    rng = np.random.default_rng(5)
    times = rng.integers(0, LATEST, NODES if of == "node_time" else EDGES)
    return graphmill.Data(edge_index=random_edges(NODES, EDGES), x=np.arange(NODES), **{of: times})


def links_of(data, of, edges, times, fanout=(-1, -1), **options):
    options = {"output": "numpy", "seed": 1, "batch_size": 7, "exclude_supervision_edges": False, **options}
    return graphmill.LinkNeighborLoader(data, list(fanout), edges, edge_label_time=times, time_attr=of, **options)


def drawn_of(data, of, loader, given):
    """Checks each batch against the times of its links, and yields it with the time of each tree."""
    own = data[of]
    for batch in loader:
        times = given[batch.input_id]
        latest = times[batch.batch]
        assert np.array_equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        source, target = batch.batch[batch.edge_index]
        assert np.array_equal(source, target)
        of_edges = own[data.edge_index[0][batch.e_id]] if of == "node_time" else own[batch.e_id]
        assert (of_edges <= latest[batch.edge_index[1]]).all()
        yield batch, times


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
@pytest.mark.parametrize("strategy", ["last", "uniform"])
@pytest.mark.parametrize("amount", [None, 1, 2, 1.5])
def test_hops_around_both_ends_are_bounded_by_the_time_of_their_link(of, strategy, amount):
    data, rng = make(of), np.random.default_rng(3)
    edges, given = data.edge_index[:, :30], rng.integers(5, LATEST, 30)
    negatives = None if amount is None else graphmill.NegativeSampling("binary", amount)
    loader = links_of(data, of, edges, given, (3, 2), temporal_strategy=strategy, neg_sampling=negatives)
    seen = 0
    for batch, times in drawn_of(data, of, loader, given):
        count = len(times)
        pairs = batch.n_id[batch.edge_label_index]
        assert np.array_equal(pairs[:, :count], edges[:, batch.input_id])
        assert np.array_equal(batch.edge_label_time[:count], times)
        total = count + int(np.ceil(count * (amount or 0)))
        assert pairs.shape == (2, total) and len(batch.edge_label_time) == total
        # a negative joins the neighbourhood of its positive, and has its source and time
        of_pair = np.arange(total) % count
        assert np.array_equal(batch.batch[batch.edge_label_index], np.stack([of_pair, of_pair]))
        assert np.array_equal(batch.edge_label_time, times[of_pair])
        assert np.array_equal(pairs[0], pairs[0, of_pair])
        if amount is not None:
            assert batch.edge_label.tolist() == [1] * count + [0] * (total - count)
        if of == "node_time":
            assert (data.node_time[pairs[1, count:]] <= times[of_pair[count:]]).all()
        seen += count
    assert seen == 30


@pytest.mark.parametrize("of", ["node_time", "edge_time"])
def test_all_edges_up_to_the_time_are_found_and_no_other(of):
    data = make(of)
    edges, given = data.edge_index[:, :12], np.arange(12) + 4
    own = data.node_time[data.edge_index[0]] if of == "node_time" else data.edge_time
    for batch, times in drawn_of(data, of, links_of(data, of, edges, given, [-1]), given):
        for pair, time in enumerate(times):
            for end in batch.edge_label_index[:, pair]:
                into = np.flatnonzero((data.edge_index[1] == batch.n_id[end]) & (own <= time))
                assert sorted(batch.e_id[batch.edge_index[1] == end]) == into.tolist()


def test_edges_of_the_same_time_are_visible_and_earlier_times_hide_them():
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    data = graphmill.Data(edge_index=edges, num_nodes=3, time=np.array([5, 6, 7]))
    own = lambda times: [set(b.e_id) for b in links_of(data, "time", edges, times, [-1], batch_size=1)]
    assert own(data.time) == [{0}, {0, 1}, {1, 2}]
    assert own(data.time - 1) == [set(), {0}, {1}]
    excluded = links_of(data, "time", edges, data.time, [-1], batch_size=1, exclude_supervision_edges=True)
    assert [set(b.e_id) for b in excluded] == [set(), {0}, {1}]


@pytest.mark.parametrize("amount", [1, 3])
def test_triplets_have_the_time_of_their_positive(amount):
    data = make("node_time")
    edges, given = data.edge_index[:, :20], np.full(20, LATEST) - np.arange(20) % 8
    negatives = graphmill.NegativeSampling("triplet", amount)
    loader = links_of(data, "node_time", edges, given, (2, 2), neg_sampling=negatives)
    for batch, times in drawn_of(data, "node_time", loader, given):
        count = len(times)
        assert "edge_label_index" not in batch and "edge_label_time" not in batch
        assert np.array_equal(batch.seed_time, times)
        positives = np.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]])
        assert np.array_equal(positives, edges[:, batch.input_id])
        negative = batch.dst_neg_index.reshape(count, amount)
        assert (data.node_time[batch.n_id[negative]] <= times[:, None]).all()
        assert np.array_equal(batch.batch[negative], np.repeat(np.arange(count), amount).reshape(count, amount))
        # sources are seeds once
        assert batch.num_sampled_nodes[0] == count * (2 + amount)


def test_draws_depend_neither_on_threads_nor_on_pickle():
    data = make("edge_time")
    edges, given = data.edge_index[:, :40], np.arange(40) % LATEST
    make_loader = lambda threads: links_of(data, "edge_time", edges, given, (2, 2), neg_sampling="binary", num_threads=threads)
    fields = ("n_id", "e_id", "edge_index", "batch", "edge_label_index", "edge_label_time")
    bytes_of = lambda loader: [tuple(batch[name].tobytes() for name in fields) for batch in loader]
    one = make_loader(1)
    batches = bytes_of(one)
    assert len(batches) == 6 and batches == bytes_of(make_loader(3))
    again = pickle.loads(pickle.dumps(one))
    again.set_epoch(0)
    assert batches == bytes_of(again)


WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


def of_types(of):
    """Authors, papers and two relations; times of papers, of edges of both relations, or of both."""
    rng = np.random.default_rng(2)
    writes = np.stack([rng.integers(0, 30, 200), rng.integers(0, 40, 200)])
    nodes = {"author": {"num_nodes": 30}, "paper": {"num_nodes": 40}}
    edges = {WRITES: {"edge_index": writes}, CITES: {"edge_index": rng.integers(0, 40, (2, 300))}}
    if of != "edges":
        nodes["paper"]["time"] = rng.integers(0, LATEST, 40)
    if of != "nodes":
        edges[WRITES]["time"], edges[CITES]["time"] = rng.integers(0, LATEST, 200), rng.integers(0, LATEST, 300)
    return graphmill.TypedDataset.from_arrays(nodes, edges)


def assert_no_later(data, batch, latest, of):
    """No edge of a tree is later than the tree's time; authors without times always exist."""
    for kind in (WRITES, CITES):
        store = batch[kind]
        columns = data.edges(kind)
        edges, tree = columns.edge_index[:, store.e_id], batch[kind[2]].batch[store.edge_index[1]]
        assert np.array_equal(tree, batch[kind[0]].batch[store.edge_index[0]])
        if of != "nodes":
            assert (columns.time[store.e_id] <= latest[tree]).all()
        if of != "edges" and kind == CITES:
            assert (data.nodes("paper").time[edges[0]] <= latest[tree]).all()
    return sum(len(batch[kind].e_id) for kind in (WRITES, CITES))


@pytest.mark.parametrize("of", ["nodes", "edges", "both"])
@pytest.mark.parametrize("mode", ["binary", "triplet", None])
def test_links_of_several_types_see_no_later_edge(of, mode):
    data = of_types(of)
    edges, given = data.edges(WRITES).edge_index[:, :30], 6 + np.arange(30) % 14
    options = {"edge_label_time": given, "time_attr": "time", "neg_sampling": mode, "output": "numpy", "seed": 1, "batch_size": 7}
    count = 0
    for batch in graphmill.LinkNeighborLoader(data, [3, 2], (WRITES, edges), **options):
        links, author, paper = batch[WRITES], batch["author"], batch["paper"]
        times = given[links.input_id]
        count += assert_no_later(data, batch, times, of)
        if mode == "triplet":
            assert np.array_equal(author.seed_time, times) and np.array_equal(paper.seed_time, times)
            negative = paper.n_id[paper.dst_neg_index]
        else:
            assert np.array_equal(links.edge_label_time, np.tile(times, 1 if mode is None else 2))
            negative = paper.n_id[links.edge_label_index[1, len(times) :]]
        if of != "edges" and mode is not None:
            assert (data.nodes("paper").time[negative] <= times).all()
    assert count > 100


@pytest.mark.parametrize("of", ["nodes", "edges", "both"])
@pytest.mark.parametrize("strategy", ["last", "uniform"])
def test_nodes_of_several_types_see_no_later_edge(of, strategy):
    data = of_types(of)
    seeds, given = np.arange(0, 40, 2), 4 + np.arange(20) % 16
    options = {"time_attr": "time", "temporal_strategy": strategy, "output": "numpy", "seed": 1, "batch_size": 8}
    count = 0
    for batch in graphmill.NeighborLoader(data, [3, 2], ("paper", seeds), input_time=given, **options):
        paper = batch["paper"]
        assert np.array_equal(paper.seed_time, given[paper.input_id])
        count += assert_no_later(data, batch, given[paper.input_id], of)
    assert count > 50
    if of != "edges":
        for batch in graphmill.NeighborLoader(data, [3, 2], ("paper", seeds), **options):
            assert "seed_time" not in batch["paper"]
            assert_no_later(data, batch, data.nodes("paper").time[seeds][batch["paper"].input_id], of)
        with pytest.raises(ValueError, match="nodes of type 'author' have no times"):
            graphmill.NeighborLoader(data, [2], "author", **options)
    else:
        with pytest.raises(ValueError, match="pass input_time"):
            graphmill.NeighborLoader(data, [2], "paper", **options)


def test_unusable_arguments_are_refused_with_a_remedy():
    data = make("edge_time")
    edges, times = data.edge_index[:, :4], np.arange(4)
    make_loader = lambda **options: graphmill.LinkNeighborLoader(data, [2], edges, output="numpy", **options)
    for options, error, why in [
        ({"time_attr": "edge_time"}, ValueError, "without edge_label_time"),
        ({"edge_label_time": times}, ValueError, "without time_attr"),
        ({"edge_label_time": times[:3], "time_attr": "edge_time"}, ValueError, "3 times for 4 inputs"),
        ({"edge_label_time": times, "time_attr": "when"}, ValueError, "known: edge_time, x"),
        ({"edge_label_time": times / 2, "time_attr": "edge_time"}, TypeError, "an integer per row"),
        ({"edge_label_time": times, "time_attr": "edge_time", "temporal_strategy": "first"}, ValueError, "use uniform, last or recency"),
        ({"edge_label_time": times, "time_attr": "edge_time", "weight_attr": "edge_time", "temporal_strategy": "last"}, NotImplementedError, "leave out one"),
        ({"temporal_strategy": "last"}, ValueError, "pass time_attr too"),
    ]:
        with pytest.raises(error, match=why):
            make_loader(**options)
    by_degree = {"edge_label_time": times, "time_attr": "node_time", "neg_sampling": graphmill.NegativeSampling(method="degree")}
    with pytest.raises(NotImplementedError, match="may not exist yet"):
        graphmill.LinkNeighborLoader(make("node_time"), [2], edges, output="numpy", **by_degree)
