#!/usr/bin/env python3
"""Measures training of PyTorch Geometric's GraphSAGE and GCN on an NVIDIA device, with minibatches
as its users make them. Prints seeds per second as a line of JSON.

If pyg-lib or torch-sparse is installed, PyTorch Geometric's NeighborLoader draws the neighbours.
An installation without compiled extensions has neither; then operations of PyTorch draw them on
the device: with replacement, as many per node, and torch.unique removes duplicates. `sampling` in
the output names the method. Features stay in page-locked host memory; rows are gathered there and
copied, as in PyTorch Geometric's examples. `scripts/gpu-check` calls this script; its arguments
have the names of `graphmill train`.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv, SAGEConv

ap = argparse.ArgumentParser()
ap.add_argument("dataset")
ap.add_argument("--fanout", default="15,10")
ap.add_argument("--batch-size", type=int, default=1024)
ap.add_argument("--hidden", type=int, default=256)
ap.add_argument("--batches", type=int, default=60)
ap.add_argument("--warmup", type=int, default=5)
ap.add_argument("--workers", type=int, default=8)
ap.add_argument("--device", default="cuda:0")
A = ap.parse_args()
fanout = [int(k) for k in A.fanout.split(",")]
device = torch.device(A.device)
torch.manual_seed(0)


def part(name):
    return np.load(os.path.join(A.dataset, name + ".npy"), mmap_mode="r")


indptr = torch.from_numpy(np.asarray(part("indptr")).astype(np.int64))
indices = torch.from_numpy(np.asarray(part("indices")).view(np.int32))
features = torch.from_numpy(np.array(part("features")))
if torch.cuda.is_available():
    features = features.pin_memory()
labels = torch.from_numpy(np.asarray(part("labels")).astype(np.int64))
train = torch.from_numpy(np.asarray(part("train")).astype(np.int64))
classes = int(labels.max()) + 1


class Net(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        widths = [features.shape[1]] + [A.hidden] * (len(fanout) - 1) + [classes]
        self.convs = torch.nn.ModuleList(conv(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x, edges):
        for i, conv in enumerate(self.convs):
            x = conv(x, edges)
            if i + 1 < len(self.convs):
                x = F.dropout(F.relu(x), 0.5, self.training)
        return x


def loader_batches():
    """(input nodes, edges, seeds) by NeighborLoader; raises ImportError if it has no sampler."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        raise ImportError("neither pyg-lib nor torch-sparse")
    dst = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    data = Data(edge_index=torch.stack([indices.long(), dst]), num_nodes=len(indptr) - 1)
    loader = NeighborLoader(
        data, fanout, input_nodes=train, batch_size=A.batch_size, shuffle=True, num_workers=A.workers, persistent_workers=True
    )
    for batch in loader:
        yield batch.n_id, batch.edge_index, batch.batch_size


def tensor_batches():
    """The same by operations of PyTorch, with the graph on the device."""
    pointers, neighbours = indptr.to(device), indices.to(device)
    order = train[torch.randperm(len(train))].to(device)
    for seeds in order.split(A.batch_size):
        nodes, sources, destinations = seeds, [], []
        for k in fanout:
            start, degree = pointers[nodes], pointers[nodes + 1] - pointers[nodes]
            some = (degree > 0).nonzero().squeeze(1)
            draw = (torch.rand(len(some), k, device=device) * degree[some, None]).long()
            sources.append(neighbours[start[some, None] + draw].long().flatten())
            destinations.append(nodes[some].repeat_interleave(k))
            both = torch.cat([nodes, sources[-1]])
            unique, inverse = torch.unique(both, return_inverse=True)
            first = torch.full((len(unique),), len(both), device=device).scatter_reduce_(
                0, inverse, torch.arange(len(both), device=device), "amin"
            )
            nodes = both[first.sort().values]
        place = torch.empty(int(nodes.max()) + 1, dtype=torch.long, device=device)
        place[nodes] = torch.arange(len(nodes), device=device)
        yield nodes, torch.stack([place[torch.cat(sources)], place[torch.cat(destinations)]]), len(seeds)


def run(name, conv, batches):
    model = Net(conv).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    seeds, began, number = 0, None, 0
    for nodes, edges, count in batches():
        if number == A.warmup:
            torch.cuda.synchronize()
            began, seeds = time.perf_counter(), 0
        host = nodes.cpu()
        x = features[host].to(device, non_blocking=True).float()
        y = labels[host[:count]].to(device, non_blocking=True)
        loss = F.cross_entropy(model(x, edges.to(device))[:count], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seeds += count
        number += 1
        if number == A.warmup + A.batches:
            break
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    return {"model": name, "seeds_per_second": seeds / seconds, "batches": number - A.warmup, "seconds": seconds}


try:
    next(iter(loader_batches()))
    batches, sampling = loader_batches, "NeighborLoader"
except ImportError as missing:
    batches, sampling = tensor_batches, f"torch operations ({missing})"
results = [run("sage", SAGEConv, batches), run("gcn", GCNConv, batches)]
import torch_geometric

print(json.dumps({"pyg": torch_geometric.__version__, "torch": torch.__version__, "sampling": sampling, "results": results}))
