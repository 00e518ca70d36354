#!/usr/bin/env python3
"""Loader throughput beside PyTorch Geometric's, in one run, at equal threads: what docs/results.md quotes.

Each line alternates whole epochs of the two loaders over the same graph, tensors, seeds and options, and takes the best of some rounds of either. With one
thread PyG's loader works in the process itself; with more it gets as many persistent worker processes, started and warmed up before, while our
threads are started anew every epoch. What a batch costs the consumer is in both: rows of features, labels and masks are gathered.

    python loaders.py [--scale 18] [--degree 16] [--dim 100] [--rounds 3] [--batches 24] [--threads 1 2] [--json]
"""

import argparse
import json
import time
import warnings

warnings.filterwarnings("ignore")

import torch
import torch_geometric
import torch_geometric.typing
from torch_geometric.loader import NeighborLoader

import graphmill

CASES = [("15,10,5", 1024), ("10,25", 1024), ("10,10", 256), ("10,25", 8000)]


def measure(loader):
    """Seeds a second of a whole epoch, from `iter()` to the last batch, and edges of a batch."""
    seeds = edges = batches = 0
    began = time.perf_counter()
    for batch in loader:
        seeds += batch.batch_size
        edges += batch.edge_index.shape[1]
        batches += 1
    return seeds / (time.perf_counter() - began), edges / batches


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=18, help="2^scale nodes of a Kronecker graph")
    parser.add_argument("--degree", type=float, default=16)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=24, help="of an epoch, at most")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    dataset = graphmill.generate(
        "kronecker", scale=options.scale, degree=options.degree, dim=options.dim, classes=47, seed=0,
        initiator=[[0.57, 0.19], [0.19, 0.05]],
    )  # fmt: skip
    data = dataset.to_pyg()
    # an ordinary tensor, as a script has it
    data.x = data.x.clone()
    del data.edge_weight
    sampler = "pyg-lib" if torch_geometric.typing.WITH_PYG_LIB else "torch-sparse"
    heading = {
        "graph": str(dataset), "torch": torch.__version__, "torch_geometric": torch_geometric.__version__, "sampler": sampler,
    }  # fmt: skip
    if not options.json:
        print(", ".join(f"{name} {value}" for name, value in heading.items()))
        print("| fanout | batch | threads | PyG seeds/s | graphmill seeds/s | ratio | edges a batch, PyG and graphmill |\n|---|---|---|---|---|---|---|")
    rows = []
    for fanout, batch_size in CASES:
        for threads in options.threads:
            torch.set_num_threads(threads)
            nodes = data.train_mask.nonzero().view(-1)
            nodes = nodes[torch.randperm(len(nodes))[: options.batches * batch_size]]
            common = dict(num_neighbors=[int(k) for k in fanout.split(",")], input_nodes=nodes, batch_size=batch_size, shuffle=True)
            workers = {} if threads == 1 else {"num_workers": threads, "persistent_workers": True}
            loaders = {
                "pyg": NeighborLoader(data, **workers, **common),
                "graphmill": graphmill.NeighborLoader(data, num_threads=threads, **common),
            }
            best = dict.fromkeys(loaders, (0, 0))
            for loader in loaders.values():
                measure(loader)
            for _ in range(options.rounds):
                for name, loader in loaders.items():
                    best[name] = max(best[name], measure(loader))
            row = {
                "fanout": fanout, "batch_size": batch_size, "threads": threads, "pyg": best["pyg"][0],
                "graphmill": best["graphmill"][0], "ratio": best["graphmill"][0] / best["pyg"][0],
                "edges": [best["pyg"][1], best["graphmill"][1]],
            }  # fmt: skip
            rows.append(row)
            if not options.json:
                edges = " and ".join(f"{n:,.0f}" for n in row["edges"])
                print(f"| {fanout} | {batch_size} | {threads} | {row['pyg']:,.0f} | {row['graphmill']:,.0f} | {row['ratio']:.1f} | {edges} |", flush=True)
    if options.json:
        print(json.dumps({**heading, "rows": rows}))


if __name__ == "__main__":
    main()
