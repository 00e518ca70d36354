"""Trains a logistic regression on means of neighbours' features, in NumPy, on your own arrays.

Reaches a test accuracy of at least 0.70.

    pip install ./crates/python
    python examples/python/own_arrays.py
"""

import numpy as np

import graphmill

dataset = graphmill.generate(nodes=20_000, classes=4, dim=16, signal=0.3, p_in=0.7, seed=0)
# plain NumPy arrays; replace them by your own
edge_index, x, y = dataset.edge_index, np.array(dataset.x), dataset.y
data = {"edge_index": edge_index, "x": x, "y": y}


def smoothed(batch):
    """A node's features, the mean of its sampled neighbours' features, and a constant."""
    sums = np.zeros((len(batch.n_id), x.shape[1]), np.float32)
    np.add.at(sums, batch.edge_index[1], batch.x[batch.edge_index[0]])
    counts = np.maximum(np.bincount(batch.edge_index[1], minlength=len(sums)), 1)
    both = np.hstack([batch.x, sums / counts[:, None], np.ones((len(sums), 1))])
    return both[: batch.batch_size], batch.y[: batch.batch_size]


weights = np.zeros((2 * x.shape[1] + 1, 4))
loader = graphmill.NeighborLoader(data, [10], dataset.train, batch_size=256, shuffle=True, seed=0, output="numpy")
for epoch in range(3):
    for batch in loader:
        rows, classes = smoothed(batch)
        scores = np.exp(rows @ weights)
        scores /= scores.sum(1, keepdims=True)
        scores[np.arange(len(classes)), classes] -= 1
        weights -= 0.5 * rows.T @ scores / len(classes)
right = total = 0
for batch in graphmill.NeighborLoader(data, [-1], dataset.test, batch_size=1000, output="numpy"):
    rows, classes = smoothed(batch)
    right, total = right + ((rows @ weights).argmax(1) == classes).sum(), total + len(classes)
print(f"test accuracy {right / total:.4f}")
