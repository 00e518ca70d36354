"""Trains entirely in Rust, from Python. Needs only NumPy.

Reaches a test accuracy of at least 0.88.

    pip install ./crates/python
    python examples/python/train_in_rust.py
"""

import tempfile

import graphmill

dataset = graphmill.Dataset.demo()
print(dataset)
with tempfile.TemporaryDirectory() as scratch:
    run = graphmill.train(
        dataset, out=f"{scratch}/run", model="sage", fanout=[15, 10], hidden=64, epochs=6, lr=0.005, seed=0
    )
    for record in run.history:
        print(f"epoch {record.epoch}  loss {record.loss:.4f}  valid {record.valid_score:.4f}  {record.seconds:.2f} s")
    # predictions of the best model, with all neighbours of each node
    nodes = dataset.test
    classes = run.predict(nodes)
    print(f"test accuracy {(classes == dataset.y[nodes]).mean():.4f}")
    probabilities = run.predict(nodes[:3], kind="probabilities")
    print(probabilities.round(2))
