"""Runs in MLflow and Weights & Biases: callbacks of :func:`train`, and a model that MLflow serves.

Each function imports its library when it is called::

    run = graphmill.train(data, out="run", callback=graphmill.loggers.WandbCallback(project="accounts"))

    with mlflow.start_run():
        run = graphmill.train(data, out="run", callback=graphmill.loggers.MlflowCallback())
        graphmill.loggers.log_to_mlflow(run)
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .given import run_directory
from .predictor import Predictor
from .record import Record
from .result import Run, _flat, _needed


def _numbers(record: Record) -> dict[str, float]:
    """Finite numbers of an epoch's record, nested ones under names such as ``stages.sample``."""
    fields = _flat(record.to_dict())
    return {
        name: float(value)
        for name, value in fields.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and np.isfinite(value)
    }


class WandbCallback:
    """Logs the record of every epoch to Weights & Biases: a ``callback`` of :func:`train`.

    Args:
        run: Run of ``wandb`` to log to. ``None`` begins one.
        **init: Arguments of ``wandb.init`` for a new run: ``project``, ``name``, ``mode``, ...

    Raises:
        ModuleNotFoundError: wandb is not installed.
    """

    def __init__(self, run: Any = None, **init: Any) -> None:
        if run is not None and init:
            raise TypeError("WandbCallback: pass either a run or arguments for a new one")
        self.run = run if run is not None else _needed("wandb", "WandbCallback").init(**init)

    def __call__(self, record: Record) -> None:
        self.run.log(_numbers(record), step=record.epoch)

    def finish(self, run: Run) -> None:
        """Logs the options and the scores of the run that was trained, and ends the logging."""
        self.run.config.update(run.config.to_dict(), allow_val_change=True)
        self.run.summary.update(_scores(run))
        self.run.finish()


class MlflowCallback:
    """Logs the record of every epoch to the active run of MLflow: a ``callback`` of :func:`train`.

    Raises:
        ModuleNotFoundError: MLflow is not installed.
    """

    def __init__(self) -> None:
        self._mlflow = _needed("mlflow", "MlflowCallback")

    def __call__(self, record: Record) -> None:
        self._mlflow.log_metrics(_numbers(record), step=record.epoch)


def log_to_mlflow(run: Run, *, name: str = "model", dataset: str | os.PathLike[str] | None = None) -> Any:
    """Logs a run to the active run of MLflow: options, scores, ``report.html``, and the model.

    The model is a ``pyfunc``: it answers for rows with a column ``key`` (keys of a dataset that was
    imported from tables) or ``node`` (ids) with the class and the probabilities of each node, or
    its values. It needs the ``graphmill`` package where it is served.

    Args:
        run: A run in a directory.
        name: Name of the model.
        dataset: Directory of the dataset, which is copied beside the model. ``None`` leaves the
            dataset where it is; the model then serves on machines that have it at the same path.

    Returns:
        Information of MLflow about the logged model.

    Raises:
        ModuleNotFoundError: MLflow is not installed.
        ValueError, OSError: The run has no directory.
    """
    mlflow = _needed("mlflow", "log_to_mlflow")
    directory = run_directory(run)
    mlflow.log_params({name: str(value)[:500] for name, value in run.config.to_dict().items()})
    mlflow.log_metrics(_scores(run))
    mlflow.log_artifact(run.report)
    artifacts = {"run": directory}
    if dataset is not None:
        artifacts["dataset"] = os.fspath(dataset)
    from . import __version__

    return mlflow.pyfunc.log_model(
        name=name,
        python_model=_model(mlflow),
        artifacts=artifacts,
        pip_requirements=[f"graphmill=={__version__}"],
    )


def _scores(run: Run) -> dict[str, float]:
    """Scores of the best epoch and of the test nodes."""
    scores = {f"best_valid_{run.test.metric}": run.best.valid_score, f"test_{run.test.metric}": run.test.score}
    return {name: score for name, score in scores.items() if score is not None}


def _model(mlflow: Any) -> Any:
    """The model that MLflow stores."""

    class Model(mlflow.pyfunc.PythonModel):  # type: ignore[misc,name-defined]
        """Answers of a run for nodes or keys."""

        def load_context(self, context):  # type: ignore[no-untyped-def]
            self.predictor = Predictor(context.artifacts["run"], dataset=context.artifacts.get("dataset"))

        # without types, which MLflow would take for a schema
        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            return answer(self.predictor, model_input)

    return Model()


def answer(predictor: Predictor, rows: Any) -> Any:
    """Answers for a DataFrame with a column ``key`` or ``node``, as a DataFrame.

    It has a column ``class`` (for each of several columns of classes ``class_COLUMN``), and a
    column ``p_CLASS`` for the probability of each class or label (``p_COLUMN_CLASS``), or
    ``value_0`` and so on.

    Raises:
        ValueError: The DataFrame has neither column, or a node or key is unknown.
    """
    pandas = _needed("pandas", "answer")
    column = next((name for name in ("key", "node") if name in rows), None)
    if column is None:
        raise ValueError("the rows have neither a column 'key' nor a column 'node'; name the nodes in one of them")
    asked = rows[column].tolist()
    answers = predictor.predict(keys=asked) if column == "key" else predictor.predict(np.asarray(asked, dtype=np.int64))
    table = {column: asked}
    names = predictor.class_names or [str(i) for i in range(answers.scores.shape[1])]
    if answers.classes is not None and answers.classes.ndim == 1:
        table["class"] = [names[i] for i in answers.classes]
    elif answers.classes is not None:
        columns = predictor.class_slices.items()
        for (name, part), classes in zip(columns, answers.classes.T):
            table[f"class_{name}"] = [names[part][i] for i in classes]
        names = [f"{name}_{of}" for name, part in columns for of in names[part]]
    prefix = "value" if predictor.task == "values" else "p"
    table |= {f"{prefix}_{name}": answers.scores[:, i] for i, name in enumerate(names)}
    return pandas.DataFrame(table)
