"""Cuts small seeds out of real files, in the bytes that NumPy, SciPy and pickle write.

    python fuzz/cut.py DATASETS

DATASETS holds planetoid/ind.*, shchur_npz/cora.npz and heterophilous/minesweeper.npz. Only datasets
whose licence permits redistribution (MIT) are cut. Needs NumPy and SciPy; the seeds are checked in,
so run this only when a reader or the cut changes.
"""

import io
import json
import pickle
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

SOURCE = Path(sys.argv[1])
SEEDS = Path(__file__).parent / "seeds"
FILE = b"\xff%%\xff"
NODES = 8


def save(target, name, data):
    folder = SEEDS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"real-{name}").write_bytes(data)


def join(options, files):
    return options + b"".join(FILE + name.encode() + b"\n" + data for name, data in files.items())


def npz(arrays, compressed=True):
    out = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(out, **arrays)
    return out.getvalue()


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def csr(prefix, matrix):
    return {
        f"{prefix}data": matrix.data,
        f"{prefix}indices": matrix.indices,
        f"{prefix}indptr": matrix.indptr,
        f"{prefix}shape": np.array(matrix.shape),
    }


def shchur():
    with np.load(SOURCE / "shchur_npz/cora.npz", allow_pickle=False) as f:
        def matrix(prefix):
            return sp.csr_matrix((f[prefix + "data"], f[prefix + "indices"], f[prefix + "indptr"]), f[prefix + "shape"])

        adjacency, attributes, labels = matrix("adj_"), matrix("attr_"), f["labels"]
    # nodes with edges among themselves: a node and its neighbours
    hub = int(np.argmax(np.diff(adjacency.indptr)))
    nodes = np.unique(np.append(adjacency[hub].indices[: NODES - 1], hub))
    small = adjacency[nodes][:, nodes]
    features = attributes[nodes][:, :40]
    arrays = {**csr("adj_", small), **csr("attr_", features), "labels": labels[nodes]}
    for kind, data in [("packed", npz(arrays)), ("stored", npz(arrays, False))]:
        save("import_npz", f"shchur-{kind}", join(b"largest-component split=planetoid:1,0", {"a.npz": data}))
    save("npz", "shchur", join(b"", {"a.npz": npz(csr("adj_", small))}))
    save("npy", "indices", npy(small.indices))
    save("npy_header", "indices", npy(small.indices))
    saint = io.BytesIO()
    sp.save_npz(saint, sp.csr_matrix(small, dtype=bool))
    count = small.shape[0]
    files = {
        "adj_full.npz": saint.getvalue(),
        "feats.npy": npy(features.toarray().astype(np.float64)[:, :4]),
        "class_map.json": json.dumps({str(v): int(labels[node]) for v, node in enumerate(nodes)}).encode(),
        "role.json": json.dumps({"tr": [0, 1], "va": [2], "te": list(range(3, count))}).encode(),
    }
    save("import_graphsaint", "cora", join(b"normalize=standard", files))


def minesweeper():
    with np.load(SOURCE / "heterophilous/minesweeper.npz") as f:
        edges = f["edges"]
        edges = edges[(edges < NODES).all(axis=1)]
        arrays = {
            "node_features": f["node_features"][:NODES],
            "node_labels": f["node_labels"][:NODES],
            "edges": edges,
        }
        order = np.arange(NODES)
        for k, name in enumerate(["train_masks", "val_masks", "test_masks"]):
            arrays[name] = np.stack([order % 3 == k, order % 3 == (k + 1) % 3])
    save("import_npz", "masks", join(b"undirected split=given:1", {"a.npz": npz(arrays)}))


def python2_head(path, entries):
    """The first entries of a neighbour dictionary as Python 2 wrote it; the pickle program is truncated, not rewritten."""
    data = path.read_bytes()
    import pickletools

    appended = 0
    for opcode, _, position in pickletools.genops(data):
        if opcode.name in ("APPENDS", "APPEND"):
            appended += 1
            if appended == entries:
                return data[: position + 1] + b"u."
    raise SystemExit(f"{path}: fewer than {entries} entries")


def planetoid():
    folder = SOURCE / "planetoid"

    def load(suffix):
        with open(folder / f"ind.cora.{suffix}", "rb") as f:
            return pickle.load(f, encoding="latin1")

    allx, ally = load("allx")[:NODES, :60], load("ally")[:NODES]
    tx, ty = load("tx")[:2, :60], load("ty")[:2]
    graph = {v: [u for u in ns if u < NODES + 2] for v, ns in load("graph").items() if v < NODES}
    for protocol in (2, 4):
        files = {
            "ind.a.allx": pickle.dumps(sp.csr_matrix(allx), protocol),
            "ind.a.ally": pickle.dumps(ally, protocol),
            "ind.a.tx": pickle.dumps(sp.csr_matrix(tx), protocol),
            "ind.a.ty": pickle.dumps(ty, protocol),
            "ind.a.y": pickle.dumps(ally[:3], protocol),
            "ind.a.graph": pickle.dumps(graph, protocol),
            "ind.a.test.index": f"{NODES + 1}\n{NODES}\n".encode(),
        }
        save("import_planetoid", f"cora-{protocol}", join(b"normalize=rows", files))
        for suffix in ["allx", "y", "graph"]:
            save("pickle", f"{suffix}-{protocol}", files[f"ind.a.{suffix}"])
    save("pickle", "graph-python2", python2_head(folder / "ind.cora.graph", 12))
    save("pickle", "y-python2", (folder / "ind.pubmed.y").read_bytes())


shchur()
minesweeper()
planetoid()
total = sum(path.stat().st_size for path in SEEDS.rglob("*") if path.is_file())
print(f"{total} bytes of seeds")
