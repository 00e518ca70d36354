#!/usr/bin/env python3
"""Trains a model with DGL or PyTorch Geometric and prints a summary with the fields of `graphmill train --json`.

    train.py DATASET --system dgl --model sage --fanout 10,25 --loader direct --ids 32
    train.py DATASET --system pyg --model sage --fanout 10,25 --layers bipartite

`--loader documented` is the loader of the peer's tutorials with its default settings. `--loader direct` (DGL)
calls the sampler without the loader around it, which is DGL's fastest setting on a processor. PyTorch Geometric has
three forms of a batch: `whole`, the documented one, computes every layer for all nodes of the batch; `trim` drops the
outer ones layer by layer; `bipartite` computes each layer for its destinations alone, as Graphmill and DGL do.
Fanouts are from the seeds outward. Evaluation is over all neighbours of the whole graph.
"""

import argparse
import time
from contextlib import nullcontext

from common import array, dgl_graph, dgl_sampler, emit, features, pyg_data, pyg_sampler, set_threads, skip

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--system", choices=["dgl", "pyg"], required=True)
parser.add_argument("--model", choices=["sage", "gcn", "gat"], default="sage")
parser.add_argument("--fanout", default="15,10")
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--max-batches", type=int, default=0, help="batches of an epoch; 0 for all")
parser.add_argument("--eval-every", type=int, default=0, help="epochs between evaluations; 0 for none")
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--dropout", type=float, default=0.5)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=0, help="0 for the library's default")
parser.add_argument("--precision", choices=["f32", "bf16"], default="f32", help="bf16: torch.autocast")
parser.add_argument("--loader", choices=["documented", "direct"], default="documented")
parser.add_argument("--ids", type=int, choices=[32, 64], default=64, help="DGL: bits of its ids")
parser.add_argument("--layers", choices=["whole", "trim", "bipartite"], default="whole", help="PyG: form of a batch")
options = parser.parse_args()
set_threads(options.threads)

import torch
import torch.nn.functional as F

fanout = [int(count) for count in options.fanout.split(",")]


class Net(torch.nn.Module):
    """Layers with dropout and an activation between them."""

    def __init__(self, convolution, width, classes):
        super().__init__()
        last = len(fanout) - 1
        widths = [width] + [options.hidden] * last + [classes]
        layers = (convolution(widths[i], widths[i + 1], i == last) for i in range(last + 1))
        self.layers = torch.nn.ModuleList(layers)

    def between(self, x, i):
        x = x.flatten(1)
        if i + 1 == len(self.layers):
            return x
        return F.dropout(F.elu(x) if options.model == "gat" else F.relu(x), options.dropout, self.training)


class Dgl:
    """DGL's sampler, layers and inference."""

    def __init__(self):
        import dgl
        import dgl.nn as nn

        self.dgl = dgl
        self.graph = dgl_graph(options.dataset, options.ids)
        self.sampler = dgl_sampler(fanout, options.ids)
        self.convolution = {
            "sage": lambda i, o, last: nn.SAGEConv(i, o, "mean"),
            "gcn": lambda i, o, last: nn.GraphConv(i, o, norm="both", allow_zero_in_degree=True),
            "gat": lambda i, o, last: nn.GATConv(i, o if last else o // 4, 1 if last else 4, allow_zero_in_degree=True),
        }[options.model]

    def seeds(self, nodes):
        return nodes.int() if options.ids == 32 else nodes

    def batches(self, train, order):
        """Blocks of each batch with the rows and labels that they need."""
        if options.loader == "documented":
            self.graph.ndata["feat"], self.graph.ndata["label"] = x, y
            loader = self.dgl.dataloading.DataLoader(
                self.graph, self.seeds(train), self.sampler, batch_size=options.batch_size, shuffle=True
            )
            for inputs, outputs, blocks in loader:
                yield blocks, blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
            return
        for seeds in self.seeds(train[order()]).split(options.batch_size):
            inputs, outputs, blocks = self.sampler.sample(self.graph, seeds)
            yield blocks, x.index_select(0, inputs), y.index_select(0, outputs)

    def logits(self, model, blocks, rows):
        for i, layer in enumerate(model.layers):
            rows = model.between(layer(blocks[i], rows), i)
        return rows

    def inference(self, model):
        return self.logits(model, [self.graph] * len(fanout), x)


class Pyg:
    """PyTorch Geometric's loader, layers and inference."""

    def __init__(self):
        import torch_geometric.nn as nn

        self.sampler = pyg_sampler()
        if options.layers != "whole" and self.sampler != "pyg-lib":
            skip(f"--layers {options.layers} needs pyg-lib: {self.sampler} does not report the nodes of each hop")
        if options.layers == "bipartite" and options.model == "gcn":
            skip("GCNConv does not take separate sources and destinations")
        self.data = pyg_data(options.dataset)
        self.data.x, self.data.y = x, y
        self.convolution = {
            "sage": lambda i, o, last: nn.SAGEConv(i, o),
            "gcn": lambda i, o, last: nn.GCNConv(i, o),
            "gat": lambda i, o, last: nn.GATConv(i, o if last else o // 4, heads=1 if last else 4),
        }[options.model]

    def batches(self, train, order):
        from torch_geometric.loader import NeighborLoader

        loader = NeighborLoader(self.data, fanout, input_nodes=train, batch_size=options.batch_size, shuffle=True)
        for batch in loader:
            yield batch, batch.x, batch.y[: batch.batch_size]

    def logits(self, model, batch, rows):
        from torch_geometric.utils import trim_to_layer

        edges = batch.edge_index
        for i, layer in enumerate(model.layers):
            if options.layers == "whole":
                rows = layer(rows, edges)
            elif options.layers == "trim":
                rows, edges, _ = trim_to_layer(i, batch.num_sampled_nodes, batch.num_sampled_edges, rows, edges)
                rows = layer(rows, edges)
            else:
                hops = len(fanout) - i
                destinations = sum(batch.num_sampled_nodes[:hops])
                rows = layer((rows, rows[:destinations]), edges[:, : sum(batch.num_sampled_edges[:hops])])
            rows = model.between(rows, i)
        return rows[: batch.batch_size]

    def inference(self, model):
        indptr, indices = array(options.dataset, "indptr"), array(options.dataset, "indices")
        size = (len(indptr) - 1,) * 2
        edges = torch.sparse_csr_tensor(indptr, indices, torch.ones(len(indices)), size=size)
        rows = x
        for i, layer in enumerate(model.layers):
            rows = model.between(layer(rows, edges), i)
        return rows


def train_epoch(system, model, optimizer, train, order):
    """Mean loss, seconds and number of the batches of an epoch, from the first draw to the last update."""
    model.train()
    losses = []
    autocast = torch.autocast("cpu", torch.bfloat16) if options.precision == "bf16" else nullcontext()
    clock = time.perf_counter()
    for batch, rows, labels in system.batches(train, order):
        with autocast:
            loss = F.cross_entropy(system.logits(model, batch, rows).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if len(losses) == options.max_batches:
            break
    return sum(losses) / len(losses), time.perf_counter() - clock, len(losses)


def scores(system, model, parts):
    """Accuracy on each part."""
    model.eval()
    with torch.no_grad():
        guess = system.inference(model).argmax(1)
    return [float((guess[nodes] == y[nodes]).float().mean()) for nodes in parts]


torch.manual_seed(options.seed)
x, y = features(options.dataset), array(options.dataset, "labels")
train, valid, test = (array(options.dataset, name) for name in ("train", "valid", "test"))
system = {"dgl": Dgl, "pyg": Pyg}[options.system]()
model = Net(system.convolution, x.shape[1], int(y.max()) + 1)
optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
generator = torch.Generator().manual_seed(options.seed)
epochs = []
for epoch in range(1, options.epochs + 1):
    order = lambda: torch.randperm(len(train), generator=generator)
    loss, seconds, batches = train_epoch(system, model, optimizer, train, order)
    record = {"epoch": epoch, "loss": loss, "seconds": seconds, "batches": batches, "valid_score": None, "eval_seconds": 0.0}
    if options.eval_every and epoch % options.eval_every == 0:
        clock = time.perf_counter()
        record["valid_score"], record["test_score"] = scores(system, model, (valid, test))
        record["eval_seconds"] = time.perf_counter() - clock
    epochs.append(record)
scored = [record for record in epochs if record["valid_score"] is not None]
best = max(scored, key=lambda record: record["valid_score"], default=None)
test = {"test": {"score": best["test_score"]}} if best else {}
emit(system=options.system, sampler=system.sampler if options.system == "pyg" else "dgl", epochs=epochs, **test)
