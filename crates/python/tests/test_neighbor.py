"""The neighbour loader on arrays, without other frameworks."""

import pickle
from collections import Counter

import numpy as np
import pytest

import graphmill
from conftest import bytes_of, loader_of, make_data


def plain(edge_index, hops, seeds):
    """All neighbours over some hops, by plain loops."""
    nodes, begin, edges = list(seeds), 0, []
    for _ in range(hops):
        end = len(nodes)
        for to in range(begin, end):
            for e in np.flatnonzero(edge_index[1] == nodes[to]):
                source = int(edge_index[0, e])
                if source not in nodes:
                    nodes.append(source)
                edges.append((nodes.index(source), to, int(e)))
        begin = end
    return nodes, edges


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_full_neighbourhoods_match_plain_loops(data, hops):
    for start, batch in zip(range(0, 100, 16), loader_of(data, [-1] * hops)):
        nodes, edges = plain(data.edge_index, hops, range(start, min(start + 16, 100)))
        assert batch.n_id.tolist() == nodes
        assert list(zip(*batch.edge_index.tolist(), batch.e_id.tolist())) == edges
        assert (batch.x == data.x[batch.n_id]).all() and (batch.y == data.y[batch.n_id]).all()
        assert (batch.edge_attr == data.edge_attr[batch.e_id]).all()
        assert sum(batch.num_sampled_nodes) == len(nodes) and sum(batch.num_sampled_edges) == len(edges)


def test_fields_have_the_promised_types_and_are_writable(data):
    batch = next(iter(loader_of(data)))
    for name in ("n_id", "e_id", "edge_index", "input_id"):
        assert batch[name].dtype == np.int64 and batch[name].flags.writeable
    assert batch.x.dtype == np.float32 and batch.x.flags.c_contiguous and batch.x.shape == (len(batch.n_id), 2)
    assert (batch.batch_size, batch.num_nodes, batch.num_edges) == (16, len(batch.n_id), len(batch.e_id))
    assert "x" in batch and "edge_attr" in batch.keys() and repr(batch).startswith("Data(")
    with pytest.raises(AttributeError, match="colour"):
        batch.colour


@pytest.mark.parametrize("options", [{}, {"replace": True}, {"disjoint": True}, {"subgraph_type": "induced"}])
def test_batches_do_not_depend_on_threads(data, options):
    def epoch(**more):
        return [bytes_of(batch) for batch in loader_of(data, shuffle=True, **options, **more)]

    first = epoch(num_threads=1)
    assert len(first) == 7
    assert epoch(num_threads=3, prefetch_factor=1) == first == epoch(num_workers=2, prefetch_factor=4)
    assert epoch(seed=1) != first


def test_epochs_differ_and_repeat(data):
    def epochs(loader):
        return [[batch.n_id.tolist() for batch in loader] for _ in range(3)]

    first = epochs(loader_of(data, shuffle=True))
    assert first[0] != first[1] != first[2]
    assert epochs(loader_of(data, shuffle=True)) == first
    loader = loader_of(data, shuffle=True)
    loader.set_epoch(2)
    assert [batch.n_id.tolist() for batch in loader] == first[2]
    seeds = [seed for batch in loader_of(data, shuffle=True) for seed in batch.n_id[: batch.batch_size].tolist()]
    assert sorted(seeds) == list(range(100))


def test_numpys_seed_decides_if_none_is_given(data):
    def draw():
        np.random.seed(5)
        return loader_of(data, seed=None).seed

    # if torch is imported, its seed decides
    import sys

    if "torch" not in sys.modules:
        assert draw() == draw()
        assert loader_of(data, seed=None).seed != loader_of(data, seed=None).seed


def test_fanouts_are_bounds_and_draws_are_uniform(data):
    fan = graphmill.Data(edge_index=np.stack([np.arange(1, 41), np.zeros(40, int)]), num_nodes=41)
    counts = Counter()
    for batch in loader_of(fan, [4], input_nodes=[0] * 2000, batch_size=1):
        assert len(set(batch.n_id.tolist())) == 5 and batch.num_sampled_nodes == [1, 4]
        counts.update(batch.n_id[1:].tolist())
    # binomial(2000, 0.1): sigma 13.4; five sigma
    assert len(counts) == 40 and all(abs(n - 200) < 68 for n in counts.values())
    assert next(iter(loader_of(fan, [0], input_nodes=[0]))).n_id.tolist() == [0]
    assert next(iter(loader_of(fan, [], input_nodes=[0]))).n_id.tolist() == [0]
    twice = next(iter(loader_of(fan, [60], input_nodes=[0], replace=True)))
    assert len(twice.e_id) == 60 and len(set(twice.e_id.tolist())) < 60


def test_neighbours_are_drawn_by_weight():
    data = graphmill.Data(edge_index=np.array([[1, 2, 3, 0], [0, 0, 0, 1]]), num_nodes=4, edge_w=np.array([0.0, 1.0, 3.0, 1.0]))
    counts = Counter()
    for batch in loader_of(data, [1], input_nodes=[0] * 1000, weight_attr="edge_w", batch_size=1):
        counts.update(batch.n_id[1:].tolist())
    # binomial(1000, 0.25): sigma 13.7
    assert counts.keys() == {2, 3} and abs(counts[2] - 250) < 69
    assert sorted(next(iter(loader_of(data, [3], input_nodes=[0], weight_attr="edge_w"))).n_id) == [0, 2, 3]
    again = next(iter(loader_of(data, [9], input_nodes=[0], weight_attr="edge_w", replace=True)))
    assert len(again.e_id) == 9 and set(again.e_id) <= {1, 2}


@pytest.mark.parametrize("disjoint", [False, True])
def test_subgraph_types_select_the_edges(data, disjoint):
    one = next(iter(loader_of(data, disjoint=disjoint)))
    both = next(iter(loader_of(data, disjoint=disjoint, subgraph_type="bidirectional")))
    induced = next(iter(loader_of(data, disjoint=disjoint, subgraph_type="induced")))
    assert one.n_id.tolist() == both.n_id.tolist() == induced.n_id.tolist()
    pairs = set(map(tuple, one.edge_index.T.tolist()))
    assert set(map(tuple, both.edge_index.T.tolist())) == pairs | {(v, u) for u, v in pairs}
    tree = one.batch if disjoint else np.zeros(len(one.n_id))
    assert (tree[induced.edge_index[0]] == tree[induced.edge_index[1]]).all()
    ends = induced.n_id[induced.edge_index]
    assert (ends == data.edge_index[:, induced.e_id]).all()
    inside = [set(induced.n_id[tree == t].tolist()) for t in set(tree)]
    among = sum(int(u in nodes and v in nodes) for nodes in inside for u, v in data.edge_index.T.tolist())
    assert len(induced.e_id) == among
    assert "num_sampled_nodes" not in induced


def test_disjoint_nodes_have_their_seed(data):
    batch = next(iter(loader_of(data, [-1, -1], input_nodes=[5, 6, 5], disjoint=True)))
    assert batch.n_id[:3].tolist() == [5, 6, 5] and batch.batch[:3].tolist() == [0, 1, 2]
    of = [sorted(batch.n_id[batch.batch == i].tolist()) for i in range(3)]
    assert of[0] == of[2] and of[0] == sorted(plain(data.edge_index, 2, [5])[0])


def test_input_nodes_may_be_masks_lists_arrays_or_ranges(data):
    mask = np.zeros(100, bool)
    mask[[3, 50, 99]] = True
    forms = [mask, [3, 50, 99], np.array([3, 50, 99], np.int32), np.array([3, 50, 99], np.uint8), range(3, 100, 48)]
    for form in forms[:-1]:
        batch = next(iter(loader_of(data, input_nodes=form)))
        assert batch.n_id[:3].tolist() == [3, 50, 99]
        assert batch.input_id.tolist() == ([3, 50, 99] if form is mask else [0, 1, 2])
    assert next(iter(loader_of(data, input_nodes=forms[-1]))).n_id[:3].tolist() == [3, 51, 99]
    own = next(iter(loader_of(data, input_nodes=[3, 50], input_id=[8, 9])))
    assert own.input_id.tolist() == [8, 9]
    assert len(loader_of(data, input_nodes=[])) == 0 and list(loader_of(data, input_nodes=[])) == []
    # a repeated node
    twice = next(iter(loader_of(data, [-1], input_nodes=[7, 7, 8])))
    assert twice.n_id[:3].tolist() == [7, 7, 8] and (twice.x == data.x[twice.n_id]).all()
    assert (twice.n_id[twice.edge_index] == data.edge_index[:, twice.e_id]).all()


def test_length_counts_the_last_batch_unless_dropped(data):
    assert (len(loader_of(data)), len(loader_of(data, drop_last=True))) == (7, 6)
    assert [batch.batch_size for batch in loader_of(data)] == [16] * 6 + [4]
    assert [batch.batch_size for batch in loader_of(data, drop_last=True)] == [16] * 6
    assert str(loader_of(data)) == "NeighborLoader()"


def test_ranks_share_an_epoch(data):
    def seeds(**options):
        return [seed for b in loader_of(data, shuffle=True, **options) for seed in b.n_id[: b.batch_size].tolist()]

    shares = [seeds(rank=rank, world_size=3) for rank in range(3)]
    assert [len(share) for share in shares] == [34] * 3
    assert sorted(set(sum(shares, []))) == list(range(100))
    assert [len(seeds(rank=rank, world_size=3, drop_last=True)) for rank in range(3)] == [32] * 3
    with pytest.raises(ValueError, match="rank 3 of world_size 3"):
        len(loader_of(data, rank=3, world_size=3))


def test_a_sampler_sets_the_order(data):
    loader = loader_of(data, sampler=[9, 3, 5], batch_size=2)
    assert len(loader) == 2 and [b.n_id[: b.batch_size].tolist() for b in loader] == [[9, 3], [5]]
    with pytest.raises(ValueError, match="sampler and shuffle"):
        loader_of(data, sampler=[1], shuffle=True)


@pytest.mark.parametrize("stop", [0, 1, 4, 7])
def test_an_epoch_resumes_in_the_middle(data, stop):
    loader = loader_of(data, shuffle=True)
    list(loader)
    expected = [bytes_of(batch) for batch in loader]
    loader = loader_of(data, shuffle=True)
    list(loader)
    iterator = iter(loader)
    begun = [bytes_of(next(iterator)) for _ in range(stop)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    other = loader_of(data, shuffle=True, seed=77)
    other.load_state_dict(state)
    rest = [bytes_of(batch) for batch in other] if stop < 7 else []
    assert begun + rest == expected
    if stop == 7:
        assert (state["epoch"], state["batch"]) == (2, 0)
    with pytest.raises(ValueError, match="batch_size 16, not 8"):
        loader_of(data, batch_size=8).load_state_dict(state)


def test_a_pickled_loader_resumes_at_its_position(data):
    loader = loader_of(data, shuffle=True, weight_attr="edge_attr", num_threads=2)
    expected = [bytes_of(batch) for batch in loader]
    loader.set_epoch(0)
    iterator = iter(loader)
    next(iterator)
    other = pickle.loads(pickle.dumps(loader))
    assert [bytes_of(batch) for batch in other] == expected[1:]
    assert [bytes_of(batch) for batch in iterator] == expected[1:]


def test_two_iterators_do_not_disturb_each_other(data):
    loader = loader_of(data, shuffle=True)
    expected = [[bytes_of(batch) for batch in loader] for _ in range(2)]
    loader.set_epoch(0)
    first, second = iter(loader), iter(loader)
    pairs = [(bytes_of(a), bytes_of(b)) for a, b in zip(first, second)]
    assert pairs == list(zip(*expected))


def test_batches_outlive_their_loader(data):
    batches = [batch for batch in loader_of(data, num_threads=2)]
    before = [bytes_of(batch) for batch in batches]
    # other batches must not reuse memory that is still referenced
    for _ in range(3):
        list(loader_of(data, seed=9))
    assert [bytes_of(batch) for batch in batches] == before
    view = batches[0].x[1:3]
    expected = view.copy()
    del batches
    list(loader_of(data, seed=9))
    assert (view == expected).all()


def test_calling_a_loader_samples_the_given_positions(data):
    loader = loader_of(data, input_nodes=[5, 6, 7])
    assert loader([0]).n_id[0] == 5 and loader([-1, 1]).n_id[:2].tolist() == [7, 6]
    with pytest.raises(ValueError, match="3 inputs"):
        loader([3])


def test_transforms_change_batches_and_may_fail(data):
    def transform(batch):
        if batch.n_id[0] == 32:
            raise KeyError("third")
        batch.double = batch.x * 2
        return batch

    loader = loader_of(data, transform=transform, num_threads=2)
    iterator = iter(loader)
    for _ in range(2):
        batch = next(iterator)
        assert (batch.double == 2 * data.x[batch.n_id]).all()
    with pytest.raises(KeyError, match="third"):
        next(iterator)
    # the batches that were made ahead are not lost
    assert next(iterator).n_id[0] == 48


def test_rows_of_every_type_are_gathered():
    base = make_data()
    types = ["?", "i1", "u2", "f2", "i4", "f8", ">f4", "c16", "S5", "M8[s]"]
    values = {f"a{i}": np.arange(100).astype(t) for i, t in enumerate(types)}
    values |= {"deep": np.arange(600).reshape(100, 2, 3), "empty": np.zeros((100, 0), np.float32)}
    batch = next(iter(loader_of({"edge_index": base.edge_index, "num_nodes": 100, **values})))
    for name, value in values.items():
        assert batch[name].dtype == value.dtype and (batch[name] == value[batch.n_id]).all(), name


def test_strided_and_read_only_arrays_are_accepted(data):
    x = np.arange(400, dtype=np.float32).reshape(100, 4)
    x.flags.writeable = False
    edges = np.asfortranarray(data.edge_index)
    batch = next(iter(loader_of({"edge_index": edges, "x": x[:, ::2]})))
    assert (batch.x == x[batch.n_id][:, ::2]).all()
    assert (batch.n_id[batch.edge_index] == data.edge_index[:, batch.e_id]).all()
    for dtype in (np.int32, np.uint32, np.uint64):
        other = next(iter(loader_of({"edge_index": data.edge_index.astype(dtype), "x": x})))
        assert other.n_id.tolist() == batch.n_id.tolist()


def test_datasets_are_accepted(sbm):
    whole = sbm.edge_index
    for batch in loader_of(sbm, input_nodes=sbm.train_mask, batch_size=500):
        assert (batch.x == sbm.x[batch.n_id]).all() and (batch.y == sbm.y[batch.n_id]).all()
        assert (batch.train_mask == sbm.train_mask[batch.n_id]).all()
        assert (batch.n_id[batch.edge_index] == whole[:, batch.e_id]).all()
