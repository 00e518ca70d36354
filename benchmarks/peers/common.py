"""Helpers of the peers' benchmarks: threads, datasets, clocks and output.

Every script prints JSON lines. A script that cannot run prints one line with the field `skipped`.
"""

import json
import os
import platform
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")


def set_threads(threads):
    """Limits all thread pools; 0 leaves the libraries' defaults. Call it before importing torch."""
    if threads:
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ[name] = str(threads)
    import torch

    if threads:
        torch.set_num_threads(threads)


def emit(**fields):
    """Prints a line with the versions of all imported libraries."""
    names = ("torch", "dgl", "torch_geometric", "torch_sparse", "pyg_lib", "numpy")
    versions = {name: sys.modules[name].__version__ for name in names if hasattr(sys.modules.get(name), "__version__")}
    print(json.dumps({**fields, "versions": {"python": platform.python_version(), **versions}}), flush=True)


def skip(reason):
    """Reports that this side cannot take part, and ends the script."""
    print(json.dumps({"skipped": reason}), flush=True)
    sys.exit(0)


def array(dataset, name):
    """Array of a Graphmill dataset directory as a tensor with an index or value type of torch."""
    import numpy as np
    import torch

    values = np.load(os.path.join(dataset, name + ".npy"))
    wider = {"uint32": np.int64, "uint64": np.int64, "int32": np.int64}
    return torch.from_numpy(values.astype(wider.get(values.dtype.name, np.float32), copy=False))


def features(dataset):
    """Dense feature rows."""
    import numpy as np
    import torch

    if os.path.exists(os.path.join(dataset, "features.npy")):
        return array(dataset, "features")
    indptr, columns, values = (array(dataset, f"features_{name}") for name in ("indptr", "indices", "values"))
    with open(os.path.join(dataset, "graphmill.json")) as file:
        width = json.load(file)["feature_dim"]
    rows = torch.zeros(len(indptr) - 1, width)
    rows[np.repeat(np.arange(len(indptr) - 1), indptr.diff()), columns] = values
    return rows


def dgl_graph(dataset, bits):
    """Graph of DGL in the format that its samplers read; `bits` of its ids."""
    import dgl
    import torch

    indptr, indices = array(dataset, "indptr"), array(dataset, "indices")
    graph = dgl.graph(("csc", (indptr, indices, torch.tensor([], dtype=torch.int64))), num_nodes=len(indptr) - 1)
    graph = graph.int() if bits == 32 else graph
    graph.create_formats_()
    return graph


def dgl_sampler(fanout, bits):
    """Neighbour sampler of DGL; the fused path of 2.1.0 corrupts the memory of 32-bit graphs."""
    import dgl

    return dgl.dataloading.NeighborSampler(fanout[::-1], fused=bits == 64)


def pyg_data(dataset):
    """Graph of PyTorch Geometric: edges from source to destination."""
    import torch
    from torch_geometric.data import Data

    indptr, indices = array(dataset, "indptr"), array(dataset, "indices")
    destinations = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    return Data(edge_index=torch.stack([indices, destinations]), num_nodes=len(indptr) - 1)


def pyg_sampler(choice="auto"):
    """Name of the library that PyTorch Geometric samples with; without one the script is skipped."""
    import torch_geometric.typing as installed

    if choice != "torch-sparse" and installed.WITH_PYG_LIB:
        return "pyg-lib"
    if choice != "pyg-lib" and installed.WITH_TORCH_SPARSE:
        installed.WITH_PYG_LIB = False
        return "torch-sparse"
    if choice != "auto":
        skip(f"{choice} is not installed")
    return skip("neither pyg-lib nor torch-sparse is installed, and NeighborLoader raises an ImportError without one")


def seconds_per_call(work, runs, least):
    """Seconds of a call in each run: after a warm-up, a run repeats it for at least `least` seconds."""
    work()
    clock = time.perf_counter()
    work()
    calls = max(1, -(-least // max(time.perf_counter() - clock, 1e-9)))
    times = []
    for _ in range(runs):
        clock = time.perf_counter()
        for _ in range(int(calls)):
            work()
        times.append((time.perf_counter() - clock) / calls)
    return times


def spread(times):
    """Fields of a line about the seconds of some runs."""
    return {
        "seconds": statistics.median(times),
        "min_seconds": min(times),
        "max_seconds": max(times),
        "runs": len(times),
    }


def epoch_record(epoch, losses, clock):
    """Fields of an epoch that began at `clock` and whose batches had these losses."""
    seconds = time.perf_counter() - clock
    return {"epoch": epoch, "loss": sum(losses) / len(losses), "seconds": seconds, "batches": len(losses)}


def read_manifest(dataset):
    """Manifest of a directory of format 2, and the number of nodes of each type."""
    with open(os.path.join(dataset, "graphmill.json")) as file:
        manifest = json.load(file)
    return manifest, {node["name"]: node["nodes"] for node in manifest["node_types"]}
