"""A predictor answers what ``predict`` returns, whichever nodes are asked for together."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import graphmill


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("predictor")
    data = graphmill.generate("sbm", nodes=300, classes=4, dim=8)
    out = directory / "run"
    graphmill.train(data, out=out, epochs=1, hidden=8, fanout=[3, 2], batch_size=64)
    return out, data


def test_answers_are_those_of_predict(run):
    out, data = run
    expected = graphmill.predict(out, dataset=data, kind="probabilities")
    classes = graphmill.predict(out, dataset=data)
    predictor = graphmill.Predictor(out, dataset=data)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda v: predictor.predict([v]), range(300)))
    for v, answer in enumerate(answers):
        assert answer.classes[0] == classes[v]
        np.testing.assert_array_equal(answer.scores[0], expected[v])
    drawn = predictor.predict([3, 4, 3], seed=7)
    np.testing.assert_array_equal(drawn.scores[0], drawn.scores[2])
    np.testing.assert_array_equal(drawn.scores[1], predictor.predict([4], seed=7).scores[0])


def test_wrong_questions_are_refused(run):
    out, data = run
    predictor = graphmill.Predictor(out, dataset=data)
    with pytest.raises(TypeError, match="either nodes or keys"):
        predictor.predict()
    with pytest.raises(ValueError, match="has no keys"):
        predictor.predict(keys=["a"])
    with pytest.raises((ValueError, IndexError), match="300"):
        predictor.predict([300])
    assert repr(predictor) == "Predictor(300 nodes, classes)"


def test_new_nodes_are_answered_as_nodes_of_the_dataset(run):
    out, data = run
    predictor = graphmill.Predictor(out, dataset=data)
    x, edges = np.array(data.x), np.array(data.edge_index)
    # the new node has the features and in-neighbours of node 7, whose answer does not read its own edges out
    into = edges[:, edges[1] == 7]
    new = predictor.predict_new(x[7:8], np.stack([into[0], np.full_like(into[0], 300)]))
    expected = predictor.predict([7])
    np.testing.assert_allclose(new.scores, expected.scores, rtol=1e-5)
    assert new.classes[0] == expected.classes[0]
    # the dataset with the nodes has the same answers
    more = {"x": np.concatenate([x, x[:2] + 1]), "y": np.append(data.y, [-1, -1]), "train_mask": data.train, "val_mask": data.valid, "test_mask": data.test}
    joined = np.array([[300, 5, 301, 17], [301, 300, 8, 300]])
    whole = graphmill.Dataset.from_arrays(np.concatenate([edges, joined, joined[::-1]], axis=1), num_classes=4, **more)
    expected = graphmill.predict(out, [300, 301], dataset=whole, kind="probabilities")
    found = predictor.predict_new(x[:2] + 1, joined, undirected=True)
    np.testing.assert_allclose(found.scores, expected, rtol=1e-5)
    assert predictor.predict_new(x[:3]).scores.shape == (3, 4)
    again = [predictor.predict_new(x[:2] + 1, joined, seed=3).scores for _ in range(2)]
    np.testing.assert_array_equal(*again)
    with pytest.warns(UserWarning, match="1 edges between known nodes were left out"):
        predictor.predict_new(x[:1], [[1, 2], [300, 3]])


def test_wrong_new_nodes_are_refused(run):
    out, data = run
    predictor = graphmill.Predictor(out, dataset=data)
    with pytest.raises(TypeError, match="x: expected two dimensions"):
        predictor.predict_new([1.0, 2.0])
    with pytest.raises(ValueError, match="rows of 7 features, but the dataset has 8"):
        predictor.predict_new(np.zeros((1, 7)))
    with pytest.raises(ValueError, match=r"edge_index\[1\]"):
        predictor.predict_new(np.zeros((1, 8)), [[0], [301]])
    with pytest.raises(ValueError, match="edge_index: expected shape"):
        predictor.predict_new(np.zeros((1, 8)), [0, 1])
    with pytest.raises(ValueError, match="edge_weight: expected shape"):
        predictor.predict_new(np.zeros((1, 8)), [[0], [300]], edge_weight=[1.0, 2.0])


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    directory = tmp_path_factory.mktemp("papers")
    data = graphmill.generate("typed", directory / "papers", nodes=240, classes=3, dim=4, seed=3)
    out = directory / "run"
    graphmill.train(data, out=out, model="rgcn", epochs=1, hidden=8, fanout=[3, 2], batch_size=64)
    return out, data


def test_nodes_of_several_types_are_answered_as_by_predict(papers):
    out, data = papers
    expected = graphmill.predict(out, kind="probabilities")
    predictor = graphmill.Predictor(out)
    assert (predictor.node_type, repr(predictor)) == ("paper", "Predictor(120 nodes, classes)")
    np.testing.assert_array_equal(predictor.predict(range(120)).scores, expected)
    np.testing.assert_array_equal(graphmill.Predictor(out, dataset=data).predict([7]).scores[0], expected[7])
    drawn = predictor.predict([3, 4, 3], seed=7)
    np.testing.assert_array_equal(drawn.scores[0], drawn.scores[2])
    np.testing.assert_array_equal(drawn.scores[1], predictor.predict([4], seed=7).scores[0])
    x = np.array(data.nodes("paper").x[:2])
    alone = predictor.predict_new({"paper": x})
    assert alone.scores.shape == (2, 3)
    name = next(of for of in data.edge_types if of[2] == "paper")
    joined = predictor.predict_new({"paper": x}, {name: [[0, 1, 2], [120, 120, 121]]}, undirected=True)
    assert not np.array_equal(joined.scores, alone.scores)
    with pytest.raises(TypeError, match="dicts of edge types"):
        predictor.predict_new({"paper": x}, [[0], [120]])
    with pytest.raises(ValueError, match="'papr'"):
        predictor.predict_new({"papr": x})
    with pytest.raises(ValueError, match="the feature rows name none"):
        predictor.predict_new(x)


def test_columns_of_classes_are_answered_as_by_predict(sectors, tmp_path):
    sectors.save(tmp_path / "data")
    data = graphmill.Dataset(tmp_path / "data")
    out = tmp_path / "run"
    graphmill.train(data, out=out, epochs=1, hidden=8, fanout=[3, 2], batch_size=64)
    predictor = graphmill.Predictor(out)
    assert predictor.task == "columns"
    assert predictor.class_slices == {"sector": slice(0, 3), "region": slice(3, 5)}
    assert predictor.class_names[predictor.class_slices["region"]] == ["north", "south"]
    answers = predictor.predict(range(120))
    np.testing.assert_array_equal(answers.classes, graphmill.predict(out))
    np.testing.assert_array_equal(answers.scores, graphmill.predict(out, kind="probabilities"))
    for columns in predictor.class_slices.values():
        np.testing.assert_allclose(answers.scores[:, columns].sum(axis=1), 1, rtol=1e-5)
    new = predictor.predict_new(np.array(data.x)[7:8])
    assert (new.classes.shape, new.scores.shape) == ((1, 2), (1, 5))
