"""Fixtures and helpers. `test_pyg.py` and `test_accuracy.py` need torch and torch_geometric."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import graphmill

HAS_PYG = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torch_geometric") is not None
#: root of the repository
ROOT = Path(__file__).parents[3]


def random_edges(nodes, edges, seed=0):
    return np.random.default_rng(seed).integers(0, nodes, (2, edges))


def make_data(nodes=100, edges=500, seed=0):
    """A graph whose features and edge attributes identify their node or edge."""
    return graphmill.Data(
        edge_index=random_edges(nodes, edges, seed),
        x=np.arange(2 * nodes, dtype=np.float32).reshape(-1, 2),
        y=np.arange(nodes) % 7,
        edge_attr=np.arange(edges) * 10,
    )


@pytest.fixture
def data():
    return make_data()


@pytest.fixture(scope="session")
def sbm():
    """A dataset that a model learns in seconds."""
    return graphmill.generate(nodes=4000, classes=5, dim=16, degree=12, signal=0.5, p_in=0.7, seed=3)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Papers with citations among each other, authors with features of another width, and venues without.

    Two edge types have features, of different widths.
    """
    rng = np.random.default_rng(2)
    count = 90
    groups, papers = np.arange(count) % 3, np.arange(count)
    features = lambda edges, width: rng.normal(size=(edges, width)).astype(np.float32)
    nodes = {
        "paper": {"x": np.eye(3, dtype=np.float32)[groups] + rng.normal(size=(count, 3)).astype(np.float32)},
        "author": {"x": rng.normal(size=(40, 5)).astype(np.float32)},
        "venue": {"num_nodes": 5},
    }
    edges = {
        ("author", "writes", "paper"): {"edge_index": rng.integers(0, [[40], [count - 9]], (2, 200)), "x": features(200, 3)},
        ("paper", "by", "author"): {"edge_index": rng.integers(0, [[count], [40]], (2, 150))},
        ("paper", "cites", "paper"): {"edge_index": rng.integers(0, count - 9, (2, 200)), "x": features(200, 1)},
        ("venue", "holds", "paper"): {"edge_index": np.stack([papers % 5, papers])},
    }
    parts = {"train": papers[:60], "valid": papers[60:75], "test": papers[75:]}
    values = np.stack([groups * 100.0, rng.normal(size=count)], axis=1).astype(np.float32)
    tasks = {"topic": {"on": "paper", "y": groups, "names": ["a", "b", "c"], **parts}, "value": {"on": "paper", "y": values, **parts}}
    path = tmp_path_factory.mktemp("data") / "library"
    graphmill.TypedDataset.from_arrays(nodes, edges, tasks, name="library").save(path)
    return graphmill.TypedDataset(path)


@pytest.fixture
def sectors():
    """Accounts with a class in each of two columns, one of them with unknown classes."""
    rows = range(120)
    nodes = {
        "account": [f"acc-{i}" for i in rows],
        "age": [20 + i % 7 for i in rows],
        "sector": [None if i % 7 == 6 else ("bank", "shop", "state")[i % 3] for i in rows],
        "region": [("north", "south")[i % 2] for i in rows],
    }
    edges = {"from": nodes["account"], "to": [f"acc-{i * 7 % 120}" for i in rows]}
    ends = {"id": "account", "label": ["sector", "region"], "src": "from", "dst": "to"}
    return graphmill.Dataset.from_tables(nodes, edges, **ends)


def loader_of(data, num_neighbors=(3, 2), **options):
    options = {"output": "numpy", "seed": 0, "batch_size": 16, **options}
    return graphmill.NeighborLoader(data, num_neighbors, **options)


def bytes_of(batch):
    """Contents of a batch of arrays, as bytes."""
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in batch}
