"""Loaders of several types, of links, negatives and metrics, without torch."""

import pickle

import numpy as np
import pytest

import graphmill

WRITES = ("author", "writes", "paper")
WRITTEN = ("paper", "rev_writes", "author")
CITES = ("paper", "cites", "paper")
KINDS = [WRITES, WRITTEN, CITES]


def typed_dataset(authors=30, papers=50, seed=0):
    """A dataset whose features identify their node or edge."""
    rng = np.random.default_rng(seed)
    writes = np.stack([rng.integers(0, authors, 200), rng.integers(0, papers, 200)])
    cites = rng.integers(0, papers, (2, 300))
    return graphmill.TypedDataset.from_arrays(
        {"author": {"num_nodes": authors}, "paper": {"x": np.arange(2 * papers, dtype=np.float32).reshape(-1, 2)}},
        {
            WRITES: {"edge_index": writes, "x": np.arange(200, dtype=np.float32)},
            WRITTEN: {"edge_index": writes[::-1].copy()},
            CITES: {"edge_index": cites, "weight": np.arange(300, dtype=np.float32) % 2},
        },
        {"topic": {"on": "paper", "y": np.arange(papers) % 3, "train": np.arange(10)}},
    )


@pytest.fixture(scope="module")
def data():
    return typed_dataset()


def loader_of(data, num_neighbors=(3, 2), input_nodes="paper", **options):
    return graphmill.NeighborLoader(data, num_neighbors, input_nodes, **{"output": "numpy", "seed": 0, "batch_size": 8, **options})


def assert_edges(batch, data):
    """Every edge of a batch is the edge of the dataset with its number."""
    for kind in data.edge_types:
        store, edges = batch[kind], data.edges(kind).edge_index
        src, dst = batch[kind[0]].n_id[store.edge_index[0]], batch[kind[2]].n_id[store.edge_index[1]]
        np.testing.assert_array_equal(np.stack([src, dst]), edges[:, store.e_id])


@pytest.mark.parametrize("disjoint", [False, True])
@pytest.mark.parametrize("replace", [False, True])
def test_batches_have_the_rows_and_counts_of_each_type(data, disjoint, replace):
    loader = loader_of(data, disjoint=disjoint, replace=replace)
    assert len(loader) == 7
    seen = []
    for batch in loader:
        assert_edges(batch, data)
        paper, author = batch["paper"], batch["author"]
        assert paper.batch_size == len(paper.input_id) and (paper.n_id[: paper.batch_size] == paper.input_id).all()
        seen += paper.input_id.tolist()
        np.testing.assert_array_equal(paper.x, data.nodes("paper").x[paper.n_id])
        np.testing.assert_array_equal(paper.y, paper.n_id % 3)
        np.testing.assert_array_equal(batch[WRITES].edge_attr, data.edges(WRITES).x[batch[WRITES].e_id])
        for kind in data.node_types:
            assert len(batch[kind].num_sampled_nodes) == 3 and sum(batch[kind].num_sampled_nodes) == len(batch[kind].n_id)
        for kind in data.edge_types:
            assert len(batch[kind].num_sampled_edges) == 2 and sum(batch[kind].num_sampled_edges) == len(batch[kind].e_id)
        assert paper.num_sampled_nodes[0] == paper.batch_size and author.num_sampled_nodes[0] == 0
        if disjoint:
            for kind in KINDS:
                ends = batch[kind].edge_index
                assert (batch[kind[0]].batch[ends[0]] == batch[kind[2]].batch[ends[1]]).all()
    assert seen == list(range(50))


def test_fanouts_by_edge_type_and_full_rows(data):
    with_all = {WRITES: [-1, -1], WRITTEN: [0, 0], CITES: [0, 2]}
    batch = next(iter(loader_of(data, with_all, ("paper", [4, 9]))))
    edges = data.edges(WRITES).edge_index
    assert sorted(batch[WRITES].e_id) == np.flatnonzero(np.isin(edges[1], [4, 9])).tolist()
    assert batch[WRITTEN].num_sampled_edges == [0, 0] and batch[CITES].num_sampled_edges[0] == 0
    mask = np.arange(50) % 10 == 3
    batch = next(iter(loader_of(data, [1], ("paper", mask))))
    assert batch["paper"].input_id.tolist() == [3, 13, 23, 33, 43]
    weighted = next(iter(loader_of(data, [5, 5], weight_attr="edge_weight")))
    assert (weighted[CITES].edge_weight > 0).all() and len(weighted[CITES].e_id)


def test_batches_depend_neither_on_threads_nor_on_resuming(data):
    def batches(loader):
        return [{kind: (store.n_id if "n_id" in store else store.e_id).tobytes() for kind, store in batch._stores.items()} for batch in loader]

    one = batches(loader_of(data, shuffle=True, num_threads=1))
    assert batches(loader_of(data, shuffle=True, num_threads=3)) == one
    loader = loader_of(data, shuffle=True)
    for _ in zip(range(3), loader):
        pass
    assert batches(pickle.loads(pickle.dumps(loader))) == one[3:]
    assert batches(loader_of(data, shuffle=True, seed=1)) != one


def test_types_are_listed_and_found_by_unique_names(data):
    batch = next(iter(loader_of(data)))
    assert data.metadata() == batch.metadata() == (["author", "paper"], KINDS)
    for name in ("writes", ("author", "paper"), "author__writes__paper"):
        np.testing.assert_array_equal(data.edges(name).edge_index, data.edges(WRITES).edge_index)
    with pytest.raises(ValueError, match="edge type .'likes',. is unknown; the types are .'author', 'writes'"):
        data.edges("likes")
    with pytest.raises(KeyError, match="no type 'topic'; there are: author, paper"):
        batch["topic"]


def test_wrong_arguments_are_refused_with_the_reason(data):
    for error, part, call in [
        (ValueError, "the state has no 'epoch'", lambda: loader_of(data).load_state_dict({})),
        (TypeError, r'\("paper", ids\)', lambda: loader_of(data, input_nodes=[1, 2])),
        (ValueError, "node type 'papers' is unknown; the types are author, paper", lambda: loader_of(data, input_nodes="papers")),
        (ValueError, "no numbers for .*cites", lambda: loader_of(data, {WRITES: [1], WRITTEN: [1]})),
        (ValueError, "is unknown; the types are", lambda: loader_of(data, {("a", "b", "c"): [1]})),
        (ValueError, "give all equally many", lambda: loader_of(data, {WRITES: [1], WRITTEN: [1], CITES: [1, 2]})),
        (ValueError, "use directional, bidirectional or induced", lambda: loader_of(data, subgraph_type="both")),
        (ValueError, "in memory only", lambda: loader_of(data, host_budget=1)),
        (ValueError, "in memory only", lambda: graphmill.HGTLoader(data, [2], "paper", host_budget=1)),
        (ValueError, "input_nodes.*50 nodes", lambda: loader_of(data, input_nodes=("paper", [50]))),
        (ValueError, "known: edge_attr, edge_weight", lambda: loader_of(data, weight_attr="cost")),
        (ValueError, "missing: .*author", lambda: graphmill.HGTLoader(data, {"paper": [2]}, "paper")),
        (TypeError, "use NeighborLoader for one type", lambda: graphmill.HGTLoader(graphmill.Data(), [2], "paper")),
        (NotImplementedError, "use transform, .*NodeLoader with graphmill.sampler", lambda: loader_of(data, transform_sampler_output=print)),
        (NotImplementedError, "use transform, .*LinkLoader with graphmill.sampler", lambda: links_of(data, WRITES, transform_sampler_output=print)),
        (NotImplementedError, "NeighborLoader: neighbor_sampler is a sampler in Python", lambda: loader_of(data, neighbor_sampler=print)),
        (NotImplementedError, "LinkNeighborLoader: neighbor_sampler is a", lambda: links_of(data, WRITES, neighbor_sampler=print)),
        (NotImplementedError, "use transform, .*HGTLoader", lambda: graphmill.HGTLoader(data, [2], "paper", transform_sampler_output=print)),
    ]:
        with pytest.raises(error, match=part):
            call()


@pytest.mark.parametrize("disjoint", [False, True])
def test_subgraph_types_select_the_edges_of_each_type(data, disjoint):
    options = {"disjoint": disjoint, "batch_size": 5}
    plain, both, induced = (list(loader_of(data, subgraph_type=kind, **options)) for kind in ("directional", "bidirectional", "induced"))
    for sampled, turned, whole in zip(plain, both, induced):
        assert_edges(whole, data)
        for kind, reverse in ((WRITES, WRITTEN), (WRITTEN, WRITES), (CITES, CITES)):
            src, dst = kind[0], kind[2]
            np.testing.assert_array_equal(turned[src].n_id, sampled[src].n_id)
            expected = pairs_of(sampled[kind].edge_index) | pairs_of(sampled[reverse].edge_index[::-1])
            assert pairs_of(turned[kind].edge_index) == expected and turned[kind].edge_index.shape[1] == len(expected)
            assert turned[kind].num_sampled_edges == sampled[kind].num_sampled_edges and "num_sampled_edges" not in whole[kind]
            if kind != CITES:
                edges = data.edges(kind).edge_index[:, turned[kind].e_id]
                ends = np.stack([turned[src].n_id[turned[kind].edge_index[0]], turned[dst].n_id[turned[kind].edge_index[1]]])
                np.testing.assert_array_equal(ends, edges)
            trees = {t: whole[t].batch if disjoint else np.zeros(len(whole[t].n_id), int) for t in (src, dst)}
            every = data.edges(kind).edge_index.T
            count = 0
            for tree in np.unique(trees[dst]):
                inside = [set(whole[t].n_id[trees[t] == tree]) for t in (src, dst)]
                count += sum(u in inside[0] and v in inside[1] for u, v in every)
            assert whole[kind].edge_index.shape[1] == count
    one = graphmill.TypedDataset.from_arrays({"a": {"num_nodes": 2}, "b": {"num_nodes": 2}}, {("a", "to", "b"): {"edge_index": [[0], [1]]}})
    with pytest.raises(NotImplementedError, match=r"needs a reverse edge type of .*there are 0 from 'b' to 'a'; add \('b', 'rev_to', 'a'\)"):
        loader_of(one, input_nodes="b", subgraph_type="bidirectional")


def test_subgraphs_of_links_hold_no_supervision_edges():
    data = one_type()
    for kind in ("bidirectional", "induced"):
        for batch in links_of(data, subgraph_type=kind, neg_sampling="binary"):
            ends = data.edge_index[:, batch.input_id]
            found = pairs_of(batch.n_id[batch.edge_index])
            assert not found & (pairs_of(ends) | pairs_of(ends[::-1])) and ("num_sampled_nodes" in batch) == (kind != "induced")
            edges = pairs_of(data.edge_index)
            if kind == "induced":
                inside = np.isin(data.edge_index, batch.n_id).all(0)
                assert found == {pair for pair in pairs_of(data.edge_index[:, inside]) if pair not in pairs_of(ends) | pairs_of(ends[::-1])}
            else:
                assert found == {(v, u) for u, v in found} and found <= edges | {(v, u) for u, v in edges}


def test_hgt_draws_a_number_of_nodes_of_each_type(data):
    for samples in ([4, 3], {"author": [4, 3], "paper": [4, 3]}):
        loader = graphmill.HGTLoader(data, samples, ("paper", np.arange(20)), batch_size=5, seed=0, output="numpy")
        for batch in loader:
            assert_edges(batch, data)
            assert (len(batch["author"].n_id), len(batch["paper"].n_id), batch["paper"].batch_size) == (7, 12, 5)
            np.testing.assert_array_equal(batch["paper"].x, data.nodes("paper").x[batch["paper"].n_id])
            for kind in data.edge_types:
                edges = data.edges(kind).edge_index
                inside = np.isin(edges[0], batch[kind[0]].n_id) & np.isin(edges[1], batch[kind[2]].n_id)
                assert sorted(batch[kind].e_id) == np.flatnonzero(inside).tolist()


def one_type(nodes=40, edges=160, seed=1):
    edge_index = np.random.default_rng(seed).integers(0, nodes, (2, edges))
    return graphmill.Data(edge_index=edge_index, x=np.arange(nodes, dtype=np.float32), edge_attr=np.arange(edges))


def links_of(data, edges=None, **options):
    return graphmill.LinkNeighborLoader(data, [3, 2], edges, **{"output": "numpy", "seed": 0, "batch_size": 16, **options})


def pairs_of(edge_index):
    return set(zip(*edge_index.tolist()))


@pytest.mark.parametrize("disjoint", [False, True])
def test_links_are_labelled_and_excluded_from_their_own_batch(disjoint):
    data = one_type()
    known = pairs_of(data.edge_index)
    for batch in links_of(data, neg_sampling="binary", disjoint=disjoint):
        count = len(batch.input_id)
        pairs = batch.n_id[batch.edge_label_index]
        np.testing.assert_array_equal(pairs[:, :count], data.edge_index[:, batch.input_id])
        assert batch.edge_label.tolist() == [1] * count + [0] * count
        assert not pairs_of(pairs[:, count:]) & known and (pairs[0, count:] != pairs[1, count:]).all()
        drawn = pairs_of(batch.n_id[batch.edge_index])
        positives = pairs_of(pairs[:, :count])
        assert not drawn & (positives | {(v, u) for u, v in positives})
        np.testing.assert_array_equal(batch.x, batch.n_id)
        np.testing.assert_array_equal(batch.edge_attr, batch.e_id)
        if disjoint:
            assert (batch.batch[batch.edge_index[0]] == batch.batch[batch.edge_index[1]]).all()
            assert (batch.batch[batch.edge_label_index[0]] == batch.batch[batch.edge_label_index[1]]).all()
        else:
            assert len(set(batch.n_id)) == len(batch.n_id)
    included = [pairs_of(b.n_id[b.edge_index]) & pairs_of(b.n_id[b.edge_label_index]) for b in links_of(data, exclude_supervision_edges=False)]
    assert any(included)


def test_triplets_and_labels():
    data = one_type()
    for amount in (1, 3):
        for batch in links_of(data, neg_sampling=graphmill.NegativeSampling("triplet", amount)):
            count = len(batch.input_id)
            assert batch.dst_neg_index.shape == ((count,) if amount == 1 else (count, amount)) and "edge_label_index" not in batch
            np.testing.assert_array_equal(
                np.stack([batch.n_id[batch.src_index], batch.n_id[batch.dst_pos_index]]), data.edge_index[:, batch.input_id]
            )
            sources = np.repeat(batch.n_id[batch.src_index], amount)
            assert not set(zip(sources, batch.n_id[batch.dst_neg_index].ravel())) & pairs_of(data.edge_index)
    # negatives of own pairs, without those that are edges
    count = data.num_nodes
    pairs = np.stack([np.repeat(np.arange(count), 3), np.arange(3 * count) * 7 % count])
    own = pairs_of(pairs) - pairs_of(data.edge_index) - {(v, v) for v in range(count)}
    for batch in links_of(data, neg_sampling=graphmill.NegativeSampling("binary", 2, pairs=pairs)):
        drawn = batch.n_id[batch.edge_label_index][:, len(batch.input_id) :]
        listed = {u for u, _ in own}
        assert {(u, v) for u, v in pairs_of(drawn) if u in listed} <= own and not pairs_of(drawn) & pairs_of(data.edge_index)
    with pytest.raises(ValueError, match="leave one of the two out"):
        graphmill.NegativeSampling(method="degree", pairs=pairs)
    edges, labels = data.edge_index[:, :20], np.arange(20) % 3
    batch = next(iter(links_of(data, edges, edge_label=labels, batch_size=20)))
    np.testing.assert_array_equal(batch.edge_label, labels)
    # with negatives, 0 stands for them
    batch = next(iter(links_of(data, edges, edge_label=labels, batch_size=20, neg_sampling={"mode": "binary", "amount": 0.5})))
    assert batch.edge_label.tolist() == (labels + 1).tolist() + [0] * 10
    with pytest.raises(ValueError, match="triplets have no labels"):
        links_of(data, edges, edge_label=labels, neg_sampling="triplet")
    star = graphmill.Data(edge_index=np.array([[0, 0], [1, 2]]), num_nodes=3)
    with pytest.raises(ValueError, match="no negative edge for 0 -> 1"):
        next(iter(links_of(star, neg_sampling="binary")))


@pytest.mark.parametrize("mode", ["binary", "triplet", None])
def test_links_of_several_types(data, mode):
    edges = data.edges(WRITES).edge_index
    for batch in links_of(data, (WRITES, edges[:, ::2]), neg_sampling=mode):
        assert_edges(batch, data)
        author, paper, links = batch["author"], batch["paper"], batch[WRITES]
        positives = edges[:, ::2][:, links.input_id]
        if mode == "triplet":
            pairs = np.stack([author.n_id[author.src_index], paper.n_id[paper.dst_pos_index]])
            negatives = np.stack([author.n_id[author.src_index], paper.n_id[paper.dst_neg_index]])
        else:
            all_pairs = np.stack([author.n_id[links.edge_label_index[0]], paper.n_id[links.edge_label_index[1]]])
            pairs, negatives = all_pairs[:, : len(links.input_id)], all_pairs[:, len(links.input_id) :]
            assert (mode is None) == ("edge_label" not in links)
        np.testing.assert_array_equal(pairs, positives)
        assert not pairs_of(negatives) & pairs_of(edges)
        drawn = pairs_of(np.stack([author.n_id[links.edge_index[0]], paper.n_id[links.edge_index[1]]]))
        reverse = batch[WRITTEN].edge_index
        drawn |= pairs_of(np.stack([author.n_id[reverse[1]], paper.n_id[reverse[0]]]))
        assert not drawn & pairs_of(positives)
    # all edges of a type, and the batch of some of them
    assert len(links_of(data, CITES)) == -(-data.edges(CITES).edge_index.shape[1] // 16)
    batch = links_of(data, CITES)([0, -1])
    assert batch[CITES].edge_label_index.shape == (2, 2)
    with pytest.raises(ValueError, match="its ends are not those of"):
        links_of(data, WRITES, reverse_edge_type=CITES)
    with pytest.raises(TypeError, match="expected an edge type and its edges"):
        links_of(data, edges)


def test_negatives_are_no_edges_and_as_many_as_asked():
    edges = one_type().edge_index
    for amount, method in [(1, "uniform"), (2.5, "degree"), (1, "in-batch")]:
        negatives = graphmill.negative_sampling(edges, 40, amount=amount, method=method, seed=3)
        assert negatives.shape == (2, int(np.ceil(160 * amount)))
        assert not pairs_of(negatives) & pairs_of(edges) and (negatives[0] != negatives[1]).all()
        np.testing.assert_array_equal(negatives, graphmill.negative_sampling(edges, 40, amount=amount, method=method, seed=3))
    drawn = graphmill.negative_sampling(edges[:, :10], (40, 60), positives=edges[:, :4], seed=0)
    np.testing.assert_array_equal(drawn[0], edges[0, :4])
    with pytest.raises(ValueError, match="amount 0"):
        graphmill.negative_sampling(edges, amount=0)


def test_negatives_are_drawn_by_the_weights_of_their_nodes(data):
    src_weight, dst_weight = np.zeros(30), np.zeros(50)
    src_weight[[3, 8]] = 1, 3
    dst_weight[5:25] = np.arange(1, 21)
    edges = pairs_of(data.edges(WRITES).edge_index)
    options = {"neg_sampling": graphmill.NegativeSampling("binary", 20, src_weight=src_weight, dst_weight=dst_weight)}
    batch = next(iter(links_of(data, WRITES, batch_size=50, **options)))
    label = batch[WRITES].edge_label
    src, dst = batch[WRITES].edge_label_index[:, label == 0]
    src, dst = batch["author"].n_id[src], batch["paper"].n_id[dst]
    assert len(src) == 1000 and not pairs_of(np.stack([src, dst])) & edges
    assert set(src) == {3, 8} and abs((src == 8).mean() - 0.75) < 0.08
    assert set(dst) <= set(range(5, 25)) and dst.mean() > 15
    positives = batch[WRITES].edge_label_index[:, label == 1]
    np.testing.assert_array_equal(batch["author"].n_id[positives[0]], data.edges(WRITES).edge_index[0, batch[WRITES].input_id])
    again = next(iter(links_of(data, WRITES, batch_size=50, num_threads=3, **options)))
    np.testing.assert_array_equal(again[WRITES].edge_label_index, batch[WRITES].edge_label_index)
    # without weights of sources, negatives have those of their positives
    triplets = graphmill.NegativeSampling("triplet", 2, dst_weight=dst_weight)
    batch = next(iter(links_of(data, WRITES, batch_size=50, neg_sampling=triplets)))
    src, dst = batch["author"].n_id[batch["author"].src_index], batch["paper"].n_id[batch["paper"].dst_neg_index]
    assert dst.shape == (50, 2) and set(dst.ravel()) <= set(range(5, 25))
    assert not pairs_of(np.stack([np.repeat(src, 2), dst.ravel()])) & edges
    for error, part, given in [
        (ValueError, "src_weight: negatives of triplets have the source", {"mode": "triplet", "src_weight": src_weight}),
        (ValueError, "dst_weight: negatives are drawn by weights, or", {"method": "degree", "dst_weight": dst_weight}),
        (ValueError, "src_weight: 50 weights for 30 nodes", {"src_weight": dst_weight}),
        (ValueError, "dst_weight: weight 0 is -1", {"dst_weight": dst_weight - 1}),
        (TypeError, "dst_weight: expected a number per node", {"dst_weight": np.ones((50, 1))}),
    ]:
        with pytest.raises(error, match=part):
            links_of(data, WRITES, neg_sampling=given)


def test_metrics_share_ranks_among_ties():
    from graphmill import metrics

    scores = np.array([[0.9, 0.5, 0.5, 0.1], [0.1, 0.2, 0.3, 0.4]])
    labels = np.array([[0, 0, 1, 0], [1, 0, 0, 1]])
    assert metrics.mrr(scores, labels) == pytest.approx((1 / 2.5 + 1) / 2)
    assert metrics.hits_at_k(scores, labels, 2) == 0.5
    assert metrics.recall_at_k(scores, labels, 3) == 0.75
    assert metrics.precision_at_k(scores, labels, 4) == pytest.approx((1 / 4 + 2 / 4) / 2)
    assert metrics.map_at_k(scores, labels, 4) == pytest.approx((1 / 2.5 + (1 + 2 / 4) / 2) / 2)
    assert metrics.ndcg_at_k(scores[1], labels[1], 1) == 1
    assert metrics.auc(scores[0], labels[0]) == pytest.approx(1.5 / 3)
    assert 0 < metrics.average_precision(scores, labels) < 1
    groups = np.array([1, 1, 0, 0, 1, 1, 0, 0])
    flat = np.concatenate([scores[0, :2], scores[1, :2], scores[0, 2:], scores[1, 2:]])
    marks = np.concatenate([labels[0, :2], labels[1, :2], labels[0, 2:], labels[1, 2:]])
    assert metrics.mrr(flat, marks, groups) == pytest.approx(metrics.mrr(scores, labels))
    assert np.isnan(metrics.mrr([0.5], [0]))
    with pytest.raises(ValueError, match="give one shape"):
        metrics.auc(scores, labels[0])
    with pytest.raises(ValueError, match="k 0: use an integer of at least 1"):
        metrics.hits_at_k(scores, labels, 0)


@pytest.mark.parametrize("sampler", ["neighbor", "labor", "weighted", "full", "hgt"])
def test_blocks_of_several_types(data, sampler):
    from graphmill import dgl

    how = dgl.NeighborSampler([4, 3], sampler=sampler)
    seeds = {"paper": np.arange(20), "author": [5]}
    loader = dgl.DataLoader(data, seeds, how, batch_size=7, output="numpy", seed=0)
    assert len(loader) == 3
    found = {"paper": [], "author": []}
    for input_nodes, output_nodes, blocks in loader:
        assert len(blocks) == (1 if sampler == "hgt" else 2)
        for kind, ids in output_nodes.items():
            found[kind] += ids.tolist()
            np.testing.assert_array_equal(blocks[-1].dstdata["_ID"][kind][: len(ids)], ids)
        np.testing.assert_array_equal(blocks[0].srcdata["feat"]["paper"], data.nodes("paper").x[input_nodes["paper"]])
        if "paper" in output_nodes:
            np.testing.assert_array_equal(blocks[-1].dstdata["label"]["paper"], output_nodes["paper"] % 3)
        for block in blocks:
            for kind in block.canonical_etypes:
                src, dst = block[kind].edges()
                ends = block.srcdata["_ID"][kind[0]][src], block.dstdata["_ID"][kind[2]][dst]
                assert pairs_of(np.stack(ends)) <= pairs_of(data.edges(kind).edge_index)
                assert block.num_edges(kind) == len(src)
    assert found == {"paper": list(range(20)), "author": [5]}


def two_tasks(authors=30, papers=50):
    """The dataset with a task on each of two types."""
    rng = np.random.default_rng(4)
    writes = np.stack([rng.integers(0, authors, 200), rng.integers(0, papers, 200)])
    return graphmill.TypedDataset.from_arrays(
        {"author": {"num_nodes": authors}, "paper": {"num_nodes": papers}},
        {WRITES: {"edge_index": writes}, WRITTEN: {"edge_index": writes[::-1].copy()}},
        {
            "field": {"on": "author", "y": np.arange(authors) % 2, "train": np.arange(12)},
            "topic": {"on": "paper", "y": np.arange(papers) % 3, "train": np.arange(5, 30)},
        },
    )


def blocks_of(data, seeds, layers=(4, 3), **options):
    from graphmill import dgl

    how = dgl.NeighborSampler(list(layers))
    return dgl.DataLoader(data, seeds, how, **{"batch_size": 8, "output": "numpy", "seed": 0, "as_minibatch": True, **options})


def seeds_in(batches):
    return [{kind: ids.tolist() for kind, ids in batch.seeds.items()} for batch in batches]


def test_shuffled_batches_mix_the_types_of_the_seeds():
    data, seeds = two_tasks(), {"paper": np.arange(3, 33), "author": np.arange(12)}
    loader = blocks_of(data, seeds, shuffle=True)
    epochs = [list(loader), list(loader)]
    for batches in epochs:
        assert [sum(map(len, batch.seeds.values())) for batch in batches] == [8] * 5 + [2]
        for kind, ids in seeds.items():
            assert sorted(v for batch in batches for v in batch.seeds.get(kind, [])) == ids.tolist()
        assert sum(len(batch.seeds) == 2 for batch in batches) > 2
        for batch in batches:
            assert set(batch.labels) == set(batch.indexes) == set(batch.seeds) == set(batch.compacted_seeds)
            for kind, of_type in batch.seeds.items():
                np.testing.assert_array_equal(batch.input_nodes[kind][: len(of_type)], of_type)
                np.testing.assert_array_equal(seeds[kind][batch.indexes[kind]], of_type)
                np.testing.assert_array_equal(batch.labels[kind], of_type % {"author": 2, "paper": 3}[kind])
                assert batch.blocks[-1].num_dst_nodes(kind) == len(of_type)
    assert seeds_in(epochs[0]) != seeds_in(epochs[1])
    # whole batches only, and the part of a process
    assert seeds_in(blocks_of(data, seeds, shuffle=True, drop_last=True)) == seeds_in(epochs[0][:5])
    parts = [seeds_in(blocks_of(data, seeds, shuffle=True, rank=rank, world_size=2)) for rank in (0, 1)]
    assert sorted(v for part in parts for batch in part for v in batch.get("author", [])) == list(range(12))


def test_batches_of_several_types_depend_on_the_seed_alone():
    data, seeds = two_tasks(), {"paper": np.arange(30), "author": np.arange(12)}

    def contents(loader):
        arrays = lambda batch: [batch.input_nodes[kind].tobytes() for kind in data.node_types] + [
            array.tobytes() for block in batch.blocks for kind in block.canonical_etypes for array in (block[kind].indptr, block[kind].indices)
        ]
        return [arrays(batch) for batch in loader]

    one = contents(blocks_of(data, seeds, shuffle=True, num_threads=1))
    assert contents(blocks_of(data, seeds, shuffle=True, num_threads=3)) == one
    assert contents(blocks_of(data, seeds, shuffle=True, seed=1)) != one
    loader = blocks_of(data, seeds, shuffle=True)
    for _ in zip(range(2), loader):
        pass
    assert contents(pickle.loads(pickle.dumps(loader))) == one[2:]


def test_seeds_draw_the_same_neighbours_beside_seeds_of_another_type(data):
    seeds = {"paper": np.arange(0, 50, 3), "author": np.arange(0, 30, 2)}

    def drawn(seeds):
        block = next(iter(blocks_of(data, seeds, layers=[3], batch_size=100))).blocks[0]
        edges = {}
        for kind in block.canonical_etypes:
            src, dst = block[kind].edges()
            edges[kind] = pairs_of(np.stack([block.srcdata["_ID"][kind[0]][src], block.dstdata["_ID"][kind[2]][dst]]))
        return edges

    together, apart = drawn(seeds), [drawn({kind: ids}) for kind, ids in seeds.items()]
    assert together == {kind: apart[0][kind] | apart[1][kind] for kind in KINDS} and all(together.values())


def test_training_nodes_of_all_tasks_are_the_seeds_without_others():
    data = two_tasks()
    given = {"author": np.arange(12), "paper": np.arange(5, 30)}
    assert seeds_in(blocks_of(data, None, shuffle=True)) == seeds_in(blocks_of(data, given, shuffle=True))
    masks = {"author": np.arange(30) < 12, "paper": (np.arange(50) >= 5) & (np.arange(50) < 30)}
    assert seeds_in(blocks_of(data, masks, shuffle=True)) == seeds_in(blocks_of(data, given, shuffle=True))
    bare = graphmill.TypedDataset.from_arrays({"a": {"num_nodes": 2}, "b": {"num_nodes": 2}}, {("a", "to", "b"): {"edge_index": [[0], [1]]}})
    with pytest.raises(ValueError, match="no node type has labels; pass a dict by node type"):
        blocks_of(bare, None)


def test_fanouts_of_blocks_by_edge_type(data):
    from graphmill import dgl

    how = dgl.NeighborSampler([{WRITES: 2}, {WRITES: 2, CITES: -1}])
    batch = next(iter(dgl.minibatches(data, {"paper": [1, 2, 3]}, how, batch_size=3, output="numpy", seed=0)))
    first, last = batch.blocks
    assert first.num_edges(CITES) == 0 and first.num_edges(WRITTEN) == 0
    assert last.num_edges(CITES) == np.isin(data.edges(CITES).edge_index[1], [1, 2, 3]).sum()
    assert batch.compacted_seeds["paper"].tolist() == [0, 1, 2] and batch.labels["paper"].tolist() == [1, 2, 0]
    for error, part, call in [
        (TypeError, "expected a dict by node type", lambda: dgl.DataLoader(data, [1], how)),
        (ValueError, "comes twice among the input nodes", lambda: dgl.DataLoader(data, {"paper": [1, 1]}, how)),
        (ValueError, "replace: sampler 'neighbor' does not read it; use weighted", lambda: dgl.DataLoader(data, {"paper": [1]}, dgl.NeighborSampler([2], replace=True))),
        (TypeError, "no such option 'num_walks'", lambda: dgl.DataLoader(data, {"paper": [1]}, dgl.NeighborSampler([2], num_walks=3))),
        (ValueError, "it draws no blocks of the edge types", lambda: dgl.DataLoader(data, {"paper": [1]}, dgl.NeighborSampler([2], sampler="saint-node"))),
        (ValueError, "in memory only", lambda: dgl.DataLoader(data, {"paper": [1]}, how, host_budget=1)),
    ]:
        with pytest.raises(error, match=part):
            call()


def test_samplers_of_blocks_of_several_types_take_options(data):
    from graphmill import dgl

    def drawn(sampler, **options):
        how = dgl.NeighborSampler([2], sampler=sampler, **options)
        return next(iter(dgl.minibatches(data, {"paper": np.arange(50)}, how, batch_size=50, output="numpy", seed=0))).blocks[0]

    cites = data.edges(CITES)
    # with replacement every paper draws two citations, if one of its edges has a weight
    replaced = drawn("weighted", replace=True)[CITES]
    is_weighted = np.bincount(cites.edge_index[1], cites.weight, minlength=50) > 0
    assert np.diff(replaced.indptr).tolist() == np.where(is_weighted, 2, 0).tolist()
    assert np.diff(drawn("weighted")[CITES].indptr).sum() < np.diff(replaced.indptr).sum()
    with pytest.raises(ValueError, match="edge weights 'in-degree'.*differ by relation"):
        drawn("weighted", edge_weights="in-degree")
    # iterations of labor change the probabilities of sources that papers share
    plain, optimized = drawn("labor"), drawn("labor", labor_iterations=3)
    assert any(not np.array_equal(plain[kind].indices, optimized[kind].indices) for kind in KINDS)
