#!/usr/bin/env python3
"""Products, gathers and aggregation of PyTorch and DGL, with the lines of `graphmill-kernels`.

    kernels.py gemm --shapes 7000x100x256,100000x100x256
    kernels.py gather DATASET IDS
    kernels.py aggregate BLOCK --dim 100 --system dgl|dgl32|torch

Results that are not `reused` are allocated in every call. bf16 is `torch.autocast`, which converts both factors of
a product in every call, as Graphmill does. `aggregate` reads the block that Graphmill reads, with sources in the
same order.
"""

import argparse
import os

from common import emit, features, seconds_per_call, set_threads, spread

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("kernel", choices=["gemm", "gather", "aggregate"])
parser.add_argument("paths", nargs="*")
parser.add_argument("--system", choices=["dgl", "dgl32", "torch"], default="torch")
parser.add_argument("--shapes", default="7000x100x256")
parser.add_argument("--dim", type=int, default=100)
parser.add_argument("--threads", type=int, default=0)
parser.add_argument("--repeat", type=int, default=5)
parser.add_argument("--seconds", type=float, default=0.1, help="minimum seconds of a run")
options = parser.parse_args()
set_threads(options.threads)

import numpy as np
import torch


def time(op, amount, work):
    """Times an operation; `amount` is what a call does, in billions."""
    times = spread(seconds_per_call(work, options.repeat, options.seconds))
    emit(op=op, threads=torch.get_num_threads(), rate=amount / times["seconds"], **times)


def numbers(directory, name):
    return torch.from_numpy(np.fromfile(os.path.join(directory, name + ".u32"), np.uint32).astype(np.int64))


def gemm():
    for shape in options.shapes.split(","):
        m, k, n = map(int, shape.split("x"))
        x, w, y, gradient = torch.randn(m, k), torch.randn(k, n), torch.randn(m, n), torch.empty(k, n)
        work = 2e-9 * m * k * n
        time(shape, work, lambda: torch.mm(x, w, out=y))
        time(f"{shape} gradient", work, lambda: torch.mm(x.t(), y, out=gradient))
        with torch.autocast("cpu", torch.bfloat16):
            time(f"bf16 {shape}", work, lambda: torch.mm(x, w))
            time(f"bf16 {shape} gradient", work, lambda: torch.mm(x.t(), y))


def gather():
    dataset, ids = options.paths
    x, ids = features(dataset), numbers(ids, "ids")
    out = torch.empty(len(ids), x.shape[1])
    time("gather", 1e-9 * len(ids), lambda: torch.index_select(x, 0, ids))
    time("gather, reused", 1e-9 * len(ids), lambda: torch.index_select(x, 0, ids, out=out))


def aggregate():
    indptr, indices = (numbers(options.paths[0], name) for name in ("indptr", "indices"))
    destinations, edges = len(indptr) - 1, 2e-9 * len(indices) * options.dim
    sources = max(int(indices.max()) + 1, destinations)
    x, gradient = torch.randn(sources, options.dim), torch.randn(destinations, options.dim)
    if options.system == "torch":
        values = torch.ones(len(indices)) / indptr.diff().repeat_interleave(indptr.diff())
        matrix = torch.sparse_csr_tensor(indptr.int(), indices.int(), values, size=(destinations, sources))
        time("mean", edges, lambda: matrix @ x)
        return
    import dgl

    graph = dgl.create_block(
        ("csc", (indptr, indices, torch.tensor([], dtype=torch.int64))), num_src_nodes=sources, num_dst_nodes=destinations
    )
    graph = graph.int() if options.system == "dgl32" else graph
    time("mean", edges, lambda: dgl.ops.copy_u_mean(graph, x))
    x.requires_grad_()

    def both():
        x.grad = None
        dgl.ops.copy_u_mean(graph, x).backward(gradient)

    time("mean and gradient", 2 * edges, both)


{"gemm": gemm, "gather": gather, "aggregate": aggregate}[options.kernel]()
