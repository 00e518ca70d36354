"""Trains entirely in Rust, called from Python: a test accuracy of at least 0.88. Needs only NumPy.

    pip install graphmill
    python train_in_rust.py
"""

import tempfile

import graphmill

dataset = graphmill.Dataset.demo()
print(dataset)
with tempfile.TemporaryDirectory() as scratch:
    run = f"{scratch}/run"
    summary = graphmill.train(dataset, out=run, model="sage", fanout=[15, 10], hidden=64, epochs=6, lr=0.005, seed=0)
    for record in summary.epochs:
        print(f"epoch {record.epoch}  loss {record.loss:.4f}  valid {record.valid_score:.4f}  {record.seconds:.2f} s")
    # predictions of the best model for any nodes, from all their neighbours
    nodes = dataset.test
    classes = graphmill.predict(run, nodes, dataset=dataset)
    print(f"test accuracy {(classes == dataset.y[nodes]).mean():.4f}")
    probabilities = graphmill.predict(run, nodes[:3], dataset=dataset, kind="probabilities")
    print(probabilities.round(2))
