#!/usr/bin/env python3
"""Trains GraphSAGE on links with DGL or PyTorch Geometric and prints the seconds of each epoch.

    links.py DATASET --system pyg --fanout 10,10 --max-batches 24 --epochs 3

A batch has edges of the graph and a random negative for each; the score of a pair is the dot
product of its embeddings, and the loss is the binary cross-entropy. DGL leaves out the edges of a
batch and their reverses while it samples, as Graphmill does; PyTorch Geometric does not. Fanouts
are from the seeds outward.
"""

import argparse
import time

from common import dgl_graph, dgl_sampler, emit, epoch_record, features, pyg_data, pyg_sampler, set_threads

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--system", choices=["dgl", "pyg"], required=True)
parser.add_argument("--fanout", default="10,10")
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=256)
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--max-batches", type=int, default=0, help="batches of an epoch; 0 for all")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=0, help="0 for the library's default")
options = parser.parse_args()
set_threads(options.threads)

import torch
import torch.nn.functional as F

fanout = [int(count) for count in options.fanout.split(",")]


class Net(torch.nn.Module):
    """GraphSAGE whose last rows are embeddings."""

    def __init__(self, convolution, width):
        super().__init__()
        widths = [width] + [options.hidden] * len(fanout)
        self.layers = torch.nn.ModuleList(convolution(i, o) for i, o in zip(widths, widths[1:]))

    def between(self, x, layer):
        return x if layer + 1 == len(self.layers) else F.dropout(F.relu(x), 0.5, self.training)


def dgl_batches(x):
    """Function from a model to the scores of each batch: of its edges, and of as many negatives."""
    import dgl
    import dgl.nn as nn

    graph = dgl_graph(options.dataset, 64)
    # the number of each edge's reverse; an edge without one is left out itself
    sources, destinations = graph.edges(order="eid")
    count = graph.num_nodes()
    key, back = sources * count + destinations, destinations * count + sources
    sorted_keys, order = key.sort()
    place = torch.searchsorted(sorted_keys, back).clamp(max=len(key) - 1)
    reverse = torch.where(sorted_keys[place] == back, order[place], torch.arange(len(key)))
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl_sampler(fanout, 64),
        exclude="reverse_id",
        reverse_eids=reverse,
        negative_sampler=dgl.dataloading.negative_sampler.Uniform(1),
    )
    edges = torch.arange(graph.num_edges())

    def epoch(model):
        loader = dgl.dataloading.DataLoader(graph, edges, sampler, batch_size=options.batch_size, shuffle=True)
        for inputs, positive, negative, blocks in loader:
            rows = x.index_select(0, inputs)
            for layer, block in enumerate(blocks):
                rows = model.between(model.layers[layer](block, rows), layer)
            pairs = [part.edges() for part in (positive, negative)]
            yield [(rows[source] * rows[destination]).sum(1) for source, destination in pairs]

    return lambda i, o: nn.SAGEConv(i, o, "mean"), epoch


def pyg_batches(x):
    """As `dgl_batches`, with the loader of PyTorch Geometric."""
    import torch_geometric.nn as nn
    from torch_geometric.loader import LinkNeighborLoader

    pyg_sampler()
    data = pyg_data(options.dataset)
    data.x = x

    def epoch(model):
        loader = LinkNeighborLoader(
            data,
            fanout,
            edge_label_index=data.edge_index,
            neg_sampling="binary",
            batch_size=options.batch_size,
            shuffle=True,
        )
        for batch in loader:
            rows = batch.x
            for layer, convolution in enumerate(model.layers):
                rows = model.between(convolution(rows, batch.edge_index), layer)
            source, destination = batch.edge_label_index
            scores = (rows[source] * rows[destination]).sum(1)
            yield scores.split([int(batch.edge_label.sum()), int((batch.edge_label == 0).sum())])

    return lambda i, o: nn.SAGEConv(i, o), epoch


torch.manual_seed(options.seed)
x = features(options.dataset)
convolution, batches = {"dgl": dgl_batches, "pyg": pyg_batches}[options.system](x)
model = Net(convolution, x.shape[1])
optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
epochs = []
for epoch in range(1, options.epochs + 1):
    model.train()
    losses = []
    # loaders that start an epoch by shuffling millions of edges do so before the clock
    drawn = batches(model)
    next(drawn)
    clock = time.perf_counter()
    for positive, negative in drawn:
        scores = torch.cat([positive, negative])
        targets = torch.cat([torch.ones_like(positive), torch.zeros_like(negative)])
        loss = F.binary_cross_entropy_with_logits(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        if len(losses) == options.max_batches:
            break
    epochs.append(epoch_record(epoch, losses, clock))
emit(system=options.system, epochs=epochs)
