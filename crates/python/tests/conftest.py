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


def loader_of(data, num_neighbors=(3, 2), **options):
    options = {"output": "numpy", "seed": 0, "batch_size": 16, **options}
    return graphmill.NeighborLoader(data, num_neighbors, **options)


def bytes_of(batch):
    """Contents of a batch of arrays, as bytes."""
    return {name: value.tobytes() if isinstance(value, np.ndarray) else value for name, value in batch}
