"""Models of links in PyTorch Geometric: scores of pairs."""

import numpy as np
import pytest
from conftest import HAS_PYG

import graphmill

pytestmark = pytest.mark.skipif(not HAS_PYG, reason="torch and torch_geometric are not installed")

OPTIONS = {"epochs": 1, "hidden": 8, "batch_size": 64, "seed": 3, "progress": False}
#: more candidates than a node has
ALL = 1000


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    out = tmp_path_factory.mktemp("links") / "friends"
    return graphmill.generate(nodes=200, classes=4, dim=8, seed=2, out=out)


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """Triples of three relations between entities."""
    source = tmp_path_factory.mktemp("facts")
    rng = np.random.default_rng(5)
    for part, count in [("train", 150), ("valid", 20), ("test", 20)]:
        ends = rng.integers(0, 30, (count, 2))
        (source / f"{part}.txt").write_text("".join(f"e{h}\t{'abc'[i % 3]}\te{t}\n" for i, (h, t) in enumerate(ends)))
    return graphmill.import_dataset("triples", source, source / "facts")


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """Authors of papers, with features of different widths."""
    rng = np.random.default_rng(6)
    nodes = {kind: {"x": rng.normal(size=(n, width)).astype(np.float32)} for kind, n, width in [("author", 30, 3), ("paper", 50, 5)]}
    ends = rng.integers(0, [[30], [50]], (2, 200))
    edges = {("author", "writes", "paper"): {"edge_index": ends}, ("paper", "by", "author"): {"edge_index": ends[::-1]}}
    path = tmp_path_factory.mktemp("papers") / "papers"
    graphmill.TypedDataset.from_arrays(nodes, edges, {}, name="papers").save(path)
    return graphmill.TypedDataset(path)


def pairs_of(found):
    """Pairs of recommendations, as ids of sources and destinations."""
    import torch

    return torch.as_tensor(np.stack([found.nodes, found.candidates]).astype(np.int64))


def edges_of(data):
    """Edges by edge type."""
    import torch

    return {tuple(kind): torch.as_tensor(np.asarray(data.edges(kind).edge_index), dtype=torch.int64) for kind in data.edge_types}


def near(ours, theirs, tolerance=1e-5):
    """Whether values differ by roundings alone, relative to the largest."""
    theirs = np.asarray(theirs)
    return ours.shape == theirs.shape and np.abs(np.asarray(ours) - theirs).max() < tolerance * np.abs(theirs).max()


def trained_further(model, scores):
    """Takes a step of the module away from the scores of some pairs."""
    import torch

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scores().square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        return scores().numpy()


@pytest.mark.parametrize(
    "options",
    [
        {"model": "sage", "decoder": "dot"},
        {"model": "gcn", "decoder": "cosine", "norm": "batch"},
        {"model": "gat", "heads": 2, "out_heads": 3, "decoder": "bilinear", "embedding_dim": 6},
        {"model": "gatv2", "decoder": "distmult", "residual": "linear"},
        {"model": "gin", "decoder": "complex"},
        {"model": "sage", "decoder": "transe", "sage_combine": "concat"},
        {"model": "mixhop", "hops": 2, "decoder": "rotate", "fanout": [3, 3, 3, 3]},
        {"model": "pinsage", "decoder": "mlp", "decoder_hidden": 5},
    ],
    ids=str,
)
def test_scores_of_pairs_agree_with_recommendations_and_come_back(friends, tmp_path, options):
    import torch

    run = tmp_path / "run"
    graphmill.train(friends, task="link", out=run, **{"fanout": [3, 3], **OPTIONS, **options})
    model = graphmill.load_model(run)
    x, edge_index = torch.as_tensor(np.asarray(friends.x)), torch.as_tensor(np.asarray(friends.edge_index), dtype=torch.int64)
    found = graphmill.recommend(run, k=ALL, all_edges=True)
    pairs = pairs_of(found)
    assert pairs.shape[1] > 30_000
    with torch.no_grad():
        rows = model.encode(x, edge_index)
        assert near(model(x, edge_index, pairs), found.scores)
        assert torch.equal(model.decode(rows, pairs), model(x, edge_index, pairs))
    assert near(rows, graphmill.embed(run, all_edges=True))

    some = pairs[:, ::7]
    expected = trained_further(model, lambda: model(x, edge_index, some))
    graphmill.import_model(run, model, tmp_path / "again")
    again = graphmill.recommend(tmp_path / "again", k=ALL, all_edges=True, dataset=friends)
    scores = {(u, v): score for u, v, score in zip(again.nodes, again.candidates, again.scores)}
    assert near(np.array([scores[u, v] for u, v in some.T.tolist()]), expected) and not near(expected, found.scores[::7], 1e-3)


@pytest.mark.parametrize("decoder", ["bilinear", "distmult", "complex", "transe", "rotate"])
def test_relations_of_typed_models_have_own_parameters(facts, tmp_path, decoder):
    import torch

    run = tmp_path / "run"
    graphmill.train(facts, task="link", model="rgcn", decoder=decoder, fanout=[3, 3], out=run, **OPTIONS)
    model = graphmill.load_model(run)
    with torch.no_grad():
        rows = model.encode({}, edges_of(facts))
    assert near(rows[facts.node_types[0]], graphmill.embed(run, all_edges=True))
    names = [of["name"] for of in model.options["relations"]]
    numbers, pairs, scores = [], [], []
    for r, name in enumerate(names):
        found = graphmill.recommend(run, k=ALL, relation=name, all_edges=True)
        with torch.no_grad():
            ours = model.decode(rows, pairs_of(found), name)
        assert len(ours) > 500 and near(ours, found.scores)
        numbers += [r] * len(ours)
        pairs.append(pairs_of(found))
        scores.append(found.scores)
    with torch.no_grad():
        together = model.decode(rows, torch.cat(pairs, dim=1), torch.tensor(numbers))
    assert len(names) == 3 and near(together, np.concatenate(scores))
    with pytest.raises(ValueError, match="there are several; pass one of"):
        model.decode(rows, pairs[0])
    with pytest.raises(ValueError, match="relation 'z' is unknown"):
        model.decode(rows, pairs[0], "z")


@pytest.mark.parametrize(
    "options",
    [
        {"model": "rsage", "decoder": "dot", "norm": "layer"},
        {"model": "rgat", "heads": 2, "decoder": "mlp"},
        {"model": "hgt", "heads": 2, "decoder": "cosine"},
        {"model": "simple-hgn", "heads": 2, "decoder": "distmult"},
    ],
    ids=str,
)
def test_pairs_of_several_types_are_scored_and_come_back(papers, tmp_path, options):
    import torch

    run = tmp_path / "run"
    graphmill.train(papers, task="author:writes:paper", fanout=[3, 3], out=run, **{**OPTIONS, **options})
    model = graphmill.load_model(run)
    x = {kind: torch.as_tensor(np.asarray(papers.nodes(kind).x)) for kind in papers.node_types}
    found = graphmill.recommend(run, k=ALL, all_edges=True)
    pairs = pairs_of(found)
    with torch.no_grad():
        ours = model(x, edges_of(papers), pairs)
    assert len(ours) > 1000 and near(ours, found.scores)
    expected = trained_further(model, lambda: model(x, edges_of(papers), pairs))
    graphmill.import_model(run, model, tmp_path / "again")
    again = graphmill.recommend(tmp_path / "again", k=ALL, all_edges=True)
    order, theirs = np.lexsort(pairs.numpy()), np.lexsort(pairs_of(again).numpy())
    assert near(again.scores[theirs], expected[order]) and not near(expected, found.scores, 1e-3)


@pytest.mark.parametrize("model", ["gine", "gatv2-edge", "sage-edge", "edge-gated"])
def test_pairs_are_scored_from_edge_features_and_come_back(tmp_path, model):
    import torch

    rng = np.random.default_rng(8)
    nodes = {"place": {"x": rng.normal(size=(40, 3)).astype(np.float32)}}
    edges = {("place", "road", "place"): {"edge_index": rng.integers(0, 40, (2, 200)), "x": rng.normal(size=(200, 2)).astype(np.float32)}}
    graphmill.TypedDataset.from_arrays(nodes, edges, {}, name="roads").save(tmp_path / "roads")
    roads = graphmill.TypedDataset(tmp_path / "roads")
    run = tmp_path / "run"
    graphmill.train(roads, task="link", model=model, fanout=[3, 3], out=run, **OPTIONS)
    module = graphmill.load_model(run)
    kind = ("place", "road", "place")
    x = {"place": torch.as_tensor(np.asarray(roads.nodes("place").x))}
    attr = {kind: torch.as_tensor(np.asarray(roads.edges(kind).x))}
    found = graphmill.recommend(run, k=ALL, all_edges=True)
    pairs = pairs_of(found)
    with torch.no_grad():
        rows = module.encode(x, edges_of(roads), attr)
        assert near(module(x, edges_of(roads), pairs, edge_attr=attr), found.scores)
    assert near(rows["place"], graphmill.embed(run, all_edges=True))
    expected = trained_further(module, lambda: module(x, edges_of(roads), pairs, edge_attr=attr))
    graphmill.import_model(run, module, tmp_path / "again")
    again = graphmill.recommend(tmp_path / "again", k=ALL, all_edges=True)
    order, theirs = np.lexsort(pairs.numpy()), np.lexsort(pairs_of(again).numpy())
    assert near(again.scores[theirs], expected[order]) and not near(expected, found.scores, 1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"decoder": "distmult", "init_scale": 0.5},
        {"decoder": "complex", "init_scale": 0.5},
        {"decoder": "transe", "distance_norm": 2, "gamma": 7},
        {"decoder": "transe"},
        {"decoder": "rotate", "gamma": 7},
    ],
    ids=str,
)
def test_tables_of_embeddings_score_triples(facts, tmp_path, options):
    import torch

    run = tmp_path / "run"
    graphmill.train(facts, model="embedding", out=run, **{**OPTIONS, **options})
    model = graphmill.load_model(run)
    assert np.array_equal(model.encode()[facts.node_types[0]].detach(), graphmill.embed(run))
    for of in model.options["relations"]:
        found = graphmill.recommend(run, k=ALL, relation=of["name"])
        with torch.no_grad():
            assert near(model(pairs_of(found), of["name"]), found.scores)


def test_lightgcn_propagates_over_the_training_edges(tmp_path):
    import torch

    source = tmp_path / "from"
    source.mkdir()
    rng = np.random.default_rng(7)
    liked = {user: rng.choice(20, 6, replace=False).tolist() for user in range(25)}
    for part, kept in [("train", slice(0, 5)), ("test", slice(5, 6))]:
        (source / f"{part}.txt").write_text("".join(f"u{u} {' '.join(f'i{i}' for i in liked[u][kept])}\n" for u in liked))
    shop = graphmill.import_dataset("interactions", source, tmp_path / "shop")
    graphmill.train(shop, model="lightgcn", layers=2, out=tmp_path / "run", **OPTIONS)
    model = graphmill.load_model(tmp_path / "run")
    users, items = ({key: row for row, key in enumerate(shop.nodes(kind).keys)} for kind in shop.node_types)
    train = [(users[f"u{u}"], items[f"i{i}"]) for u in liked for i in liked[u][:5]]
    edge_index = torch.tensor(train).T
    found = graphmill.recommend(tmp_path / "run", k=ALL)
    with torch.no_grad():
        rows = model.encode(edge_index)
        ours = model(pairs_of(found), edge_index=edge_index)
    for kind in shop.node_types:
        assert near(rows[kind], graphmill.embed(tmp_path / "run", node_type=kind))
    assert len(ours) == 25 * 14 and near(ours, found.scores)
    with pytest.raises(ValueError, match="pass them"):
        model(pairs_of(found))
    graphmill.import_model(tmp_path / "run", model, tmp_path / "again")
    assert np.array_equal(graphmill.embed(tmp_path / "again"), graphmill.embed(tmp_path / "run"))


def test_modules_load_without_the_dataset(papers, tmp_path):
    papers.save(tmp_path / "copy")
    for model in ("rgcn", "embedding"):
        graphmill.train(tmp_path / "copy", task="author:writes:paper", model=model, out=tmp_path / model, **OPTIONS)
    (tmp_path / "copy").rename(tmp_path / "moved")
    assert graphmill.load_model(tmp_path / "rgcn").options["relations"][0]["edge_type"] == ["author", "writes", "paper"]
    kinds = graphmill.load_model(tmp_path / "embedding").encode()
    assert {kind: len(rows) for kind, rows in kinds.items()} == {"author": 30, "paper": 50}
