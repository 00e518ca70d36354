"""Runs on links, of tables of embeddings and on events: training, scores, candidates, embeddings."""

import numpy as np
import pytest

import graphmill

OPTIONS = {"epochs": 2, "hidden": 8, "batch_size": 64, "seed": 3, "progress": False}


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    out = tmp_path_factory.mktemp("links") / "friends"
    return graphmill.generate(nodes=200, classes=4, dim=8, seed=2, out=out)


def best_by_hand(rows, known, node, k):
    """The best candidates by the product of embeddings, without known ones and the node itself."""
    scores = rows @ rows[node]
    scores[[*known, node]] = -np.inf
    best = np.argsort(-scores, kind="stable")[:k]
    return best, scores[best]


def test_links_are_trained_scored_recommended_and_embedded(friends, tmp_path):
    run = graphmill.train(friends, task="link", out=tmp_path / "run", fanout=[3, 3], **OPTIONS)
    assert run.test.metric == "auc"
    for dataset in (None, friends, friends.path):
        scores = graphmill.evaluate(run, dataset)
        assert scores.test == run.test.score and scores.parts[2].scores["hits@10"] is not None
    rows = graphmill.embed(run)
    assert rows.shape == (200, 8)
    assert np.array_equal(graphmill.embed(run, [5, 3], dataset=friends), rows[[5, 3]])
    assert np.array_equal(graphmill.predict(run, [5], kind="embeddings"), rows[[5]])
    assert not np.array_equal(graphmill.embed(run, all_edges=True), rows)
    found = graphmill.recommend(run, [0, 7], k=5)
    assert found.nodes.tolist() == [0] * 5 + [7] * 5
    sources, destinations = np.asarray(friends.edge_index)
    for i, node in enumerate((0, 7)):
        best, scores = best_by_hand(rows, destinations[sources == node], node, 5)
        assert np.allclose(found.scores[5 * i : 5 * i + 5], scores, rtol=1e-4)
    assert graphmill.recommend(run, k=1, dataset=friends).nodes.tolist() == list(range(200))
    whole = graphmill.recommend(run, [0, 7], k=5, all_edges=True)
    assert whole.scores.tolist() != found.scores.tolist()
    for call, message in [
        (lambda: graphmill.recommend(run, k=0), "k 0"),
        (lambda: graphmill.recommend(run, relation="likes"), "relation: it is for runs"),
        (lambda: graphmill.embed(run, node_type="user"), "node_type"),
        (lambda: graphmill.recommend(run, keys=["a"]), "has no keys"),
        (lambda: graphmill.predict(run), "learned links"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_runs_on_classes_have_no_candidates(friends, tmp_path):
    graphmill.train(friends, out=tmp_path / "run", fanout=[3, 3], **OPTIONS)
    with pytest.raises(ValueError, match="learned no links"):
        graphmill.recommend(tmp_path / "run", [1])
    with pytest.raises(ValueError, match="all_edges"):
        graphmill.embed(tmp_path / "run", all_edges=True)


def test_interactions_are_learned_by_a_table(tmp_path):
    source = tmp_path / "from"
    source.mkdir()
    (source / "train.txt").write_text("ann tea milk\nbob tea cake\neve milk cake\nzed tea\n")
    (source / "test.txt").write_text("ann cake\nbob milk\n")
    shop = graphmill.import_dataset("interactions", source, tmp_path / "shop")
    assert isinstance(shop, graphmill.TypedDataset)
    run = graphmill.train(tmp_path / "shop", model="lightgcn", out=tmp_path / "run", epochs=2, hidden=8, batch_size=4, seed=1)
    assert graphmill.train(shop, model="lightgcn", epochs=2, hidden=8, batch_size=4, seed=1).epochs[-1].loss == run.epochs[-1].loss
    assert run.test.metric == "ndcg@20"
    for dataset in (None, shop, tmp_path / "shop"):
        assert graphmill.evaluate(run, dataset).test == run.test.score
    users, items = (shop.nodes(kind).keys for kind in shop.node_types)
    found = graphmill.recommend(run, k=5)
    # the test edges are known, so no candidate is left for ann and bob
    pairs = {(users[user], items[item]) for user, item in zip(found.nodes, found.candidates)}
    assert pairs == {("eve", "tea"), ("zed", "cake"), ("zed", "milk")}
    one = graphmill.recommend(run, keys=["zed"], k=1)
    assert users[one.nodes].tolist() == ["zed"] and len(one.scores) == 1
    assert users[graphmill.recommend(run, keys=["tea"], sources=True).candidates].tolist() == ["eve"]
    assert graphmill.embed(run, node_type=shop.node_types[1]).shape == (3, 8)
    assert graphmill.embed(run, keys=["eve"]).shape == (1, 8)
    with pytest.raises(ValueError, match="keys are not in"):
        graphmill.recommend(run, keys=["nobody"])
    # a stopped run continues on its dataset
    longer = graphmill.train(out=tmp_path / "run", resume=True, epochs=3)
    assert len(longer.epochs) == 3


def test_values_of_events_are_predicted(tmp_path):
    lines = [f"{e * 7919 % 12} {12 + e * 31 % 7} {e % 5} {e * 60}" for e in range(1, 301)]
    (tmp_path / "ratings.txt").write_text("\n".join(lines) + "\n")
    data = graphmill.import_dataset("temporal", tmp_path / "ratings.txt", tmp_path / "ratings")
    options = {"task": "links-rating", "model": "tgn", "epochs": 1, "hidden": 8, "time_dim": 4, "batch_size": 50}
    run = graphmill.train(data, out=tmp_path / "run", **options)
    values = graphmill.predict(run)
    assert values.shape == (300,) and values.dtype == np.float32
    truths = np.asarray(data.task("links-rating").y).reshape(-1)
    late = np.asarray(data.task("links-rating").test)
    # the file is in the order of times
    assert np.sqrt(np.mean((values[-len(late) :] - truths[late]) ** 2)) == pytest.approx(run.test.score, abs=1e-6)
    assert run.predict([3]).shape == (25,)
    with pytest.raises(ValueError, match="have no probabilities"):
        run.predict(kind="probabilities")


def test_events_are_learned_and_scored(tmp_path):
    lines = ["u,i,ts,label,idx"]
    for e in range(1, 301):
        user = 1 + (e * 7919 + e // 40) % 12
        lines.append(f"{user},{13 + (user * 3 + e // 100) % 8},{e * 60},0,{e}")
    (tmp_path / "ml_visits.csv").write_text("\n".join(lines) + "\n")
    visits = graphmill.import_dataset("events", tmp_path / "ml_visits.csv", tmp_path / "visits")
    run = graphmill.train(visits, model="tgn", out=tmp_path / "run", epochs=1, hidden=8, time_dim=4, batch_size=50)
    assert run.test.metric == "average-precision"
    for dataset in (None, tmp_path / "visits", visits):
        assert graphmill.evaluate(run, dataset).test == run.test.score
    assert graphmill.info(tmp_path / "visits").name == "visits"
    with pytest.raises(ValueError, match="learned links: pass top_k K"):
        graphmill.predict(run)
    for dataset in (None, tmp_path / "visits", visits):
        found = graphmill.recommend(run, [0, 3], k=2, dataset=dataset)
        assert found.nodes.tolist() == [0, 0, 3, 3] and found.scores[0] >= found.scores[1]
    early = graphmill.recommend(run, [0, 3], k=2, at=100 * 60)
    assert early.scores.tolist() != found.scores.tolist()
    with pytest.raises(ValueError, match="all_edges: a run on events"):
        graphmill.recommend(run, all_edges=True)


def test_nodes_are_predicted_by_keys(tmp_path):
    nodes = {"bank": ["x", "x", "y"], "number": [1, 2, 1], "age": [31.0, 20.5, 45.0], "kind": ["a", "b", "a"]}
    edges = {"bank": ["x", "y"], "number": [1, 1], "to_bank": ["y", "x"], "to_number": [1, 2]}
    data = graphmill.Dataset.from_tables(
        nodes, edges, id=["bank", "number"], label="kind", src=["bank", "number"], dst=["to_bank", "to_number"], split="random:100,0,0"
    )
    graphmill.train(data, out=tmp_path / "run", epochs=1, hidden=4, fanout=[2, 2], progress=False)
    expected = graphmill.predict(tmp_path / "run", dataset=data, kind="probabilities")
    found = graphmill.predict(tmp_path / "run", dataset=data, keys=[("y", 1), "x|1"], kind="probabilities")
    assert np.array_equal(found, expected[[2, 0]])
    with pytest.raises(TypeError, match="either nodes or keys"):
        graphmill.predict(tmp_path / "run", [1], keys=["a"], dataset=data)
    with pytest.raises(TypeError, match="not one text"):
        graphmill.predict(tmp_path / "run", keys="a", dataset=data)
    with pytest.raises(ValueError, match="1 of 1 keys are not in"):
        graphmill.predict(tmp_path / "run", keys=[("z", 1)], dataset=data)


def test_links_of_several_types_are_learned(tmp_path):
    papers = graphmill.generate("typed", tmp_path / "papers", nodes=600, classes=3, dim=4, seed=1)
    options = {"task": "author:writes:paper", "epochs": 2, "hidden": 8, "fanout": [4, 4], "batch_size": 64, "metric": "auc"}
    run = graphmill.train(tmp_path / "papers", out=tmp_path / "run", **options)
    assert graphmill.train(papers, **options).epochs[-1].loss == run.epochs[-1].loss
    for dataset in (None, papers, tmp_path / "papers"):
        assert graphmill.evaluate(run, dataset).test == run.test.score
    found = graphmill.recommend(run, [0, 7], k=3)
    assert found.nodes.tolist() == [0, 0, 0, 7, 7, 7] and found.scores[0] >= found.scores[1]
    assert graphmill.recommend(run, [0], k=2, sources=True).nodes.tolist() == [0, 0]
    count = len(papers.nodes("paper").x)
    training = graphmill.embed(run, node_type="paper")
    assert training.shape == (count, 8)
    assert not np.array_equal(training, graphmill.embed(run, node_type="paper", all_edges=True))
    with pytest.raises(ValueError, match="has no embeddings"):
        graphmill.embed(run, node_type="topic")
    with pytest.raises(ValueError, match="learned links"):
        graphmill.predict(run)
