"""Models of links as ONNX, run by onnxruntime: scores of pairs and embeddings."""

import json

import numpy as np
import pytest

import graphmill

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

OPTIONS = {"epochs": 1, "hidden": 8, "batch_size": 64, "seed": 3, "progress": False}
#: more candidates than a node has
ALL = 1000


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    out = tmp_path_factory.mktemp("links") / "friends"
    return graphmill.generate(nodes=120, classes=4, dim=8, seed=2, out=out)


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
    """Authors of papers, with features of different widths and of the edges."""
    rng = np.random.default_rng(6)
    nodes = {kind: {"x": rng.normal(size=(n, width)).astype(np.float32)} for kind, n, width in [("author", 30, 3), ("paper", 50, 5)]}
    ends = rng.integers(0, [[30], [50]], (2, 200))
    x = rng.normal(size=(200, 2)).astype(np.float32)
    edges = {("author", "writes", "paper"): {"edge_index": ends, "x": x}, ("paper", "by", "author"): {"edge_index": ends[::-1], "x": x}}
    path = tmp_path_factory.mktemp("papers") / "papers"
    graphmill.TypedDataset.from_arrays(nodes, edges, {}, name="papers").save(path)
    return graphmill.TypedDataset(path)


def exported(run, path):
    """The model of a run in onnxruntime, and its options."""
    graphmill.export_model(run, "onnx", path)
    model = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return model, json.loads(model.get_modelmeta().custom_metadata_map["model"])


def run_on(model, inputs):
    """Outputs by name."""
    read = [value.name for value in model.get_inputs()]
    names = [value.name for value in model.get_outputs()]
    return dict(zip(names, model.run(None, {name: inputs[name] for name in read})))


def whole(data, layers):
    """The whole graph as the block of every layer, for one type."""
    x, ends = np.asarray(data.x, dtype=np.float32), np.asarray(data.edge_index, dtype=np.int64)
    degree = np.bincount(ends[1], minlength=len(x)) + 1.0
    inputs = {"x": x}
    for layer in range(layers):
        inputs[f"edge_index.{layer}"] = ends
        inputs[f"num_dst.{layer}"] = np.array([len(x)])
        inputs[f"edge_weight.{layer}"] = (1 / np.sqrt(degree[ends[0]] * degree[ends[1]])).astype(np.float32)
        inputs[f"self_weight.{layer}"] = (1 / degree).astype(np.float32)
    return inputs


def whole_typed(data, layers):
    """The whole graph as the block of every layer, for several types."""
    inputs = {}
    for kind in data.node_types:
        nodes = data.nodes(kind)
        inputs[f"nodes.{kind}"] = np.arange(nodes.num_nodes)
        inputs[f"x.{kind}"] = None if nodes.x is None else np.asarray(nodes.x, dtype=np.float32)
        for layer in range(layers):
            inputs[f"num_dst.{layer}.{kind}"] = np.array([nodes.num_nodes])
    for kind in data.edge_types:
        edges = data.edges(kind)
        for layer in range(layers):
            inputs[f"edge_index.{layer}.{':'.join(kind)}"] = np.asarray(edges.edge_index, dtype=np.int64)
            inputs[f"edge_attr.{layer}.{':'.join(kind)}"] = edges.x
    return inputs


def near(ours, theirs):
    """Whether values differ by roundings alone, relative to the largest."""
    return ours.shape == theirs.shape and np.abs(ours - theirs).max() < 1e-5 * np.abs(theirs).max()


def pairs_of(found):
    return np.stack([found.nodes, found.candidates]).astype(np.int64)


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
def test_scores_of_pairs_and_embeddings_agree(friends, tmp_path, options):
    run = tmp_path / "run"
    config = graphmill.train(friends, task="link", out=run, **{"fanout": [3, 3], **OPTIONS, **options}).config
    model, described = exported(run, tmp_path / "model.onnx")
    assert described["decoder"]["name"] == options["decoder"]
    found = graphmill.recommend(run, k=ALL, all_edges=True)
    blocks = config.layers * (config.hops if config.model == "mixhop" else 1)
    out = run_on(model, {**whole(friends, blocks), "pairs": pairs_of(found)})
    assert list(out) == ["embeddings", "scores"] and len(out["scores"]) > 10_000
    assert near(out["scores"], found.scores)
    assert near(out["embeddings"], np.asarray(graphmill.embed(run, all_edges=True)))


@pytest.mark.parametrize("decoder", ["bilinear", "distmult", "complex", "transe", "rotate"])
def test_relations_have_own_parameters(facts, tmp_path, decoder):
    run = tmp_path / "run"
    graphmill.train(facts, task="link", model="rgcn", decoder=decoder, fanout=[3, 3], out=run, **OPTIONS)
    model, described = exported(run, tmp_path / "model.onnx")
    (kind,) = facts.node_types
    for r, of in enumerate(described["relations"]):
        found = graphmill.recommend(run, k=ALL, relation=of["name"], all_edges=True)
        pairs = pairs_of(found)
        given = {f"pairs.{kind}:{kind}": pairs, f"relation.{kind}:{kind}": np.full(pairs.shape[1], r)}
        out = run_on(model, {**whole_typed(facts, 2), **given})
        assert len(found.scores) > 500 and near(out[f"scores.{kind}:{kind}"], found.scores)
        assert near(out[f"embeddings.{kind}"], np.asarray(graphmill.embed(run, all_edges=True)))
    assert len(described["relations"]) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"model": "rsage", "decoder": "dot", "norm": "layer"},
        {"model": "rgat", "heads": 2, "decoder": "mlp"},
        {"model": "hgt", "heads": 2, "decoder": "cosine"},
        {"model": "simple-hgn", "heads": 2, "decoder": "distmult"},
        {"model": "gine"},
        {"model": "gatv2-edge", "heads": 2},
        {"model": "sage-edge"},
        {"model": "edge-gated", "norm": "batch"},
    ],
    ids=str,
)
def test_pairs_of_several_types(papers, tmp_path, options):
    run = tmp_path / "run"
    graphmill.train(papers, task="author:writes:paper", fanout=[3, 3], out=run, **{**OPTIONS, **options})
    model, _ = exported(run, tmp_path / "model.onnx")
    found = graphmill.recommend(run, k=ALL, all_edges=True)
    out = run_on(model, {**whole_typed(papers, 2), "pairs.author:paper": pairs_of(found)})
    assert list(out) == ["embeddings.author", "embeddings.paper", "scores.author:paper"]
    assert len(found.scores) > 1000 and near(out["scores.author:paper"], found.scores)
    for kind in papers.node_types:
        assert near(out[f"embeddings.{kind}"], np.asarray(graphmill.embed(run, node_type=kind, all_edges=True)))


def test_relations_between_several_types_are_scored_apart(tmp_path):
    rng = np.random.default_rng(9)
    nodes = {kind: {"x": rng.normal(size=(n, 3)).astype(np.float32)} for kind, n in [("author", 30), ("paper", 50)]}
    ends = {("author", "writes", "paper"): [[30], [50]], ("paper", "cites", "paper"): [[50], [50]]}
    edges = {kind: {"edge_index": rng.integers(0, most, (2, 200))} for kind, most in ends.items()}
    of = {"train": np.arange(160), "valid": np.arange(160, 180), "test": np.arange(180, 200)}
    tasks = {kind[1]: {"on": kind, **of} for kind in edges}
    papers = graphmill.TypedDataset.from_arrays(nodes, edges, tasks, name="papers")
    assert papers.task("cites").kind == "link-prediction" and len(papers.task("cites").train) == 160
    run = tmp_path / "run"
    papers.save(tmp_path / "papers")
    graphmill.train(tmp_path / "papers", task="link", model="rsage", decoder="distmult", fanout=[3, 3], out=run, **OPTIONS)
    model, described = exported(run, tmp_path / "model.onnx")
    given = {}
    found = {}
    for r, of in enumerate(described["relations"]):
        ends = f"{of['edge_type'][0]}:{of['edge_type'][2]}"
        found[ends] = graphmill.recommend(run, k=ALL, relation=of["name"], all_edges=True)
        pairs = pairs_of(found[ends])
        given |= {f"pairs.{ends}": pairs, f"relation.{ends}": np.full(pairs.shape[1], r)}
    out = run_on(model, {**whole_typed(papers, 2), **given})
    assert set(found) == {"author:paper", "paper:paper"}
    for ends, expected in found.items():
        assert near(out[f"scores.{ends}"], expected.scores)


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
    run = tmp_path / "run"
    graphmill.train(facts, model="embedding", out=run, **{**OPTIONS, **options})
    model, described = exported(run, tmp_path / "model.onnx")
    (kind,) = facts.node_types
    for r, of in enumerate(described["relations"]):
        found = graphmill.recommend(run, k=ALL, relation=of["name"])
        pairs = pairs_of(found)
        out = run_on(model, {f"pairs.{kind}:{kind}": pairs, f"relation.{kind}:{kind}": np.full(pairs.shape[1], r)})
        assert near(out[f"scores.{kind}:{kind}"], found.scores)


def test_lightgcn_is_exported_after_its_propagation(tmp_path):
    source = tmp_path / "from"
    source.mkdir()
    rng = np.random.default_rng(7)
    liked = {user: rng.choice(20, 6, replace=False).tolist() for user in range(25)}
    for part, kept in [("train", slice(0, 5)), ("test", slice(5, 6))]:
        (source / f"{part}.txt").write_text("".join(f"u{u} {' '.join(f'i{i}' for i in liked[u][kept])}\n" for u in liked))
    shop = graphmill.import_dataset("interactions", source, tmp_path / "shop")
    graphmill.train(shop, model="lightgcn", layers=2, out=tmp_path / "run", **OPTIONS)
    model, _ = exported(tmp_path / "run", tmp_path / "model.onnx")
    found = graphmill.recommend(tmp_path / "run", k=ALL)
    out = run_on(model, {f"pairs.{':'.join(shop.node_types)}": pairs_of(found)})
    assert len(found.scores) == 25 * 14 and near(*out.values(), found.scores)
    (tmp_path / "shop").rename(tmp_path / "moved")
    with pytest.raises(ValueError, match="dataset"):
        graphmill.export_model(tmp_path / "run", "onnx", tmp_path / "other.onnx")


def test_what_pairs_of_blocks_do_not_give_is_refused(friends, tmp_path):
    options = {"model": "pinsage", "sampler": "random-walk", "fanout": [3, 3]}
    graphmill.train(friends, task="link", out=tmp_path / "walks", **{**OPTIONS, **options})
    with pytest.raises(ValueError, match="sampler random-walk weights the neighbours"):
        graphmill.export_model(tmp_path / "walks", "onnx", tmp_path / "walks.onnx")
