"""Feature rows through caches and from disk: the same batches as without tiers."""

import pickle

import numpy as np
import pytest

import graphmill
from graphmill import dgl
from conftest import bytes_of, loader_of, make_data

ROWS, DIM = 3000, 20


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A dataset in a directory, with f32 rows."""
    path = tmp_path_factory.mktemp("tiers") / "f32"
    return graphmill.generate(out=path, nodes=ROWS, classes=4, dim=DIM, degree=8, degree_exponent=2.2, seed=2, progress=False)


@pytest.fixture(scope="module")
def halves(stored, tmp_path_factory):
    """The same dataset with f16 rows."""
    path = tmp_path_factory.mktemp("tiers") / "f16"
    parts = {"train_mask": stored.train, "val_mask": stored.valid, "test_mask": stored.test}
    arrays = {"indptr": stored.indptr, "indices": stored.indices, "layout": "csc", "x": stored.x.astype(np.float16), "y": stored.y}
    graphmill.Dataset.from_arrays(**arrays, **parts).save(path)
    return graphmill.Dataset(path)


HALF = ROWS * DIM * 2
CHAINS = [
    {"cache_ratio": 0.2},
    {"cache_ratio": 0.0},
    {"cache_ratio": 1.0, "cache": "degree"},
    {"cache_ratio": 0.1, "cache": "reverse-pagerank"},
    {"cache_ratio": 0.3, "cache": "fifo"},
    {"cache_ratio": 0.05, "cache": "lru"},
    {"host_budget": HALF, "cache": "sieve"},
    {"host_budget": HALF, "cache": "s3-fifo"},
    {"host_budget": 1},
    {"host_budget": "1G"},
    {"devices": "virtual:2", "cache_ratio": 0.1, "cache": "lfu", "host_budget": HALF, "host_cache": "fifo"},
]


def name_of(chain):
    return ",".join(f"{name}={value}" for name, value in chain.items())


@pytest.mark.parametrize("chain", CHAINS, ids=name_of)
def test_batches_are_those_without_tiers(stored, chain):
    options = {"input_nodes": stored.train, "batch_size": 64, "shuffle": True, "num_neighbors": [4, 3]}
    plain, tiered = loader_of(stored, **options), loader_of(stored, num_threads=2, **options, **chain)
    assert plain.tiers is None and plain.traffic() is None
    assert tiered.traffic()["hit_rate"] is None
    rows = 0
    for _ in range(2):
        for expected, batch in zip(plain, tiered, strict=True):
            assert bytes_of(batch) == bytes_of(expected)
            rows += len(batch.n_id)
    traffic = tiered.traffic()
    assert set(traffic) == {"device", "peer", "host", "disk", "hit_rate"} and traffic["hit_rate"] is not None
    assert sum(traffic[tier]["rows"] for tier in ("device", "peer", "host", "disk")) == rows
    assert traffic["host"]["bytes"] == traffic["host"]["rows"] * DIM * 4
    devices, ratio = chain.get("devices"), chain.get("cache_ratio")
    if devices is None:
        assert traffic["device"]["rows"] == traffic["peer"]["rows"] == 0
        assert traffic["hit_rate"] == traffic["host"]["rows"] / rows
    else:
        assert traffic["device"]["rows"] > 0 and traffic["peer"]["rows"] > 0 and traffic["disk"]["rows"] > 0
        assert "2 devices hold" in tiered.tiers
    if chain in ({"cache_ratio": 0.0}, {"host_budget": 1}):
        assert traffic["host"]["rows"] == 0 and traffic["disk"]["bytes"] >= rows * DIM * 4
    elif ratio == 1.0 or chain == {"host_budget": "1G"}:
        assert traffic["hit_rate"] == 1.0 and traffic["disk"]["rows"] == 0
    else:
        assert 0 < traffic["hit_rate"] < 1
    assert "the host holds" in tiered.tiers


def test_hottest_rows_have_a_higher_hit_rate_than_random_ones(stored):
    options = {"input_nodes": stored.train, "batch_size": 64, "shuffle": True, "num_neighbors": [4, 3], "cache_ratio": 0.1}
    rates = {}
    for cache in ("random", "degree", "presc:2", "auto"):
        loader = loader_of(stored, cache=cache, **options)
        list(loader)
        rates[cache] = loader.traffic()["hit_rate"]
    assert rates["random"] == pytest.approx(0.1, abs=0.06)
    assert min(rates["degree"], rates["presc:2"], rates["auto"]) > 1.5 * rates["random"]


@pytest.mark.parametrize("chain", [{"cache_ratio": 0.2, "cache": "lru"}, {"host_budget": ROWS * DIM, "cache": "degree"}], ids=name_of)
def test_f16_rows_stay_f16(halves, chain):
    options = {"input_nodes": halves.train, "batch_size": 64, "num_neighbors": [4, 3]}
    tiered = loader_of(halves, **options, **chain)
    for expected, batch in zip(loader_of(halves, **options), tiered, strict=True):
        assert batch.x.dtype == np.float16 and bytes_of(batch) == bytes_of(expected)
    assert 0 < tiered.traffic()["hit_rate"] < 1


LRU = {"cache_ratio": 0.1, "cache": "lru"}


@pytest.mark.parametrize(
    "make",
    [
        lambda data, **tiers: loader_of(data, [3, 3], input_nodes=data.train, disjoint=True, **tiers),
        lambda data, **tiers: loader_of(data, [3], input_nodes=[5, 5, 7, 5], replace=True, **tiers),
        lambda data, **tiers: loader_of(data, [-1, 0], input_nodes=data.valid[:64], subgraph_type="induced", **tiers),
        lambda data, **tiers: loader_of(data, [], input_nodes=data.valid[:64], **tiers),
        lambda data, **tiers: graphmill.ShaDowKHopSampler(data, 2, 4, data.train[:64], output="numpy", seed=0, batch_size=8, **tiers),
        lambda data, **tiers: graphmill.GraphSAINTNodeSampler(data, 200, 5, output="numpy", seed=0, **tiers),
        lambda data, **tiers: graphmill.GraphSAINTRandomWalkSampler(data, 50, 3, 5, output="numpy", seed=0, sample_coverage=2, **tiers),
        lambda data, **tiers: graphmill.ClusterLoader(
            graphmill.ClusterData(data, 20, method="hash", output="numpy"), batch_size=4, shuffle=True, seed=0, **tiers
        ),
    ],
    ids=["disjoint", "repeated", "induced", "no hops", "shadow", "saint-node", "saint-rw", "cluster"],
)
@pytest.mark.parametrize("chain", [LRU, {"cache_ratio": 0.2}], ids=name_of)
def test_every_loader_supports_tiers(stored, make, chain):
    tiered = make(stored, **chain)
    for expected, batch in zip(make(stored), tiered, strict=True):
        assert bytes_of(batch) == bytes_of(expected)
    assert tiered.traffic()["host"]["rows"] + tiered.traffic()["disk"]["rows"] > 0


@pytest.mark.parametrize("tiers", [{}, LRU], ids=["in place", "tiers"])
def test_errors_of_roots_and_blocks_name_the_argument(stored, tiers):
    for nodes, error, message in [
        ([5, 10**6], ValueError, r"\[1\] is 1000000"),
        ([-1], ValueError, r"\[0\] is -1"),
        ([0.5], TypeError, ": expected integers or a mask"),
        (np.ones(3, bool), ValueError, ": the mask has 3 entries"),
    ]:
        with pytest.raises(error, match="^node_idx" + message):
            graphmill.ShaDowKHopSampler(stored, 2, 4, nodes, output="numpy", **tiers)
        with pytest.raises(error, match="^nids" + message):
            dgl.DataLoader(stored, nodes, dgl.NeighborSampler([3]), output="numpy", **tiers)


def test_blocks_support_tiers(stored):
    sampler = dgl.NeighborSampler([3, 4])
    options = {"batch_size": 100, "seed": 0, "output": "numpy"}
    tiered = dgl.DataLoader(stored, stored.train, sampler, cache_ratio=0.2, **options)
    for (nodes, _, blocks), (same, _, others) in zip(tiered, dgl.DataLoader(stored, stored.train, sampler, **options), strict=True):
        assert (nodes == same).all() and blocks[0].srcdata["feat"].tobytes() == others[0].srcdata["feat"].tobytes()
    assert 0.2 < tiered.traffic()["hit_rate"] < 1
    with pytest.raises(ValueError, match="^cache_ratio: with_features=False gathers no rows"):
        dgl.DataLoader(stored, stored.train, sampler, cache_ratio=0.2, with_features=False, **options)


def test_epochs_are_resumed_and_loaders_pickled(stored):
    def make():
        return loader_of(stored, [4, 3], input_nodes=stored.train, batch_size=64, shuffle=True, **LRU)

    loader = make()
    iterator = iter(loader)
    next(iterator), next(iterator)
    state, copied = loader.state_dict(), pickle.loads(pickle.dumps(loader))
    rest = [bytes_of(batch) for batch in iterator]
    other = make()
    other.load_state_dict(state)
    assert [bytes_of(batch) for batch in other] == rest
    assert copied.tiers == loader.tiers and [bytes_of(batch) for batch in copied] == rest
    assert copied.traffic()["disk"]["rows"] > 0
    # another seed gives other batches
    state["seed"] += 1
    other.load_state_dict(state)
    assert [bytes_of(batch) for batch in other] != rest


def test_invalid_tier_options_are_refused(stored, tmp_path):
    in_memory = graphmill.generate(nodes=100, classes=2, dim=4, seed=0)
    for data, options, error, message in [
        (stored, {"cache_ratio": 2}, ValueError, "cache_ratio"),
        (stored, {"cache_ratio": "half"}, ValueError, "cache_ratio"),
        (stored, {"host_budget": "much"}, ValueError, "host_budget: 'much' is not a size"),
        (stored, {"cache_ratio": 0.1, "cache": "warm"}, ValueError, "unknown policy 'warm'"),
        (stored, {"cache_ratio": 0.1, "placement": "heap"}, ValueError, "placement: 'heap'"),
        (stored, {"devices": "cuda:0"}, ValueError, "devices cuda:0"),
        (stored, {"device_budget": 5}, TypeError, "device_budget"),
        (in_memory, {"cache_ratio": 0.1}, ValueError, "in memory only"),
        (make_data(), {"cache_ratio": 0.1}, TypeError, "cache_ratio: tiers need a graphmill.Dataset, not a Data"),
    ]:
        with pytest.raises(error, match=message):
            loader_of(data, **options)
    graphmill.generate(out=tmp_path / "bare", nodes=100, dim=0, seed=0, progress=False)
    with pytest.raises(ValueError, match="no features"):
        loader_of(graphmill.Dataset(tmp_path / "bare"), cache_ratio=0.1)


def test_a_damaged_file_raises_os_error_or_value_error(stored, tmp_path):
    stored.save(tmp_path / "it")
    dataset = graphmill.Dataset(tmp_path / "it")
    loader = loader_of(dataset, input_nodes=dataset.train, cache_ratio=0.0)
    # the file is open, so that truncation is noticed when rows beyond its end are read
    with open(tmp_path / "it/features.npy", "r+b") as file:
        file.truncate(4096)
    with pytest.raises((OSError, ValueError), match="features.npy"):
        list(loader)
    (tmp_path / "it/features.npy").unlink()
    with pytest.raises(OSError, match="features.npy"):
        loader_of(dataset, input_nodes=dataset.train, cache_ratio=0.0)
