#!/usr/bin/env python3
"""Trains TGN on a stream of events with PyTorch Geometric's modules: memory, attention, last neighbours.

    events.py DATASET --epochs 3

DATASET is a directory of format 2 with one edge type whose edges have times. An epoch reads the
first 70 % of the events in batches of 200 by time, with a random destination for each, and starts
with an empty memory. Evaluation is left out.
"""

import argparse
import os
import time

from common import array, emit, epoch_record, read_manifest, set_threads

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=200)
parser.add_argument("--max-batches", type=int, default=0, help="batches of an epoch; 0 for all")
parser.add_argument("--neighbors", type=int, default=10)
parser.add_argument("--hidden", type=int, default=100, help="width of memory and embeddings")
parser.add_argument("--time-dim", type=int, default=100)
parser.add_argument("--heads", type=int, default=2)
parser.add_argument("--lr", type=float, default=0.0001)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=0, help="0 for the library's default")
options = parser.parse_args()
set_threads(options.threads)

import numpy as np
import torch
from torch_geometric.data import TemporalData
from torch_geometric.loader import TemporalDataLoader
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader


def stream(path):
    """Training events of the first edge type by time, the number of nodes, and the first destination."""
    manifest, counts = read_manifest(path)
    edge = manifest["edge_types"][0]
    directory = os.path.join(path, "edges", edge["directory"])
    indptr, sources = array(directory, "indptr"), array(directory, "indices")
    times = torch.from_numpy(np.load(os.path.join(directory, "time.npy")))
    destinations = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    first = 0 if edge["source"] == edge["destination"] else counts[edge["source"]]
    order = torch.argsort(times, stable=True)
    order = order[: int(0.7 * len(order))]
    times = (times[order] - times[order[0]]).long()
    messages = torch.zeros(len(order), 1)
    events = TemporalData(src=sources[order], dst=destinations[order] + first, t=times, msg=messages)
    return events, sum(counts.values()), first


class Embedding(torch.nn.Module):
    """Attention of a node's memory to its last neighbours, with the time since each event."""

    def __init__(self, width, messages, time_encoder):
        super().__init__()
        self.time = time_encoder
        edges = messages + time_encoder.out_channels
        self.attention = TransformerConv(
            width, width // options.heads, heads=options.heads, dropout=0.1, edge_dim=edges
        )

    def forward(self, x, last_update, edges, t, messages):
        since = (last_update[edges[0]] - t).to(x.dtype)
        return self.attention(x, edges, torch.cat([self.time(since), messages], 1))


class Scorer(torch.nn.Module):
    """Score of a pair of embeddings."""

    def __init__(self, width):
        super().__init__()
        self.source, self.destination = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, 1)

    def forward(self, source, destination):
        return self.out((self.source(source) + self.destination(destination)).relu())


torch.manual_seed(options.seed)
events, num_nodes, first = stream(options.dataset)
message_dim = events.msg.shape[1]
memory = TGNMemory(
    num_nodes,
    message_dim,
    options.hidden,
    options.time_dim,
    message_module=IdentityMessage(message_dim, options.hidden, options.time_dim),
    aggregator_module=LastAggregator(),
)
embedding = Embedding(options.hidden, message_dim, memory.time_enc)
scorer = Scorer(options.hidden)
parameters = {p for module in (memory, embedding, scorer) for p in module.parameters()}
optimizer = torch.optim.Adam(parameters, lr=options.lr)
neighbors = LastNeighborLoader(num_nodes, size=options.neighbors)
loss_of = torch.nn.BCEWithLogitsLoss()
local = torch.empty(num_nodes, dtype=torch.long)
epochs = []
for epoch in range(1, options.epochs + 1):
    clock, losses = time.perf_counter(), []
    for module in (memory, embedding, scorer):
        module.train()
    memory.reset_state()
    neighbors.reset_state()
    for batch in TemporalDataLoader(events, batch_size=options.batch_size):
        optimizer.zero_grad()
        negatives = torch.randint(first, num_nodes, (len(batch.src),))
        nodes, edges, numbers = neighbors(torch.cat([batch.src, batch.dst, negatives]).unique())
        local[nodes] = torch.arange(len(nodes))
        rows, last_update = memory(nodes)
        rows = embedding(rows, last_update, edges, events.t[numbers], events.msg[numbers])
        positive = scorer(rows[local[batch.src]], rows[local[batch.dst]])
        negative = scorer(rows[local[batch.src]], rows[local[negatives]])
        loss = loss_of(positive, torch.ones_like(positive)) + loss_of(negative, torch.zeros_like(negative))
        memory.update_state(batch.src, batch.dst, batch.t, batch.msg)
        neighbors.insert(batch.src, batch.dst)
        loss.backward()
        optimizer.step()
        memory.detach()
        losses.append(float(loss.detach()))
        if len(losses) == options.max_batches:
            break
    epochs.append(epoch_record(epoch, losses, clock))
emit(system="pyg", epochs=epochs)
