"""Feature rows of several types and of links through caches and from disk: the same batches as without tiers."""

import pickle

import numpy as np
import pytest

import graphmill
from graphmill import dgl
from conftest import bytes_of

AUTHORS, PAPERS = 900, 2000
WRITES, WRITTEN = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
CITES, HOLDS = ("paper", "cites", "paper"), ("venue", "holds", "paper")
#: bytes of the rows of authors (f32) and papers (f16)
BYTES = AUTHORS * 24 * 4 + PAPERS * 10 * 2


def make():
    """Authors and papers with features of two widths and types, venues without; some nodes are read more often."""
    rng = np.random.default_rng(1)
    hot = lambda count, edges: (count * rng.random(edges) ** 3).astype(np.int64)
    writes = np.stack([hot(AUTHORS, 9000), rng.integers(0, PAPERS, 9000)])
    return graphmill.TypedDataset.from_arrays(
        {
            "author": {"x": rng.normal(size=(AUTHORS, 24)).astype(np.float32)},
            "paper": {"x": rng.normal(size=(PAPERS, 10)).astype(np.float16)},
            "venue": {"num_nodes": 7},
        },
        {
            WRITES: {"edge_index": writes, "x": np.arange(9000, dtype=np.float32)},
            WRITTEN: {"edge_index": writes[::-1].copy()},
            CITES: {"edge_index": np.stack([hot(PAPERS, 8000), rng.integers(0, PAPERS, 8000)]), "weight": rng.random(8000, np.float32)},
            HOLDS: {"edge_index": np.stack([np.arange(PAPERS) % 7, np.arange(PAPERS)])},
        },
        {"topic": {"on": "paper", "y": np.arange(PAPERS) % 3, "train": np.arange(500)}},
    )


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("typed") / "library"
    make().save(path)
    return graphmill.TypedDataset(path)


@pytest.fixture(scope="module")
def one_type(tmp_path_factory):
    """A dataset of one type in a directory."""
    path = tmp_path_factory.mktemp("one") / "it"
    return graphmill.generate(out=path, nodes=3000, classes=4, dim=20, degree=8, degree_exponent=2.2, seed=2, progress=False)


OPTIONS = {"output": "numpy", "seed": 0, "batch_size": 64, "shuffle": True}
LOADERS = {
    "neighbor": lambda data, **tiers: graphmill.NeighborLoader(data, [4, 3], ("paper", np.arange(500)), **OPTIONS, **tiers),
    "disjoint": lambda data, **tiers: graphmill.NeighborLoader(data, [3, 2], ("author", np.arange(200)), disjoint=True, **OPTIONS, **tiers),
    "weighted": lambda data, **tiers: graphmill.NeighborLoader(data, [4, 3], ("paper", np.arange(500)), weight_attr="edge_weight", **OPTIONS, **tiers),
    "no hops": lambda data, **tiers: graphmill.NeighborLoader(data, [], ("paper", np.arange(500)), **OPTIONS, **tiers),
    "hgt": lambda data, **tiers: graphmill.HGTLoader(data, {"author": [40, 30], "paper": [60, 40], "venue": [2, 2]}, ("paper", np.arange(500)), **OPTIONS, **tiers),
    "links": lambda data, **tiers: graphmill.LinkNeighborLoader(data, [4, 3], (WRITES, data.edges(WRITES).edge_index[:, :700]), neg_sampling="binary", **OPTIONS, **tiers),
    "triplets": lambda data, **tiers: graphmill.LinkNeighborLoader(data, [3], (CITES, data.edges(CITES).edge_index[:, :300]), neg_sampling="triplet", **OPTIONS, **tiers),
    "positives": lambda data, **tiers: graphmill.LinkNeighborLoader(data, [3, 2], HOLDS, **OPTIONS, **tiers),
}
CHAINS = [
    {"cache_ratio": 0.2},
    {"cache_ratio": 0.0},
    {"cache_ratio": 1.0, "cache": "degree"},
    {"cache_ratio": 0.3, "cache": "lru"},
    {"host_budget": BYTES // 2, "cache": "presc:1"},
    {"host_budget": BYTES // 2, "cache": "s3-fifo"},
    {"host_budget": 1},
    {"host_budget": "1G"},
    {
        "devices": "virtual:2",
        "cache_ratio": 0.1,
        "cache": "fifo",
        "host_budget": BYTES // 2,
        "host_cache": "degree",
    },
]


def name_of(chain):
    return ",".join(f"{name}={value}" for name, value in chain.items())


def contents(batch):
    """Contents of a batch of one type or of several, as bytes."""
    if not hasattr(batch, "_stores"):
        return bytes_of(batch)
    return {kind: {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in store.items()} for kind, store in batch._stores.items()}


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("chain", CHAINS, ids=name_of)
def test_batches_of_several_types_are_those_without_tiers(stored, loader, chain):
    plain, tiered = LOADERS[loader](stored), LOADERS[loader](stored, num_threads=2, **chain)
    assert plain.tiers is None and plain.traffic() is None
    assert tiered.tiers.startswith("feature rows: ") and tiered.traffic()["hit_rate"] is None
    rows = {"author": 0, "paper": 0}
    for _ in range(2):
        for expected, batch in zip(plain, tiered, strict=True):
            assert contents(batch) == contents(expected)
            assert batch["author"].x.dtype == np.float32 and batch["paper"].x.dtype == np.float16
            for kind in rows:
                # a node of several trees is read once
                rows[kind] += len(np.unique(batch[kind].n_id))
    traffic = tiered.traffic()
    assert set(traffic) == {"device", "peer", "host", "disk", "hit_rate"}
    total = sum(rows.values())
    assert sum(traffic[tier]["rows"] for tier in ("device", "peer", "host", "disk")) == total
    if "devices" in chain:
        assert "2 devices hold" in tiered.tiers and traffic["device"]["rows"] + traffic["peer"]["rows"] > 0
        return
    assert traffic["device"]["rows"] == traffic["peer"]["rows"] == 0
    assert traffic["hit_rate"] == traffic["host"]["rows"] / total
    if chain in ({"cache_ratio": 0.0}, {"host_budget": 1}):
        assert traffic["host"]["rows"] == 0 and traffic["disk"]["bytes"] >= rows["author"] * 96 + rows["paper"] * 20
    elif chain == {"host_budget": "1G"} or chain.get("cache_ratio") == 1.0 and loader not in ("no hops", "positives"):
        assert traffic["hit_rate"] == 1.0 and traffic["disk"]["rows"] == 0


def test_hottest_rows_of_all_types_have_a_higher_hit_rate_than_random_ones(stored):
    # seeds of links and their negatives are spread evenly over the nodes
    for loader, factor in (("neighbor", 1.3), ("hgt", 1.3), ("links", 1.2)):
        rates = {}
        for cache in ("random", "degree", "auto"):
            tiered = LOADERS[loader](stored, cache=cache, cache_ratio=0.1)
            list(tiered)
            rates[cache] = tiered.traffic()["hit_rate"]
        assert min(rates["degree"], rates["auto"]) > factor * rates["random"], (loader, rates)


@pytest.mark.parametrize("chain", [{"cache_ratio": 0.2}, {"cache_ratio": 0.1, "cache": "lru"}, {"host_budget": 3000 * 20 * 2, "cache": "degree"}, {"host_budget": "1G"}], ids=name_of)
@pytest.mark.parametrize("negatives", [None, "binary"])
def test_links_of_one_type_support_tiers(one_type, chain, negatives):
    def make(**tiers):
        edges = one_type.edge_index[:, ::40]
        return graphmill.LinkNeighborLoader(one_type, [4, 3], edges, neg_sampling=negatives, **OPTIONS, **tiers)

    tiered, rows = make(num_threads=2, **chain), 0
    for expected, batch in zip(make(), tiered, strict=True):
        assert contents(batch) == contents(expected)
        rows += len(np.unique(batch.n_id))
    traffic = tiered.traffic()
    assert traffic["host"]["rows"] + traffic["disk"]["rows"] == rows
    assert traffic["hit_rate"] == 1.0 if chain == {"host_budget": "1G"} else 0 < traffic["hit_rate"] < 1
    assert "the host holds" in tiered.tiers


def test_blocks_of_several_types_support_tiers(stored):
    seeds = {"paper": np.arange(300), "author": np.arange(100)}
    options = {"batch_size": 100, "seed": 0, "output": "numpy"}
    for sampler in (dgl.NeighborSampler([3, 4]), dgl.NeighborSampler([20, 30], sampler="hgt"), dgl.NeighborSampler([3], sampler="weighted", replace=True)):
        tiered, rows = dgl.DataLoader(stored, seeds, sampler, cache_ratio=0.2, **options), 0
        for (nodes, _, blocks), (same, _, others) in zip(tiered, dgl.DataLoader(stored, seeds, sampler, **options), strict=True):
            assert all((nodes[kind] == same[kind]).all() for kind in nodes)
            feat, other = blocks[0].srcdata["feat"], others[0].srcdata["feat"]
            assert set(feat) == {"author", "paper"} and all(feat[kind].tobytes() == other[kind].tobytes() for kind in feat)
            rows += len(nodes["author"]) + len(nodes["paper"])
        traffic = tiered.traffic()
        assert traffic["host"]["rows"] + traffic["disk"]["rows"] == rows and 0 < traffic["hit_rate"] < 1
    with pytest.raises(ValueError, match="^cache_ratio: with_features=False gathers no rows"):
        dgl.DataLoader(stored, seeds, dgl.NeighborSampler([3]), cache_ratio=0.2, with_features=False, **options)


@pytest.mark.parametrize("loader", ["neighbor", "hgt", "links"])
def test_epochs_are_resumed_and_loaders_pickled(stored, loader):
    tiers = {"cache_ratio": 0.1, "cache": "lru"}
    first = LOADERS[loader](stored, **tiers)
    iterator = iter(first)
    next(iterator), next(iterator)
    state, copied = first.state_dict(), pickle.loads(pickle.dumps(first))
    rest = [contents(batch) for batch in iterator]
    other = LOADERS[loader](stored, **tiers)
    other.load_state_dict(state)
    assert [contents(batch) for batch in other] == rest
    assert copied.tiers == first.tiers and [contents(batch) for batch in copied] == rest
    assert copied.traffic()["disk"]["rows"] > 0
    state["seed"] += 1
    other.load_state_dict(state)
    assert [contents(batch) for batch in other] != rest


def test_invalid_tier_options_are_refused(stored, one_type, tmp_path):
    graphmill.TypedDataset.from_arrays({"a": {"num_nodes": 4}, "b": {"num_nodes": 4}}, {("a", "to", "b"): {"edge_index": np.zeros((2, 3), int)}}).save(tmp_path / "bare")
    bare = graphmill.TypedDataset(tmp_path / "bare")
    for make, options, error, message in [
        (LOADERS["neighbor"], {"cache_ratio": 2}, ValueError, "cache_ratio"),
        (LOADERS["hgt"], {"host_budget": "much"}, ValueError, "host_budget: 'much' is not a size"),
        (LOADERS["links"], {"cache_ratio": 0.1, "cache": "warm"}, ValueError, "unknown policy 'warm'"),
        (LOADERS["neighbor"], {"cache_ratio": 0.1, "cache": "posterior:2"}, ValueError, "use presc:2"),
        (LOADERS["hgt"], {"cache_ratio": 0.1, "cache": "presc-online:1"}, ValueError, "only a run counts its first epochs"),
        (LOADERS["hgt"], {"devices": "cuda:0"}, ValueError, "devices cuda:0"),
        (LOADERS["neighbor"], {"cache": "lru"}, ValueError, "cache"),
        (lambda _, **tiers: LOADERS["hgt"](make_in_memory(), **tiers), {"cache_ratio": 0.1}, ValueError, "in memory only"),
        (lambda _, **tiers: graphmill.NeighborLoader(bare, [2], "b", output="numpy", **tiers), {"cache_ratio": 0.1}, ValueError, "tiers have nothing to hold"),
        (lambda _, **tiers: graphmill.NeighborLoader(one_type, [2], output="numpy", **tiers), {"cache_ratio": 0.1, "cache": "presc-online:1"}, ValueError, "only a run counts"),
        (lambda _, **tiers: graphmill.LinkNeighborLoader(plain_links(), [2], output="numpy", **tiers), {"cache_ratio": 0.1}, TypeError, "cache_ratio: tiers need a graphmill.Dataset, not a Data"),
    ]:
        with pytest.raises(error, match=message):
            make(stored, **options)


def test_errors_of_ids_name_the_argument_as_without_tiers(stored, one_type):
    beyond = np.array([[0, 1], [2, 5000]])
    for tiers in ({}, {"cache_ratio": 0.1}):
        with pytest.raises(ValueError, match=r"edge_label_index\[1\]\[1\] is 5000, but there are 2000 nodes"):
            graphmill.LinkNeighborLoader(stored, [2], (WRITES, beyond), output="numpy", **tiers)
        with pytest.raises(ValueError, match=r"edge_label_index\[1\]\[1\] is 5000, but there are 3000 nodes"):
            graphmill.LinkNeighborLoader(one_type, [2], beyond, output="numpy", **tiers)
        for make in (graphmill.NeighborLoader, graphmill.HGTLoader):
            with pytest.raises(ValueError, match=r"input_nodes\[1\] is -1, but there are 2000 nodes"):
                make(stored, [2], ("paper", np.array([3, -1])), output="numpy", **tiers)


def make_in_memory():
    return make()


def plain_links():
    return graphmill.Data(edge_index=np.array([[0, 1], [1, 2]]), x=np.zeros((3, 1), np.float32))


def test_graphs_of_pytorch_geometric_need_a_stored_dataset(stored, tmp_path):
    pytest.importorskip("torch_geometric")
    data = stored.to_pyg()
    for make in (LOADERS["neighbor"], LOADERS["hgt"]):
        with pytest.raises(TypeError, match="tiers need a graphmill.TypedDataset, not a HeteroData; Dataset.from_pyg"):
            make(data, cache_ratio=0.1)
    graphmill.Dataset.from_pyg(data).save(tmp_path / "converted")
    assert "the host holds" in LOADERS["neighbor"](graphmill.TypedDataset(tmp_path / "converted"), cache_ratio=0.1).tiers
