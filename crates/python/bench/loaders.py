#!/usr/bin/env python3
"""Compares loader throughput with PyTorch Geometric, DGL and GraphBolt, at equal threads.

book/src/results/peers.md quotes the results.

Each line alternates whole epochs of all loaders over the same graph, tensors, seeds and fanouts,
and takes the best of several rounds of each. All of a batch's cost to the consumer counts: rows of
features and labels are gathered, and read as tensors. With one thread a peer works in this process.
With more threads it is measured both in this process with that many threads and with as many
persistent worker processes, which are started and warmed up in advance (our threads start in every
epoch), and its better epoch counts. Installed peers take part: PyTorch Geometric is compared with
`graphmill.NeighborLoader`, DGL and GraphBolt with `graphmill.dgl.DataLoader`, which expands every
node in every layer, as they do.

    python loaders.py [--scale 18] [--degree 16] [--dim 100] [--rounds 3] [--batches 24]
                      [--threads 1 2] [--json]
"""

import argparse
import gc
import json
import os
import time
import warnings

warnings.filterwarnings("ignore")
os.environ.setdefault("DGLBACKEND", "pytorch")

import torch

import graphmill
from graphmill import _frameworks

CASES = [("15,10,5", 1024), ("10,25", 1024), ("10,10", 256), ("10,25", 8000)]


def of_pyg(batch):
    return batch.batch_size, batch.edge_index.shape[1], batch.x, batch.y


def of_blocks(batch):
    _, seeds, blocks = batch
    edges = sum(block.num_edges() for block in blocks)
    return len(seeds), edges, blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]


def of_graphbolt(batch):
    edges = sum(len(part.sampled_csc.indices) for part in batch.sampled_subgraphs)
    return len(batch.labels), edges, batch.node_features["feat"], batch.labels


def measure(loader, read):
    """Seeds per second of a whole epoch, from `iter()` to the last batch, and edges per batch."""
    seeds = edges = batches = 0
    began = time.perf_counter()
    for batch in loader:
        count, drawn, x, y = read(batch)
        assert len(x) >= count and len(y) >= count
        seeds, edges, batches = seeds + count, edges + drawn, batches + 1
    return seeds / (time.perf_counter() - began), edges / batches


def settings(threads):
    """Worker processes of a peer: none, and one per thread."""
    return [("", {}), *([(f", {threads} workers", {"num_workers": threads, "persistent_workers": True})] if threads > 1 else [])]


def pyg(dataset):
    """Loaders of PyTorch Geometric and of this package."""
    import torch_geometric.typing
    from torch_geometric.loader import NeighborLoader

    data = dataset.to_pyg()
    # an ordinary tensor, as in a script
    data.x = data.x.clone()
    del data.edge_weight
    sampler = "pyg-lib" if torch_geometric.typing.WITH_PYG_LIB else "torch-sparse"

    def make(nodes, fanout, batch_size, threads):
        common = dict(num_neighbors=fanout, input_nodes=nodes, batch_size=batch_size, shuffle=True)
        for suffix, workers in settings(threads):
            yield "pyg", f"pyg{suffix}", NeighborLoader(data, **workers, **common), of_pyg
        yield "graphmill", "graphmill", graphmill.NeighborLoader(data, num_threads=threads, **common), of_pyg

    return {"torch_geometric": torch_geometric.__version__, "sampler": sampler}, make


def dgl(dataset):
    """DGL's loader, GraphBolt's pipeline and the blocks of this package."""
    import dgl
    import dgl.graphbolt as gb

    indptr, indices = (torch.from_numpy(array.astype("int64")) for array in (dataset.indptr, dataset.indices))
    x, y = torch.from_numpy(dataset.x.copy()), torch.from_numpy(dataset.y)
    graph = dgl.graph(("csc", (indptr, indices, torch.tensor([], dtype=torch.int64))), num_nodes=dataset.num_nodes)
    graph.ndata["feat"], graph.ndata["label"] = x, y
    graph.create_formats_()
    rows = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(x)})
    sampling = {name: gb.fused_csc_sampling_graph(indptr, ids) for name, ids in (("", indices), (" int32", indices.int()))}

    def make(nodes, fanout, batch_size, threads):
        far_first = fanout[::-1]
        for suffix, workers in settings(threads):
            sampler = dgl.dataloading.NeighborSampler(far_first, prefetch_node_feats=["feat"], prefetch_labels=["label"])
            yield "dgl", f"dgl{suffix}", dgl.dataloading.DataLoader(graph, nodes, sampler, batch_size=batch_size, shuffle=True, **workers), of_blocks
            for width, sampled in sampling.items():
                seeds = nodes.int() if width else nodes
                items = gb.ItemSet((seeds, y[nodes]), names=("seed_nodes", "labels"))
                pipe = gb.ItemSampler(items, batch_size=batch_size, shuffle=True).sample_neighbor(sampled, far_first)
                pipe = pipe.fetch_feature(rows, node_feature_keys=["feat"])
                yield "graphbolt", f"graphbolt{width}{suffix}", gb.DataLoader(pipe, **workers), of_graphbolt
        sampler = graphmill.dgl.NeighborSampler(far_first)
        ours = graphmill.dgl.DataLoader(dataset, nodes, sampler, batch_size=batch_size, shuffle=True, num_threads=threads)
        yield "graphmill", "graphmill", ours, of_blocks

    return {"dgl": dgl.__version__}, make


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=18, help="generate a Kronecker graph of 2^SCALE nodes")
    parser.add_argument("--degree", type=float, default=16)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=24, help="maximum number of batches per epoch")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="lines of the table to measure, from 0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    families = [family for name, family in (("torch_geometric", pyg), ("dgl", dgl)) if _frameworks.find(name) is not None]
    if not families:
        raise SystemExit("neither torch_geometric nor dgl is installed")
    dataset = graphmill.generate(
        "kronecker", scale=options.scale, degree=options.degree, dim=options.dim, classes=47, seed=0,
        initiator=[[0.57, 0.19], [0.19, 0.05]],
    )  # fmt: skip
    results = []
    for family in families:
        versions, make = family(dataset)
        heading = {"graph": str(dataset), "torch": torch.__version__, **versions}
        if not options.json:
            print(", ".join(f"{name} {value}" for name, value in heading.items()))
            print("| fanout | batch | threads | peer (best setting) | peer seeds/s | graphmill seeds/s | ratio | edges per batch (peer and graphmill) |\n|---|---|---|---|---|---|---|---|")
        for number in options.cases:
            fanout, batch_size = CASES[number]
            for threads in options.threads:
                torch.set_num_threads(threads)
                nodes = torch.from_numpy(dataset.train.astype("int64"))
                nodes = nodes[torch.randperm(len(nodes))[: options.batches * batch_size]]
                loaders = list(make(nodes, [int(k) for k in fanout.split(",")], batch_size, threads))
                best = {}
                for turn in range(options.rounds + 1):
                    for peer, setting, loader, read in loaders:
                        found = (*measure(loader, read), setting)
                        # the first epoch warms up
                        if turn > 0:
                            best[peer] = max(best.get(peer, found), found)
                # end worker processes here, before those of the next line are forked
                del loader, loaders
                gc.collect()
                speed, edges, _ = best.pop("graphmill")
                for peer, (its_speed, its_edges, setting) in best.items():
                    row = {"fanout": fanout, "batch_size": batch_size, "threads": threads, "peer": peer, "setting": setting}
                    row |= {"peer_speed": its_speed, "speed": speed, "ratio": speed / its_speed, "edges": [its_edges, edges]}
                    results.append(row)
                    if not options.json:
                        print(
                            f"| {fanout} | {batch_size} | {threads} | {setting} | {its_speed:,.0f} | {speed:,.0f} | {speed / its_speed:.1f} | "
                            f"{its_edges:,.0f} and {edges:,.0f} |", flush=True,
                        )  # fmt: skip
        if options.json:
            print(json.dumps({**heading, "rows": results}))
            results = []


if __name__ == "__main__":
    main()
