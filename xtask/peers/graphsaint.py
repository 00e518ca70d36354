#!/usr/bin/env python3
"""PyTorch Geometric's GraphSAINT samplers on a Graphmill dataset: accuracy and subgraphs a second, as a line of JSON.

The model is the one of PyTorch Geometric's examples/graph_saint.py (GraphConv, edges weighed by 1 / degree, times
`edge_norm` with normalisation, the mean without), with what Graphmill's GraphSAGE has around a layer:
dropout(relu(norm(conv(x) + residual(x)))). Evaluation is over the whole graph with the mean.
`cargo xtask graphsaint` calls this; arguments have the names of `graphmill train`.
"""
import argparse
import json
import os
import time
import warnings

warnings.filterwarnings("ignore")

import numpy as np
import torch
import torch.nn.functional as F
import torch_sparse
from torch_geometric.data import Data
from torch_geometric.loader import GraphSAINTEdgeSampler, GraphSAINTNodeSampler, GraphSAINTRandomWalkSampler
from torch_geometric.nn import GraphConv

SAMPLERS = {"saint-rw": GraphSAINTRandomWalkSampler, "saint-edge": GraphSAINTEdgeSampler, "saint-node": GraphSAINTNodeSampler}

ap = argparse.ArgumentParser()
ap.add_argument("dataset")
ap.add_argument("--sampler", choices=SAMPLERS, required=True)
ap.add_argument("--batch-size", type=int, required=True, help="nodes of a subgraph, before duplicates fall out")
ap.add_argument("--walk-length", type=int, default=2)
ap.add_argument("--coverage", type=int, default=50)
ap.add_argument("--layers", type=int, default=2)
ap.add_argument("--hidden", type=int, default=128)
ap.add_argument("--residual", choices=["none", "linear"], default="none")
ap.add_argument("--schedule", choices=["constant", "cosine"], default="constant")
ap.add_argument("--dropout", type=float, default=0.1)
ap.add_argument("--lr", type=float, default=0.01)
ap.add_argument("--clip", type=float, default=5.0)
ap.add_argument("--epochs", type=int, default=40)
ap.add_argument("--eval-every", type=int, default=1)
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--threads", type=int, default=1)
ap.add_argument("--speed", type=float, default=0.0, help="only measure the sampler, for so many seconds")
A = ap.parse_args()
torch.set_num_threads(A.threads)
torch.manual_seed(A.seed)


def part(name):
    return np.load(os.path.join(A.dataset, name + ".npy"))


def load():
    """The dataset as PyG wants it: dense features, edges from source to destination."""
    indptr, indices = part("indptr").astype(np.int64), part("indices").astype(np.int64)
    n = len(indptr) - 1
    if os.path.exists(os.path.join(A.dataset, "features.npy")):
        x = part("features").astype(np.float32)
    else:
        rows, columns, values = part("features_indptr"), part("features_indices"), part("features_values")
        with open(os.path.join(A.dataset, "graphmill.json")) as f:
            width = json.load(f)["feature_dim"]
        x = np.zeros((n, width), np.float32)
        x[np.repeat(np.arange(n), np.diff(rows.astype(np.int64))), columns] = values
    dst = np.repeat(np.arange(n), np.diff(indptr))
    y = torch.from_numpy(part("labels"))
    y = y.float() if y.dim() == 2 else y.long()
    data = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(np.stack([indices, dst])), y=y)
    degree = torch.from_numpy(np.diff(indptr)).float()
    data.edge_weight = 1.0 / degree[data.edge_index[1]]
    for name in ("train", "valid", "test"):
        mask = torch.zeros(n, dtype=torch.bool)
        mask[torch.from_numpy(part(name).astype(np.int64))] = True
        data[name] = mask
    full = torch_sparse.SparseTensor(
        rowptr=torch.from_numpy(indptr), col=torch.from_numpy(indices), sparse_sizes=(n, n), trust_data=True
    )
    return data, full


class Net(torch.nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        widths = [dim] + [A.hidden] * (A.layers - 1) + [classes]
        pairs = list(zip(widths, widths[1:]))
        self.convs = torch.nn.ModuleList(GraphConv(i, o) for i, o in pairs)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(o) for _, o in pairs[:-1])
        linear = A.residual == "linear"
        self.residuals = torch.nn.ModuleList(torch.nn.Linear(i, o) for i, o in pairs) if linear else None

    def aggregate_by(self, how):
        for conv in self.convs:
            conv.aggr = how
            conv.aggr_module = __import__("torch_geometric").nn.resolver.aggregation_resolver(how)

    def forward(self, x, edges, weight=None):
        for i, conv in enumerate(self.convs):
            out = conv(x, edges, weight)
            if self.residuals:
                out = out + self.residuals[i](x)
            if i < len(self.norms):
                out = F.dropout(self.norms[i](out).relu(), A.dropout, self.training)
            x = out
        return x


def scores(logits, y):
    """The metrics that Graphmill has, of rows of logits."""
    if y.dim() == 1:
        return {"accuracy": float((logits.argmax(-1) == y).float().mean())}
    from sklearn.metrics import average_precision_score, f1_score

    truth, guess = y.numpy(), logits.numpy()
    known = truth.sum(0) > 0
    return {
        "average-precision": float(average_precision_score(truth[:, known], guess[:, known], average="macro")),
        "f1-micro": float(f1_score(truth, guess > 0, average="micro")),
    }


def make(data, steps):
    n = A.batch_size
    if A.sampler == "saint-rw":
        n, more = n // A.walk_length, {"walk_length": A.walk_length}
    else:
        n, more = n // 2 if A.sampler == "saint-edge" else n, {}
    return SAMPLERS[A.sampler](data, batch_size=n, num_steps=steps, sample_coverage=A.coverage, log=False, **more)


def speed(data):
    """Subgraphs a second through the loader (nodes, induced edges, rows of features)."""
    A.coverage = 0
    loader = make(data, 1 << 30)
    times, nodes, edges = [], 0, 0
    for batch in loader:
        now = time.perf_counter()
        times.append(now)
        nodes, edges = nodes + batch.num_nodes, edges + batch.num_edges
        if now - times[0] > A.speed and len(times) > 3:
            break
    count = len(times)
    rate = (count - 1) / (times[-1] - times[0])
    print(json.dumps({"subgraphs_per_second": rate, "nodes": nodes / count, "edges": edges / count}))


def main():
    data, full = load()
    if A.speed:
        return speed(data)
    steps = -(-data.num_nodes // A.batch_size)
    clock = time.perf_counter()
    loader = make(data, steps)
    prepared = time.perf_counter() - clock
    single = data.y.dim() == 1
    model = Net(data.x.size(1), int(data.y.max()) + 1 if single else data.y.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=A.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, A.epochs * steps) if A.schedule == "cosine" else None
    loss_of = F.cross_entropy if single else F.binary_cross_entropy_with_logits
    best, history, spent = {}, {}, 0.0
    for epoch in range(A.epochs):
        model.train()
        model.aggregate_by("add" if A.coverage else "mean")
        clock = time.perf_counter()
        for batch in loader:
            weight = batch.edge_weight * batch.edge_norm if A.coverage else None
            out = model(batch.x, batch.edge_index, weight)
            loss = loss_of(out, batch.y, reduction="none")
            loss = loss if single else loss.mean(1)
            if A.coverage:
                loss = (loss * batch.node_norm)[batch.train].sum() * (data.num_nodes / int(data.train.sum()))
            else:
                loss = loss[batch.train].mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), A.clip)
            optimizer.step()
            if schedule:
                schedule.step()
        spent += time.perf_counter() - clock
        if (epoch + 1) % A.eval_every and epoch + 1 < A.epochs:
            continue
        model.eval()
        model.aggregate_by("mean")
        with torch.no_grad():
            out = model(data.x, full)
        valid, test = (scores(out[data[name]], data.y[data[name]]) for name in ("valid", "test"))
        for metric, score in valid.items():
            history.setdefault(metric, []).append([spent, score])
            if score > best.get(metric, (-1.0, 0.0))[0]:
                best[metric] = (score, test[metric])
    found = {metric: {"test": best[metric][1], "history": history[metric]} for metric in best}
    print(json.dumps({**found, "seconds": spent, "prepared": prepared}))


main()
