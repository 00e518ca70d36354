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
