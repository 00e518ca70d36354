"""Labels and errors that spread over the graph after a run's model."""

import numpy as np
import pytest

import graphmill

OPTIONS = {"epochs": 2, "hidden": 16, "fanout": [5, 5], "seed": 1, "batch_size": 200}


def test_scores_and_predictions_agree(sbm, tmp_path):
    run = graphmill.train(sbm, out=tmp_path / "run", **OPTIONS)
    y, test = np.asarray(sbm.y), np.asarray(sbm.test_mask)
    for name in ("label-propagation", "correct-and-smooth"):
        scores = run.evaluate(propagate=name, propagation={"propagation_steps": 10})
        assert scores.propagation.method == name and scores.propagation.propagation_steps == 10
        found = run.predict(propagate=name, propagation={"propagation_steps": 10})
        assert (found[test] == y[test]).mean() == pytest.approx(scores.test, abs=1e-6)
    # the baseline does not read the model
    other = graphmill.train(sbm, out=tmp_path / "other", **OPTIONS | {"seed": 2})
    assert np.array_equal(run.predict(propagate="label-propagation"), other.predict(propagate="label-propagation"))


def test_wrong_propagations_are_refused(sbm, tmp_path):
    run = graphmill.train(sbm, out=tmp_path / "run", **OPTIONS)
    with pytest.raises(ValueError, match="known: label-propagation, correct-and-smooth"):
        run.evaluate(propagate="page-rank")
    with pytest.raises(ValueError, match="unknown field `steps`"):
        run.evaluate(propagate="label-propagation", propagation={"steps": 3})
    with pytest.raises(ValueError, match="propagation.steps"):
        run.predict(propagate="label-propagation", propagation={"propagation_steps": 0})
    with pytest.raises(TypeError, match="pass it too"):
        run.predict(propagation={"propagation_steps": 3})
    with pytest.raises(TypeError, match="leave out on"):
        run.predict(on={"id": [1]}, edges={}, propagate="label-propagation")
