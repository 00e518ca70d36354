#!/usr/bin/env python3
"""Edges and seeds a second of samplers with and without times, with the lines of `graphmill-kernels times`.

    times.py DATASET TIMES --system graphbolt --ids 32 --hops 10,10 --threads 1 --apart

TIMES is a directory of `graphmill-kernels edge-times`; all edges exist at the times of the seeds. The batches of
both samplers alternate, and the best one of each counts. GraphBolt's operators run without the pipeline around them.
They share no rows with times: each sampled edge has a row of its own. PyTorch Geometric samples with times by
pyg-lib only, and shares rows within a seed's neighbourhood. Fanouts are from the seeds outward.
"""

import argparse
import os
import time

from common import array, emit, pyg_data, pyg_sampler, set_threads, skip

LATEST = 1000  # time of the first seed, above those of all edges

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("times")
parser.add_argument("--system", choices=["graphbolt", "pyg"], required=True)
parser.add_argument("--ids", type=int, choices=[32, 64], default=64, help="GraphBolt: bits of its ids")
parser.add_argument("--hops", default="10,10")
parser.add_argument("--draw", choices=["uniform", "last", "recency"], default="uniform")
parser.add_argument("--apart", action="store_true", help="give each seed another time")
parser.add_argument("--batch", type=int, default=1024)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--repeat", type=int, default=5, help="timed batches of each sampler")
options = parser.parse_args()
set_threads(options.threads)

import numpy as np
import torch

hops = [int(count) for count in options.hops.split(",")]


def read(name, kind):
    return torch.from_numpy(np.fromfile(os.path.join(options.times, name), kind).astype(np.int64))


def graphbolt():
    """Functions from seeds and their times to the number of edges, without and with times."""
    import dgl.graphbolt as graphbolt
    from dgl.graphbolt.internal import compact_csc_format, unique_and_compact_csc_formats

    if options.draw != "uniform":
        skip(f"GraphBolt has no draws by {options.draw}")
    indptr, indices = array(options.dataset, "indptr"), array(options.dataset, "indices")
    indices = indices.int() if options.ids == 32 else indices
    graph = graphbolt.fused_csc_sampling_graph(indptr, indices, edge_attributes={"time": read("time.i64", np.int64)})
    counts = [torch.LongTensor([count]) for count in hops]

    def without(seeds, _):
        edges = 0
        for count in counts:
            sampled = graph.sample_neighbors(seeds, count)
            seeds, compacted = unique_and_compact_csc_formats(sampled.sampled_csc, seeds)
            edges += len(compacted.indices)
        return edges

    def with_times(seeds, at):
        edges = 0
        for count in counts:
            sampled = graph.temporal_sample_neighbors(seeds, at, count, edge_timestamp_attr_name="time")
            seeds, compacted, at = compact_csc_format(sampled.sampled_csc, seeds, at)
            edges += len(compacted.indices)
        return edges

    return without, with_times


def pyg():
    """The same of PyTorch Geometric."""
    from torch_geometric.sampler import NeighborSampler, NodeSamplerInput

    pyg_sampler("pyg-lib")
    if options.draw == "recency":
        skip("PyTorch Geometric has no draws by recency")
    data = pyg_data(options.dataset)
    plain = NeighborSampler(data, hops)
    data.edge_time = read("time.i64", np.int64)
    timed = NeighborSampler(data, hops, time_attr="edge_time", temporal_strategy=options.draw)

    def without(seeds, _):
        return plain.sample_from_nodes(NodeSamplerInput(input_id=None, node=seeds)).row.numel()

    def with_times(seeds, at):
        return timed.sample_from_nodes(NodeSamplerInput(input_id=None, node=seeds, time=at)).row.numel()

    return without, with_times


def rates(sample, seeds, at):
    """Edges and seeds a second of a batch."""
    clock = time.perf_counter()
    edges = sample(seeds, at)
    elapsed = time.perf_counter() - clock
    return edges / elapsed, len(seeds) / elapsed


samplers = {"graphbolt": graphbolt, "pyg": pyg}[options.system]()
seeds = read("seeds.u32", np.uint32)
if options.ids == 32 and options.system == "graphbolt":
    seeds = seeds.int()
batches = [batch for batch in seeds.split(options.batch) if len(batch) == options.batch]
at = LATEST + torch.arange(options.batch) * int(options.apart)
runs = max(1, options.repeat)
# the first batch is a warm-up
drawn = [[rates(sample, batches[i % len(batches)], at) for sample in samplers] for i in range(runs + 1)][1:]
best = {}
for op, of in zip(("without times", "with times"), zip(*drawn)):
    edges, per_second = (max(figures) for figures in zip(*of))
    best[op] = edges
    emit(op=op, system=options.system, rate=edges, seeds_per_second=per_second, runs=runs)
emit(op="share", system=options.system, rate=best["with times"] / best["without times"], runs=runs)
