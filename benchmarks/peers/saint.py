#!/usr/bin/env python3
"""Trains with PyTorch Geometric's GraphSAINT samplers, or measures the samplers.

    saint.py DATASET --sampler saint-rw --batch-size 2000 --epochs 40
    saint.py DATASET --sampler saint-node --batch-size 8000 --speed 5

Options have the names of `graphmill train`, and so have the fields of the summary. The model is that of PyTorch
Geometric's example (GraphConv, edges weighed by 1 / degree, times `edge_norm` with normalisation; the mean without),
with the parts that Graphmill's GraphSAGE has around a layer: dropout(relu(norm(conv(x) + residual(x)))). Evaluation
is over the whole graph with the mean.
"""

import argparse
import time

from common import array, emit, features, set_threads, skip

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--sampler", choices=["saint-rw", "saint-edge", "saint-node"], required=True)
parser.add_argument("--batch-size", type=int, required=True, help="nodes of a subgraph, before duplicates are removed")
parser.add_argument("--metric", default="accuracy")
parser.add_argument("--walk-length", type=int, default=2)
parser.add_argument("--sample-coverage", type=int, default=50)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--residual", choices=["none", "linear"], default="none")
parser.add_argument("--schedule", choices=["constant", "cosine"], default="constant")
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--clip", type=float, default=5.0)
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--eval-every", type=int, default=1)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--speed", type=float, default=0.0, help="only measure the sampler, for so many seconds")
options = parser.parse_args()
set_threads(options.threads)

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn as nn
import torch_geometric.typing

if not torch_geometric.typing.WITH_TORCH_SPARSE:
    skip("torch-sparse is not installed, and the GraphSAINT samplers of PyTorch Geometric need it")

import torch_geometric.loader as loaders
import torch_sparse
from torch_geometric.data import Data

torch.manual_seed(options.seed)


def load():
    """The dataset with dense features and edges from source to destination, and its adjacency."""
    indptr, indices = array(options.dataset, "indptr"), array(options.dataset, "indices")
    nodes = len(indptr) - 1
    destinations = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
    y = torch.from_numpy(np.load(f"{options.dataset}/labels.npy"))
    y = y.float() if y.dim() == 2 else y.long()
    data = Data(x=features(options.dataset), edge_index=torch.stack([indices, destinations]), y=y)
    data.edge_weight = 1.0 / indptr.diff().float()[destinations]
    for name in ("train", "valid", "test"):
        data[name] = torch.zeros(nodes, dtype=torch.bool)
        data[name][array(options.dataset, name)] = True
    full = torch_sparse.SparseTensor(rowptr=indptr, col=indices, sparse_sizes=(nodes, nodes), trust_data=True)
    return data, full


class Net(torch.nn.Module):
    """Graph convolutions with norms and residuals."""

    def __init__(self, dim, classes):
        super().__init__()
        widths = [dim] + [options.hidden] * (options.layers - 1) + [classes]
        pairs = list(zip(widths, widths[1:]))
        self.convs = torch.nn.ModuleList(nn.GraphConv(i, o) for i, o in pairs)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(o) for _, o in pairs[:-1])
        linear = options.residual == "linear"
        self.residuals = torch.nn.ModuleList(torch.nn.Linear(i, o) for i, o in pairs) if linear else None

    def aggregate_by(self, how):
        for conv in self.convs:
            conv.aggr = how
            conv.aggr_module = nn.resolver.aggregation_resolver(how)

    def forward(self, x, edges, weight=None):
        for i, conv in enumerate(self.convs):
            out = conv(x, edges, weight)
            if self.residuals:
                out = out + self.residuals[i](x)
            if i < len(self.norms):
                out = F.dropout(self.norms[i](out).relu(), options.dropout, self.training)
            x = out
        return x


def scores(logits, y):
    """Metrics of rows of logits."""
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
    """Loader of so many subgraphs."""
    count, more = options.batch_size, {}
    if options.sampler == "saint-rw":
        count, more = count // options.walk_length, {"walk_length": options.walk_length}
    elif options.sampler == "saint-edge":
        count //= 2
    kinds = {
        "saint-rw": loaders.GraphSAINTRandomWalkSampler,
        "saint-edge": loaders.GraphSAINTEdgeSampler,
        "saint-node": loaders.GraphSAINTNodeSampler,
    }
    kind = kinds[options.sampler]
    return kind(data, batch_size=count, num_steps=steps, sample_coverage=options.sample_coverage, log=False, **more)


def speed(data):
    """Subgraphs a second through the loader: nodes, induced edges, feature rows."""
    options.sample_coverage = 0
    times, nodes, edges = [], 0, 0
    for batch in make(data, 1 << 30):
        times.append(time.perf_counter())
        nodes, edges = nodes + batch.num_nodes, edges + batch.num_edges
        if times[-1] - times[0] > options.speed and len(times) > 3:
            break
    count = len(times)
    rate = (count - 1) / (times[-1] - times[0])
    emit(subgraphs_per_second=rate, nodes=nodes / count, edges=edges / count)


def loss_of(model, data, batch):
    """Loss of the training nodes of a subgraph."""
    weight = batch.edge_weight * batch.edge_norm if options.sample_coverage else None
    logits = model(batch.x, batch.edge_index, weight)
    if data.y.dim() == 1:
        loss = F.cross_entropy(logits, batch.y, reduction="none")
    else:
        loss = F.binary_cross_entropy_with_logits(logits, batch.y, reduction="none").mean(1)
    if not options.sample_coverage:
        return loss[batch.train].mean()
    return (loss * batch.node_norm)[batch.train].sum() * (data.num_nodes / int(data.train.sum()))


def train_epoch(model, data, loader, optimizer, schedule):
    """Seconds of an epoch."""
    model.train()
    model.aggregate_by("add" if options.sample_coverage else "mean")
    clock = time.perf_counter()
    for batch in loader:
        loss = loss_of(model, data, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimizer.step()
        if schedule:
            schedule.step()
    return time.perf_counter() - clock


def main():
    data, full = load()
    if options.speed:
        return speed(data)
    steps = -(-data.num_nodes // options.batch_size)
    clock = time.perf_counter()
    loader = make(data, steps)
    prepared = time.perf_counter() - clock
    model = Net(data.x.size(1), int(data.y.max()) + 1 if data.y.dim() == 1 else data.y.size(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    schedule = None
    if options.schedule == "cosine":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * steps)
    epochs, best = [], (-1.0, 0.0)
    for epoch in range(1, options.epochs + 1):
        record = {"epoch": epoch, "seconds": train_epoch(model, data, loader, optimizer, schedule)}
        record.update(valid_score=None, eval_seconds=0.0)
        if epoch % options.eval_every == 0 or epoch == options.epochs:
            clock = time.perf_counter()
            model.eval()
            model.aggregate_by("mean")
            with torch.no_grad():
                logits = model(data.x, full)
            valid, test = (scores(logits[data[name]], data.y[data[name]])[options.metric] for name in ("valid", "test"))
            record.update(valid_score=valid, eval_seconds=time.perf_counter() - clock)
            best = max(best, (valid, test))
        epochs.append(record)
    emit(epochs=epochs, test={"metric": options.metric, "score": best[1]}, prepared_seconds=prepared)


main()
