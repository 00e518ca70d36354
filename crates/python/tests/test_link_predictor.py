"""A link predictor answers what ``recommend`` and ``embed`` return, whichever nodes are asked for together."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import graphmill

OPTIONS = {"task": "link", "epochs": 1, "hidden": 8, "fanout": [3, 3], "batch_size": 64, "seed": 3}


@pytest.fixture(scope="module")
def friends(tmp_path_factory):
    directory = tmp_path_factory.mktemp("friends")
    data = graphmill.generate(nodes=200, classes=4, dim=8, seed=2, out=directory / "friends")
    graphmill.train(data, out=directory / "run", **OPTIONS)
    return directory / "run", data


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    directory = tmp_path_factory.mktemp("shop")
    (directory / "from").mkdir()
    (directory / "from" / "train.txt").write_text("ann tea milk\nbob tea cake\neve milk cake\nzed tea\n")
    (directory / "from" / "test.txt").write_text("ann cake\nbob milk\n")
    data = graphmill.import_dataset("interactions", directory / "from", directory / "shop")
    graphmill.train(directory / "shop", model="lightgcn", out=directory / "run", epochs=2, hidden=8, batch_size=4, seed=1)
    return directory / "run", data


def test_answers_are_those_of_recommend_and_embed(friends):
    run, data = friends
    expected = graphmill.recommend(run, k=4)
    for dataset in (None, data, data.path):
        links = graphmill.LinkPredictor(run, dataset=dataset)
        for found, wanted in zip(links.recommend(range(200), k=4), expected):
            np.testing.assert_array_equal(found, wanted)
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda v: links.recommend([v], k=4), range(200)))
    np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), expected.scores)
    order = np.argsort(expected.candidates, kind="stable")
    scores = links.score(expected.nodes[order], expected.candidates[order])
    np.testing.assert_array_equal(scores, expected.scores[order])
    np.testing.assert_array_equal(links.embed([5, 3, 5]), graphmill.embed(run)[[5, 3, 5]])
    every = links.recommend([7], k=1000, include_known=True)
    assert len(every.candidates) == 199 > len(links.recommend([7], k=1000).candidates)
    np.testing.assert_array_equal(links.score(every.nodes, every.candidates), every.scores)
    whole = graphmill.LinkPredictor(run, all_edges=True).recommend([0, 7], k=5)
    np.testing.assert_array_equal(whole.scores, graphmill.recommend(run, [0, 7], k=5, all_edges=True).scores)
    assert (links.relations, links.node_types, repr(links)) == (["link"], [], "LinkPredictor(link)")


def test_users_and_items_are_asked_by_keys(shop):
    run, data = shop
    links = graphmill.LinkPredictor(run)
    assert links.node_types == data.node_types
    users, items = (data.nodes(kind).keys for kind in data.node_types)
    found = links.recommend(keys=["zed", "ann", "eve"], k=5)
    pairs = [(users[user], items[item]) for user, item in zip(found.nodes, found.candidates)]
    assert sorted(pairs) == [("eve", "tea"), ("zed", "cake"), ("zed", "milk")]
    np.testing.assert_array_equal(links.score(keys=pairs), found.scores)
    sources = links.recommend(keys=["tea"], sources=True)
    for one, wanted in zip(sources, graphmill.recommend(run, keys=["tea"], sources=True)):
        np.testing.assert_array_equal(one, wanted)
    kind = data.node_types[1]
    np.testing.assert_array_equal(links.embed(keys=["milk"], node_type=kind), graphmill.embed(run, keys=["milk"], node_type=kind))


def test_wrong_questions_are_refused(friends, shop, tmp_path):
    run, data = friends
    links = graphmill.LinkPredictor(run)
    for error, call, message in [
        (TypeError, lambda: links.recommend(), "either nodes or keys"),
        (TypeError, lambda: links.score([1]), "either source and destination"),
        (ValueError, lambda: links.score([1, 2], [1]), "2 sources for 1 destinations"),
        (ValueError, lambda: links.recommend([1], k=0), "k 0"),
        (ValueError, lambda: links.recommend([1], relation="likes"), "relation 'likes' is unknown"),
        (ValueError, lambda: links.recommend(keys=["a"]), "has no keys"),
        (ValueError, lambda: links.embed([1], node_type="user"), "'user' has no embeddings"),
        ((ValueError, IndexError), lambda: links.embed([200]), "200"),
        (ValueError, lambda: graphmill.LinkPredictor(shop[0], all_edges=True), "reads no edges"),
        (ValueError, lambda: graphmill.LinkPredictor(shop[0]).score(keys=[("nobody", "tea")]), "'nobody'"),
        (ValueError, lambda: graphmill.Predictor(run), "LinkPredictor"),
    ]:
        with pytest.raises(error, match=message):
            call()
    graphmill.train(data, out=tmp_path / "run", epochs=1, hidden=8, fanout=[3, 3])
    with pytest.raises(ValueError, match="learned no links"):
        graphmill.LinkPredictor(tmp_path / "run")


def test_events_are_answered_as_of_a_time(tmp_path):
    lines = ["u,i,ts,label,idx"]
    for e in range(1, 301):
        user = 1 + (e * 7919 + e // 40) % 12
        lines.append(f"{user},{13 + (user * 3 + e // 100) % 8},{e * 60},0,{e}")
    (tmp_path / "ml_visits.csv").write_text("\n".join(lines) + "\n")
    visits = graphmill.import_dataset("events", tmp_path / "ml_visits.csv", tmp_path / "visits")
    run = graphmill.train(visits, model="tgn", out=tmp_path / "run", epochs=1, hidden=8, time_dim=4, batch_size=50)
    links = graphmill.LinkPredictor(run)
    assert links.node_types == ["user", "item"]
    for at in (None, 6000):
        expected = graphmill.recommend(run, [0, 3], k=2, at=at)
        found = links.recommend([0, 3], k=2, at=at)
        np.testing.assert_array_equal(found.candidates, expected.candidates)
        np.testing.assert_array_equal(found.scores, expected.scores)
        np.testing.assert_array_equal(links.score(found.nodes, found.candidates, at=at), expected.scores)
        np.testing.assert_array_equal(links.embed(range(8), node_type="item", at=at), graphmill.embed(run, node_type="item", at=at))
    with pytest.raises(ValueError, match="ranks destinations"):
        links.recommend([0], sources=True)
    # new events, by ids and by keys
    assert (links.num_events, links.end_time) == (300, 18_001)
    before = links.recommend([0, 3], k=8)
    other = graphmill.LinkPredictor(run)
    new = [(e * 7 % 12, e * 5 % 8, 18_000 + 60 * e) for e in range(1, 80)]
    source, destination, times = np.array(new).T
    links.add_events(source, destination, times=times)
    for part in (slice(0, 30), slice(30, 79)):
        keys = [(str(u + 1), str(v + 13)) for u, v in zip(source[part], destination[part])]
        other.add_events(keys=keys, times=times[part])
    assert (links.num_events, links.end_time) == (379, 22_741)
    after = links.recommend([0, 3], k=8)
    assert not np.array_equal(before.scores, after.scores)
    np.testing.assert_array_equal(after.scores, other.recommend([0, 3], k=8).scores)
    np.testing.assert_array_equal(before.scores, links.recommend([0, 3], k=8, at=18_001).scores)
    for message, events in (
        ("none before the last", dict(source=[0], destination=[0], times=[5])),
        ("1 events of 0 features", dict(source=[0], destination=[0], times=[99_999], features=[[1.0]])),
        ("nobody", dict(keys=[("nobody", "13")], times=[99_999])),
    ):
        with pytest.raises(ValueError, match=message):
            links.add_events(**events)


def test_runs_on_links_have_no_times(friends):
    links = graphmill.LinkPredictor(friends[0])
    with pytest.raises(ValueError, match="only runs on streams of events"):
        links.recommend([0], at=5)
    with pytest.raises(ValueError, match="no stream of events"):
        links.add_events([0], [1], times=[5])
