#!/usr/bin/env python3
"""Compares an epoch of a PyTorch Geometric script with its own loader and with graphmill's.

Prints the time of the epoch and of waiting for batches.

    python script.py [--epochs 3] [--threads 2]
"""

import argparse
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader as Theirs
from torch_geometric.nn import GraphSAGE

import graphmill


def epochs(loader, data, count):
    """Seconds of the fastest epoch and of its waiting for batches, and the final test accuracy."""
    torch.manual_seed(0)
    model = GraphSAGE(data.num_features, 64, 2, 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    times = []
    for _ in range(count):
        began, waited = time.perf_counter(), 0.0
        iterator = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(iterator, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
        times.append((time.perf_counter() - began, waited))
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    return *min(times), right[data.test_mask].float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = graphmill.Dataset.demo().to_pyg()
    common = dict(num_neighbors=[15, 10], input_nodes=data.train_mask, batch_size=512, shuffle=True)
    cases = {
        "torch_geometric, in the process": Theirs(data, **common),
        "torch_geometric, 2 workers": Theirs(data, num_workers=2, persistent_workers=True, **common),
        "graphmill, 1 thread": graphmill.NeighborLoader(data, num_threads=1, **common),
    }
    print("| loader | epoch, s | waiting for batches, s | test accuracy |\n|---|---|---|---|")
    for name, loader in cases.items():
        seconds, waited, accuracy = epochs(loader, data, options.epochs)
        print(f"| {name} | {seconds:.2f} | {waited:.2f} | {accuracy:.4f} |", flush=True)


if __name__ == "__main__":
    main()
