"""A run and its history, to look at, to plot and to predict with."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any, Literal, Mapping, Sequence

import numpy as np

from . import _graphmill, saved, show
from ._frameworks import find
from .dataset import Dataset
from .given import DatasetLike, run_directory
from .record import Record, record_of
from .typed import TypedDataset


class History(list):
    """Records of a run's epochs: a list, and a table for pandas or Polars."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Dictionaries with the fields of each epoch; a nested field is named like ``"stages.sample"``."""
        return [_flat(record.to_dict()) for record in self]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row per epoch, and columns as of :meth:`to_dicts`.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        return _needed("pandas", "to_pandas").DataFrame(self.to_dicts())

    def to_polars(self) -> Any:
        """A Polars DataFrame with a row per epoch, and columns as of :meth:`to_dicts`.

        Raises:
            ModuleNotFoundError: Polars is not installed.
        """
        return _needed("polars", "to_polars").from_dicts(self.to_dicts(), infer_schema_length=None)


class Run:
    """A run: its records, its model, and predictions.

    :func:`train` returns one, and ``Run(path)`` opens a run directory, also of a run that was
    stopped. The fields of the summary are attributes: ``epochs`` (a record per epoch),
    ``best.epoch``, ``best.valid_score``, ``test.metric``, ``test.score``, ``config``, ``dataset``,
    ``seconds``, ... A run that was trained with ``out=None`` has records only.

    Args:
        path: Run directory.

    Raises:
        ValueError, OSError: The directory holds no run, or a record cannot be read.

    Example:
        >>> import graphmill
        >>> data = graphmill.generate(nodes=2000, classes=4, dim=16, signal=0.5, p_in=0.7, seed=1)
        >>> run = graphmill.train(data, epochs=5, hidden=32, batch_size=100, lr=0.01, seed=1)
        >>> run.test.score > 0.9, [record.epoch for record in run.history]
        (True, [1, 2, 3, 4, 5])
        >>> run.config.model, run["config"]["hidden"], run.path
        ('sage', 32, None)
    """

    #: Directory of the run, or ``None`` if nothing was written.
    path: str | None

    def __init__(self, path: str | os.PathLike[str]):
        self.path = run_directory(path)
        self._summary: Record = record_of(_graphmill.summary(self.path))
        self._given: Dataset | TypedDataset | None = None

    @classmethod
    def _of(cls, summary: Record, path: str | None, given: Dataset | TypedDataset | None) -> Run:
        self = cls.__new__(cls)
        self.path, self._summary, self._given = path, summary, given
        return self

    def __getattr__(self, name: str) -> Any:
        # attributes of the instance are not found before they are set, as in unpickling
        if name.startswith("_") or name not in self._summary:
            raise AttributeError(f"'Run' object has no attribute '{name}'")
        return self._summary[name]

    def __getitem__(self, name: str) -> Any:
        return self._summary[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._summary]

    @property
    def history(self) -> History:
        """Records of the epochs: ``epoch``, ``loss``, ``valid_score``, ``seconds``, ..."""
        return History(self._summary.epochs)

    @property
    def config(self) -> Record:
        """All options of the run."""
        config: Record = self._summary.config
        return config

    @property
    def best(self) -> Record:
        """Best epoch, whose model is saved: ``epoch`` and ``valid_score``."""
        best: Record = self._summary.best
        return best

    @property
    def test(self) -> Record:
        """Score of the best model on the test nodes: ``metric`` and ``score``."""
        test: Record = self._summary.test
        return test

    @property
    def report(self) -> str:
        """Path of the page ``report.html``, which is written if it is missing."""
        page = os.path.join(run_directory(self), "report.html")
        return page if os.path.exists(page) else saved.report(self)

    @cached_property
    def model(self) -> Any:
        """The best model as a ``torch.nn.Module``, as of :func:`load_model`."""
        return saved.load_model(self)

    def predict(
        self,
        nodes: Any = None,
        *,
        kind: Literal["classes", "probabilities", "embeddings"] = "classes",
        keys: Sequence[Any] | None = None,
        dataset: DatasetLike | None = None,
        last: bool = False,
        original_ids: bool = False,
        at: int | None = None,
        on: Any = None,
        edges: Any = None,
        propagate: Literal["label-propagation", "correct-and-smooth"] | None = None,
        propagation: Mapping[str, float] | None = None,
    ) -> np.ndarray:
        """Predictions for nodes, as of :func:`predict`; by default of the dataset that the run was trained on."""
        dataset = self._given if dataset is None else dataset
        return saved.predict(
            self,
            nodes,
            kind=kind,
            keys=keys,
            dataset=dataset,
            last=last,
            original_ids=original_ids,
            at=at,
            on=on,
            edges=edges,
            propagate=propagate,
            propagation=propagation,
        )

    def evaluate(
        self,
        dataset: DatasetLike | None = None,
        *,
        last: bool = False,
        propagate: Literal["label-propagation", "correct-and-smooth"] | None = None,
        propagation: Mapping[str, float] | None = None,
    ) -> Record:
        """Scores by every metric, as of :func:`evaluate`; by default on the dataset that the run was trained on."""
        dataset = self._given if dataset is None else dataset
        return saved.evaluate(self, dataset, last=last, propagate=propagate, propagation=propagation)

    def plot(self, ax: Any = None) -> Any:
        """Draws the loss and the validation score of each epoch with Matplotlib.

        Args:
            ax: Axes to draw on. ``None`` creates a figure.

        Returns:
            The axes of the loss. Those of the score share its epochs.

        Raises:
            ModuleNotFoundError: Matplotlib is not installed.
        """
        pyplot = _needed("matplotlib.pyplot", "plot")
        if ax is None:
            _, ax = pyplot.subplots(layout="constrained")
            ax.xaxis.get_major_locator().set_params(integer=True)
        epochs = [record.epoch for record in self.epochs]
        ax.plot(epochs, [record.loss for record in self.epochs], color="C0", label="loss")
        ax.set_xlabel("epoch")
        ax.set_ylabel("loss")
        scored = [record for record in self.epochs if record.valid_score is not None]
        if scored:
            right = ax.twinx()
            name = f"validation {self.test.metric}"
            right.plot([record.epoch for record in scored], [record.valid_score for record in scored], color="C1", label=name)
            right.set_ylabel(name)
            ax.legend(handles=[*ax.get_lines(), *right.get_lines()])
        return ax

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries with the fields of the summary."""
        return self._summary.to_dict()

    def _scores(self) -> list[tuple[str, float | None]]:
        metric = self.test.metric
        return [(f"valid {metric}", self.best.valid_score), (f"test {metric}", self.test.score)]

    def __repr__(self) -> str:
        fields = [] if self.path is None else [repr(self.path)]
        fields += [f"model={self.config.model!r}", f"epochs={len(self.epochs)}", f"best_epoch={self.best.epoch}"]
        fields += [f"{name.replace(' ', '_')}={score:.4f}" for name, score in self._scores() if score is not None]
        return f"Run({', '.join(fields)})"

    def _repr_html_(self) -> str:
        epochs = self.epochs
        rows = [
            ("directory", self.path),
            ("dataset", self.dataset.name),
            ("model", self.config.model),
            ("epochs", len(epochs)),
            ("best epoch", self.best.epoch or None),
            ("last loss", f"{epochs[-1].loss:.4f}" if epochs and epochs[-1].loss is not None else None),
            *((name, None if score is None else f"{score:.4f}") for name, score in self._scores()),
            ("seconds", f"{self.seconds:.1f}"),
        ]
        return show.table("Run", rows)


class Runs(list):
    """Runs that differ by their seeds: a list of :class:`Run`, and the spread of their scores.

    :func:`train` returns one with ``repeat=N``.

    Args:
        runs: The runs, by seed.
        spread: Fields of ``repeat.json``.
        path: Directory of the runs, or ``None`` if nothing was written.
    """

    #: Directory of the runs, or ``None`` if nothing was written.
    path: str | None

    def __init__(self, runs: Sequence[Run], spread: Record, path: str | None):
        super().__init__(runs)
        self.path, self._spread = path, spread

    @property
    def metric(self) -> str:
        """Name of the metric."""
        metric: str = self._spread.metric
        return metric

    @property
    def test(self) -> Record | None:
        """Test scores: ``mean``, ``deviation`` (of a sample), ``min`` and ``max``; ``None`` if a run has none."""
        test: Record | None = self._spread.test
        return test

    @property
    def valid(self) -> Record | None:
        """Validation scores of the best epochs, as :attr:`test`."""
        valid: Record | None = self._spread.valid
        return valid

    def to_dict(self) -> dict[str, Any]:
        """Fields of ``repeat.json``: ``dataset``, ``metric``, ``runs``, ``test`` and ``valid``."""
        return self._spread.to_dict()

    def _scores(self) -> list[tuple[str, str]]:
        spreads = [("valid", self.valid), ("test", self.test)]
        return [
            (f"{name} {self.metric}", f"{spread.mean:.4f} ± {spread.deviation:.4f}")
            for name, spread in spreads
            if spread is not None
        ]

    def __repr__(self) -> str:
        fields = [] if self.path is None else [repr(self.path)]
        return f"Runs({', '.join([*fields, f'{len(self)} runs', *(f'{name} {score}' for name, score in self._scores())])})"

    def _repr_html_(self) -> str:
        rows = [("directory", self.path), ("dataset", self._spread.dataset), ("runs", len(self)), *self._scores()]
        return show.table("Runs", rows)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values, those of nested dictionaries under joined names."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat.update(_flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value})
    return flat


def _needed(module: str, method: str) -> Any:
    """Imports a module that ``method`` needs."""
    found = find(module)
    if found is None:
        package = module.split(".")[0]
        raise ModuleNotFoundError(f"{method}() needs {package}; install it with pip: pip install {package}")
    return found
