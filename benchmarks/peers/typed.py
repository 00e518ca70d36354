#!/usr/bin/env python3
"""Trains on a graph of several types with DGL or PyTorch Geometric, or only draws its batches.

    typed.py DATASET --system dgl --model rgcn --fanout 10,10 --max-batches 24 --epochs 3
    typed.py DATASET --system pyg --model none --fanout 10,10 --repeat 5

DATASET is a directory of format 2. A model has a linear map for each node type with features, an
embedding for each other, and layers that sum over the edge types: `rgcn` the mean of the
neighbours, `rgat` attention, both with weights of their own and separate weights of a node's own
row. `--model none` prints seeds and edges a second. Batches of DGL come from the sampler without
the loader around it, its fastest setting; those of PyTorch Geometric from its loader. Fanouts are
by edge type, from the seeds outward.
"""

import argparse
import os
import statistics
import time

from common import array, dgl_sampler, emit, epoch_record, pyg_sampler, read_manifest, set_threads, skip

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--system", choices=["dgl", "graphbolt", "pyg"], required=True)
parser.add_argument("--model", choices=["rgcn", "rgat", "none"], default="rgcn")
parser.add_argument("--fanout", default="10,10")
parser.add_argument("--batch-size", type=int, default=1024)
parser.add_argument("--hidden", type=int, default=128)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--lr", type=float, default=0.003)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--max-batches", type=int, default=0, help="batches of an epoch; 0 for all")
parser.add_argument("--repeat", type=int, default=5, help="runs of --model none")
parser.add_argument("--seconds", type=float, default=0.3, help="minimum seconds of a run")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=0, help="0 for the library's default")
options = parser.parse_args()
set_threads(options.threads)

import torch
import torch.nn.functional as F

fanout = [int(count) for count in options.fanout.split(",")]


class Dataset:
    """Types, edges and the first task of a dataset of format 2."""

    def __init__(self, path):
        manifest, self.counts = read_manifest(path)
        self.features, self.edges = {}, {}
        for node in manifest["node_types"]:
            directory = os.path.join(path, "nodes", node["directory"])
            if os.path.exists(os.path.join(directory, "features.npy")):
                self.features[node["name"]] = array(directory, "features")
        for edge in manifest["edge_types"]:
            directory = os.path.join(path, "edges", edge["directory"])
            ends = (edge["source"], edge["name"], edge["destination"])
            self.edges[ends] = (array(directory, "indptr"), array(directory, "indices"))
        task = manifest["tasks"][0]
        directory = os.path.join(path, "tasks", task["directory"])
        self.target = task["on"]["nodes"]
        self.labels, self.train = array(directory, "targets"), array(directory, "train")


class Net(torch.nn.Module):
    """Projections, and sums over edge types of the convolutions that `make(width)` returns."""

    def __init__(self, data, make):
        super().__init__()
        hidden, classes = options.hidden, int(data.labels.max()) + 1
        self.project = torch.nn.ModuleDict({t: torch.nn.Linear(x.shape[1], hidden) for t, x in data.features.items()})
        self.learned = torch.nn.ModuleDict(
            {t: torch.nn.Embedding(n, hidden, sparse=True) for t, n in data.counts.items() if t not in data.features}
        )
        self.own, self.relations = torch.nn.ModuleList(), torch.nn.ModuleList()
        for layer in range(len(fanout)):
            last = layer + 1 == len(fanout)
            width = classes if last else hidden
            self.own.append(torch.nn.ModuleDict({t: torch.nn.Linear(hidden, width) for t in data.counts}))
            convolutions = {"|".join(ends): make(hidden, width, last) for ends in data.edges}
            self.relations.append(torch.nn.ModuleDict(convolutions))

    def inputs(self, features, nodes):
        """Rows of each type below the first layer, from features and the ids of nodes without any."""
        rows = {t: self.project[t](x) for t, x in features.items() if len(x)}
        rows.update({t: self.learned[t](nodes[t]) for t in self.learned if len(nodes.get(t, ()))})
        return rows

    def optimizers(self):
        sparse = list(self.learned.parameters())
        dense = [p for name, p in self.named_parameters() if not name.startswith("learned.")]
        return [torch.optim.Adam(dense, lr=options.lr)] + ([torch.optim.SparseAdam(sparse, lr=options.lr)] if sparse else [])

    def between(self, rows, layer):
        if layer + 1 == len(fanout):
            return rows
        return {t: F.dropout(F.relu(x), 0.5, self.training) for t, x in rows.items()}


def first_destinations(layer, rows, counts):
    """Products of the own rows of each type's destinations, which are its first rows."""
    return {t: layer[t](rows[t][:n]) for t, n in counts.items() if n and t in rows}


class Dgl:
    """DGL's sampler and layers."""

    def __init__(self, data):
        import dgl
        import dgl.nn as nn

        self.data = data
        none = torch.tensor([], dtype=torch.int64)
        edges = {ends: ("csc", (indptr, indices, none)) for ends, (indptr, indices) in data.edges.items()}
        self.graph = dgl.heterograph(edges, num_nodes_dict=data.counts)
        self.graph.create_formats_()
        self.sampler = dgl_sampler(fanout, 64)
        gat = lambda i, o, last: nn.GATConv(
            i, o if last else o // options.heads, 1 if last else options.heads, bias=False, allow_zero_in_degree=True
        )
        gcn = lambda i, o, last: nn.GraphConv(i, o, norm="right", bias=False, allow_zero_in_degree=True)
        self.make = {"rgcn": gcn, "rgat": gat, "none": None}[options.model]

    def draw(self, seeds):
        """Inputs of a batch by type, and its blocks."""
        inputs, _, blocks = self.sampler.sample(self.graph, {self.data.target: seeds})
        return inputs, blocks

    def count(self, seeds):
        return sum(block.num_edges(ends) for block in self.draw(seeds)[1] for ends in block.canonical_etypes)

    def batches(self, order):
        for seeds in self.data.train[order()].split(options.batch_size):
            inputs, blocks = self.draw(seeds)
            features = {t: x.index_select(0, inputs[t]) for t, x in self.data.features.items()}
            yield (inputs, blocks), features, self.data.labels[seeds]

    def logits(self, model, batch, features):
        inputs, blocks = batch
        rows = model.inputs(features, inputs)
        for layer, block in enumerate(blocks):
            counts = {t: block.num_dst_nodes(t) for t in block.dsttypes}
            out = first_destinations(model.own[layer], rows, counts)
            for ends in block.canonical_etypes:
                part = block[ends]
                if part.num_edges() and ends[2] in out:
                    pair = (rows[ends[0]], rows[ends[2]][: counts[ends[2]]])
                    out[ends[2]] = out[ends[2]] + model.relations[layer]["|".join(ends)](part, pair).flatten(1)
            rows = model.between(out, layer)
        return rows[self.data.target]


class GraphBolt:
    """Draws of GraphBolt's operators, without the pipeline around them."""

    def __init__(self, data):
        if options.model != "none":
            skip("GraphBolt samples; DGL's layers are those of --system dgl")
        import dgl.graphbolt as graphbolt

        self.data, types = data, list(data.counts)
        offsets = torch.tensor([0] + [data.counts[t] for t in types]).cumsum(0)
        first = dict(zip(types, offsets.tolist()))
        # one row of in-neighbours for each node of all types, by edge type
        degrees = torch.zeros(int(offsets[-1]), dtype=torch.int64)
        rows, sources, kinds = [], [], []
        for kind, (ends, (indptr, indices)) in enumerate(data.edges.items()):
            own = slice(first[ends[2]], first[ends[2]] + data.counts[ends[2]])
            degrees[own] += indptr.diff()
            rows.append(torch.repeat_interleave(torch.arange(own.start, own.stop), indptr.diff()))
            sources.append(indices + first[ends[0]])
            kinds.append(torch.full((len(indices),), kind, dtype=torch.uint8))
        order = torch.argsort(torch.cat(rows), stable=True)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
        self.graph = graphbolt.fused_csc_sampling_graph(
            indptr,
            torch.cat(sources)[order],
            node_type_offset=offsets,
            type_per_edge=torch.cat(kinds)[order],
            node_type_to_id={t: i for i, t in enumerate(types)},
            edge_type_to_id={":".join(ends): i for i, ends in enumerate(data.edges)},
        )
        self.counts = [torch.LongTensor([count] * len(data.edges)) for count in fanout]

    def count(self, seeds):
        from dgl.graphbolt.internal import unique_and_compact_csc_formats

        edges, nodes = 0, {self.data.target: seeds}
        for count in self.counts:
            sampled = self.graph.sample_neighbors(nodes, count)
            nodes, compacted = unique_and_compact_csc_formats(sampled.sampled_csc, nodes)
            edges += sum(len(part.indices) for part in compacted.values())
        return edges


class Pyg:
    """PyTorch Geometric's loader and layers, on the whole subgraph of a batch."""

    def __init__(self, data):
        import torch_geometric.nn as nn
        from torch_geometric.data import HeteroData

        self.library = pyg_sampler()
        self.data, self.graph = data, HeteroData()
        for t, count in data.counts.items():
            self.graph[t].num_nodes = count
            if t in data.features:
                self.graph[t].x = data.features[t]
        for ends, (indptr, indices) in data.edges.items():
            destinations = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
            self.graph[ends].edge_index = torch.stack([indices, destinations])
        self.graph[data.target].y = data.labels
        gat = lambda i, o, last: nn.GATConv(
            (i, i),
            o if last else o // options.heads,
            1 if last else options.heads,
            bias=False,
            add_self_loops=False,
        )
        gcn = lambda i, o, last: nn.SAGEConv((i, i), o, root_weight=False, bias=False)
        self.make = {"rgcn": gcn, "rgat": gat, "none": None}[options.model]

    def sampler(self):
        from torch_geometric.sampler import NeighborSampler

        return NeighborSampler(self.graph, fanout)

    def count(self, seeds):
        from torch_geometric.sampler import NodeSamplerInput

        if not hasattr(self, "drawing"):
            self.drawing = self.sampler()
        drawn = self.drawing.sample_from_nodes(NodeSamplerInput(None, seeds, None, self.data.target))
        return sum(row.numel() for row in drawn.row.values())

    def batches(self, order):
        from torch_geometric.loader import NeighborLoader

        nodes = (self.data.target, self.data.train)
        loader = NeighborLoader(self.graph, fanout, input_nodes=nodes, batch_size=options.batch_size, shuffle=True)
        for batch in loader:
            size = batch[self.data.target].batch_size
            features = {t: batch[t].x for t in self.data.features}
            yield batch, features, batch[self.data.target].y[:size]

    def logits(self, model, batch, features):
        nodes = {t: batch[t].n_id for t in model.learned}
        rows = model.inputs(features, nodes)
        for layer in range(len(fanout)):
            out = first_destinations(model.own[layer], rows, {t: len(x) for t, x in rows.items()})
            for ends in self.data.edges:
                edges = batch[ends].edge_index
                if edges.numel() and ends[2] in out and ends[0] in rows:
                    pair = (rows[ends[0]], rows[ends[2]])
                    out[ends[2]] = out[ends[2]] + model.relations[layer]["|".join(ends)](pair, edges)
            rows = model.between(out, layer)
        return rows[self.data.target][: batch[self.data.target].batch_size]


def train_epoch(system, model, optimizers, number, order):
    """Record of an epoch, from the first draw to the last update."""
    model.train()
    losses, clock = [], time.perf_counter()
    for batch, features, labels in system.batches(order):
        loss = F.cross_entropy(system.logits(model, batch, features), labels)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(float(loss.detach()))
        if len(losses) == options.max_batches:
            break
    return epoch_record(number, losses, clock)


def rates(system, data):
    """Medians of the seeds and edges a second of whole batches of shuffled seeds."""
    nodes = data.train[torch.randperm(len(data.train))]
    batches = [seeds for seeds in nodes.split(options.batch_size) if len(seeds) == min(options.batch_size, len(nodes))]
    runs, turn = [], 0
    for _ in range(3):
        system.count(batches[0])
    for _ in range(options.repeat):
        seeds = edges = 0
        clock = time.perf_counter()
        while seeds == 0 or time.perf_counter() - clock < options.seconds:
            batch = batches[turn % len(batches)]
            turn, seeds, edges = turn + 1, seeds + len(batch), edges + system.count(batch)
        elapsed = time.perf_counter() - clock
        runs.append((seeds / elapsed, edges / elapsed))
    return [statistics.median(figures) for figures in zip(*runs)]


torch.manual_seed(options.seed)
data = Dataset(options.dataset)
system = {"dgl": Dgl, "graphbolt": GraphBolt, "pyg": Pyg}[options.system](data)
if options.model == "none":
    seeds, edges = rates(system, data)
    emit(system=options.system, seeds_per_second=seeds, edges_per_second=edges)
else:
    model = Net(data, system.make)
    optimizers = model.optimizers()
    generator = torch.Generator().manual_seed(options.seed)
    order = lambda: torch.randperm(len(data.train), generator=generator)
    numbers = range(1, options.epochs + 1)
    epochs = [train_epoch(system, model, optimizers, number, order) for number in numbers]
    emit(system=options.system, epochs=epochs)
