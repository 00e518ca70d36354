"""Loaders of events yield the batches of PyTorch Geometric's, by plain copies of its rules and by itself where it is installed."""

import pickle

import numpy as np
import pytest

import graphmill
from graphmill import LastNeighborLoader, TemporalDataLoader

NODES = 9


def stream(events=50, seed=0):
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, 5, events), rng.integers(5, NODES, events)
    return {
        "src": src,
        "dst": dst,
        "t": np.sort(rng.integers(0, 30, events)),
        "msg": np.arange(2 * events, dtype=np.float32).reshape(-1, 2),
        "name": "stream",
    }


class PlainNeighbors:
    """The last `size` events of each node, newest first."""

    def __init__(self, size):
        self.size, self.events, self.next = size, {}, 0

    def insert(self, src, dst):
        for a, b in zip(src, dst):
            for v, other in ((a, b), (b, a)):
                self.events[v] = [(other, self.next), *self.events.get(v, [])][: self.size]
            self.next += 1

    def __call__(self, n_id):
        rows = [(v, other, event) for v in n_id for other, event in self.events.get(v, [])]
        nodes = sorted({*n_id, *(other for _, other, _ in rows)})
        edges = [[nodes.index(other) for _, other, _ in rows], [nodes.index(v) for v, _, _ in rows]]
        return nodes, edges, [event for _, _, event in rows]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("ratio", [0.0, 0.5, 1.0, 2.3])
@pytest.mark.parametrize("size", [1, 8, 25, 60])
def test_batches_are_consecutive_events(size, ratio, drop_last):
    data = stream()
    loader = TemporalDataLoader(data, size, ratio, drop_last=drop_last, output="numpy", seed=3)
    batches = list(loader)
    assert len(batches) == len(loader) == (50 // size if drop_last else -(-50 // size))
    for first, batch in zip(range(0, 50, size), batches):
        for name in ("src", "dst", "t", "msg"):
            assert np.array_equal(batch[name], data[name][first : first + size])
        assert batch.name == "stream" and batch.msg.base is not None
        ends = [batch.src, batch.dst]
        assert ("neg_dst" in batch) == (ratio > 0)
        if ratio:
            assert len(batch.neg_dst) == round(ratio * len(batch.src)) and batch.neg_dst.dtype == np.int64
            assert data["dst"].min() <= batch.neg_dst.min(initial=5) and batch.neg_dst.max(initial=5) <= data["dst"].max()
            ends.append(batch.neg_dst)
        assert np.array_equal(batch.n_id, np.unique(np.concatenate(ends)))


def test_negatives_depend_on_the_seed_and_the_epoch_and_cover_all_destinations():
    def drawn(loader):
        return np.concatenate([batch.neg_dst for batch in loader])

    loader = TemporalDataLoader(stream(), 8, 4.0, output="numpy", seed=3)
    first, second = drawn(loader), drawn(loader)
    assert set(first) == set(range(5, NODES)) and not np.array_equal(first, second)
    assert np.array_equal(first, drawn(TemporalDataLoader(stream(), 10, 4.0, output="numpy", seed=3)))
    assert not np.array_equal(first, drawn(TemporalDataLoader(stream(), 8, 4.0, output="numpy", seed=4)))


def test_loaders_of_events_resume_and_pickle():
    loader = TemporalDataLoader(stream(), 8, 1.0, output="numpy", seed=3)
    batches = iter(loader)
    next(batches), next(batches)
    again = pickle.loads(pickle.dumps(loader))
    other = TemporalDataLoader(stream(), 8, 1.0, output="numpy", seed=5)
    other.load_state_dict(loader.state_dict())
    expected = [batch.neg_dst.tolist() for batch in batches]
    assert len(expected) == 5
    assert expected == [batch.neg_dst.tolist() for batch in again] == [batch.neg_dst.tolist() for batch in other]


def test_loaders_of_events_call_the_transform_and_take_objects():
    data = graphmill.Data(**stream())
    loader = TemporalDataLoader(data, 8, transform=lambda batch: batch.t.tolist(), output="numpy", shuffle=False)
    assert sum(loader, []) == data.t.tolist()
    assert loader([8, 9]) == data.t[8:16].tolist()


@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize("batch", [1, 7])
def test_last_neighbors_are_those_of_a_plain_list(size, batch):
    data, rng = stream(), np.random.default_rng(1)
    ours, plain = LastNeighborLoader(NODES, size), PlainNeighbors(size)
    for _ in range(2):
        for first in range(0, 50, batch):
            asked = np.unique(rng.integers(0, NODES, 4))
            found, expected = ours(asked), plain(asked.tolist())
            assert [values.dtype for values in found] == [np.int64] * 3
            assert [values.tolist() for values in found] == [expected[0], expected[1], expected[2]]
            ends = data["src"][first : first + batch], data["dst"][first : first + batch]
            ours.insert(*ends)
            plain.insert(*ends)
        # a restored store goes on to the same neighbours
        ours, kept = pickle.loads(pickle.dumps(ours)), ours
        assert [values.tolist() for values in ours(np.arange(NODES))] == [values.tolist() for values in kept(np.arange(NODES))]
        ours.reset_state()
        plain = PlainNeighbors(size)
    assert ours(np.array([4, 2]))[2].size == 0 and ours(np.array([4, 2]))[1].shape == (2, 0)


def test_a_repeated_node_repeats_its_edges():
    last = LastNeighborLoader(4, 2)
    last.insert([0, 1], [2, 2])
    n_id, edge_index, e_id = last([2, 2])
    assert n_id.tolist() == [0, 1, 2] and e_id.tolist() == [1, 0, 1, 0]
    assert edge_index.tolist() == [[1, 0, 1, 0], [2, 2, 2, 2]]


def test_wrong_events_are_rejected_with_the_reason():
    data = stream()
    for change, reason in [
        ({"t": data["t"][::-1]}, "sort the events by time"),
        ({"t": data["t"][1:]}, "50 sources, 50 destinations and 49 times"),
        ({"src": data["src"] - 1}, "src"),
        ({"dst": None}, "'dst' is missing"),
    ]:
        with pytest.raises(ValueError, match=reason):
            TemporalDataLoader({**data, **change}, output="numpy")
    with pytest.raises(TypeError, match="t: expected integers, not float64; .*scale times"):
        TemporalDataLoader({**data, "t": data["t"] / 2}, output="numpy")
    for options, reason in [
        ({"shuffle": True}, "shuffle does not apply"),
        ({"world_size": 2}, "world_size does not apply"),
        ({"neg_sampling_ratio": -1.0}, "neg_sampling_ratio -1.0"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"output": "list"}, "output 'list'"),
    ]:
        with pytest.raises(ValueError, match=reason):
            TemporalDataLoader(data, **options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nodes'"):
        TemporalDataLoader(data, nodes=3)
    with pytest.raises(ValueError, match="0 events for each node"):
        LastNeighborLoader(3, 0)
    last = LastNeighborLoader(3, 2)
    with pytest.raises(ValueError, match="3"):
        last.insert([0], [3])
    with pytest.raises(ValueError, match="2 sources and 1 destinations"):
        last.insert([0, 1], [2])
    with pytest.raises(TypeError, match="n_id: expected integers"):
        last([0.5])
    with pytest.raises(ValueError, match="into a store of the same size"):
        last.load_state_dict(LastNeighborLoader(4, 2).state_dict())


def test_batches_are_those_of_pytorch_geometric():
    torch = pytest.importorskip("torch")
    loaders, data = pytest.importorskip("torch_geometric.loader"), pytest.importorskip("torch_geometric.data")
    values = {name: torch.from_numpy(value) for name, value in stream().items() if name != "name"}
    events = data.TemporalData(**values)
    for options in ({"batch_size": 8}, {"batch_size": 7, "drop_last": True}, {"batch_size": 60}):
        ours, theirs = list(TemporalDataLoader(events, **options)), list(loaders.TemporalDataLoader(events, **options))
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert type(a) is type(b) and sorted(a.keys()) == sorted(b.keys())
            assert all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in b.keys())
    ours = next(iter(TemporalDataLoader(events, 8, neg_sampling_ratio=1.5)))
    theirs = next(iter(loaders.TemporalDataLoader(events, 8, neg_sampling_ratio=1.5)))
    assert ours.neg_dst.shape == theirs.neg_dst.shape and ours.neg_dst.dtype == theirs.neg_dst.dtype


@pytest.mark.parametrize("size", [1, 3, 10])
def test_last_neighbors_are_those_of_pytorch_geometric(size):
    torch = pytest.importorskip("torch")
    tgn = pytest.importorskip("torch_geometric.nn.models.tgn")
    ours, theirs = LastNeighborLoader(NODES, size), tgn.LastNeighborLoader(NODES, size)
    data = stream()
    src, dst = torch.from_numpy(data["src"]), torch.from_numpy(data["dst"])
    for i in range(50):
        asked = torch.arange(i % 3, NODES, 2)
        for a, b in zip(ours(asked), theirs(asked)):
            assert torch.equal(a, b)
        # of one event at a time, no node has more than `size`
        ours.insert(src[i : i + 1], dst[i : i + 1])
        theirs.insert(src[i : i + 1], dst[i : i + 1])
    ours.reset_state()
    theirs.reset_state()
    assert all(torch.equal(a, b) for a, b in zip(ours(asked), theirs(asked)))
