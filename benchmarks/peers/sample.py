#!/usr/bin/env python3
"""Seeds a second of the samplers of DGL and PyTorch Geometric, a line for each case.

    sample.py DATASET --system dgl --ids 32 --cases 15,10,5:1024,10,25:8000 --threads 2

Systems: `dgl` and `dgl-fused` (its path for several threads, which one thread does not take otherwise), `graphbolt`
(its operators, without the pipeline around them), `graphbolt-labor` (the same by LABOR), `pyg` with pyg-lib and
`pyg-sparse` with torch-sparse, which sample in this process. Cases are fanouts from the seeds outward and a batch size.
"""

import argparse
import statistics
import time

from common import array, dgl_graph, dgl_sampler, emit, pyg_data, pyg_sampler, set_threads

SYSTEMS = ["dgl", "dgl-fused", "graphbolt", "graphbolt-labor", "pyg", "pyg-sparse"]

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--system", choices=SYSTEMS, required=True)
parser.add_argument("--ids", type=int, choices=[32, 64], default=64, help="DGL: bits of its ids")
parser.add_argument("--cases", nargs="+", default=["15,10:1024"], help="FANOUT:BATCH")
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--seconds", type=float, default=0.3, help="minimum seconds of a run")
options = parser.parse_args()
set_threads(options.threads)

import torch


def sampler_of_dgl():
    import dgl.dataloading.neighbor_sampler as module

    graph = dgl_graph(options.dataset, options.ids)
    if options.system == "dgl-fused":
        module.get_num_threads = lambda: 2

    def make(fanout):
        sampler = dgl_sampler(fanout, options.ids)

        def draw(seeds):
            _, _, blocks = sampler.sample(graph, seeds)
            return sum(block.num_edges() for block in blocks)

        return draw

    return make


def sampler_of_graphbolt():
    import dgl.graphbolt as graphbolt
    from dgl.graphbolt.internal import unique_and_compact_csc_formats

    indptr, indices = array(options.dataset, "indptr"), array(options.dataset, "indices")
    graph = graphbolt.fused_csc_sampling_graph(indptr, indices.int() if options.ids == 32 else indices)
    sample = graph.sample_layer_neighbors if options.system == "graphbolt-labor" else graph.sample_neighbors

    def make(fanout):
        counts = [torch.LongTensor([count]) for count in fanout]

        def draw(seeds):
            edges = 0
            for count in counts:
                sampled = sample(seeds, count)
                seeds, compacted = unique_and_compact_csc_formats(sampled.sampled_csc, seeds)
                edges += len(compacted.indices)
            return edges

        return draw

    return make


def sampler_of_pyg():
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

    pyg_sampler("pyg-lib" if options.system == "pyg" else "torch-sparse")
    data = pyg_data(options.dataset)

    def make(fanout):
        sampler = NeighborSampler(data, fanout)
        return lambda seeds: sampler.sample_from_nodes(NodeSamplerInput(input_id=None, node=seeds)).row.numel()

    return make


def measure(draw, nodes, batch_size):
    """Seeds and edges a second of each run, of whole batches of shuffled seeds."""
    batches = nodes[torch.randperm(len(nodes))].split(batch_size)
    batches = [seeds for seeds in batches if len(seeds) == min(batch_size, len(nodes))]
    turn = 0
    for _ in range(3):
        draw(batches[0])
    runs = []
    for _ in range(options.repeat):
        seeds = edges = 0
        clock = time.perf_counter()
        while seeds == 0 or time.perf_counter() - clock < options.seconds:
            batch = batches[turn % len(batches)]
            turn, seeds, edges = turn + 1, seeds + len(batch), edges + draw(batch)
        elapsed = time.perf_counter() - clock
        runs.append((seeds / elapsed, edges / elapsed))
    return (statistics.median(figures) for figures in zip(*runs))


make = {"d": sampler_of_dgl, "g": sampler_of_graphbolt, "p": sampler_of_pyg}[options.system[0]]()
nodes = array(options.dataset, "train")
if options.ids == 32 and not options.system.startswith("pyg"):
    nodes = nodes.int()
for case in options.cases:
    fanout, batch_size = case.split(":")
    seeds, edges = measure(make([int(count) for count in fanout.split(",")]), nodes, int(batch_size))
    emit(case=case, system=options.system, seeds_per_second=seeds, edges_per_second=edges)
