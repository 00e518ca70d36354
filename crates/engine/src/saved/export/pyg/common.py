"""Model of a Graphmill run, made of the layers of PyTorch Geometric.

    from model import load
    model = load()                      # a torch.nn.Module in evaluation mode
    scores = model(x, edge_index)       # a row for each node; edges point from neighbour to node

`x` holds the feature rows of the dataset as Graphmill stores them, `edge_index` all of its edges.
The outputs are those of `graphmill predict` on every node, to rounding: scores before softmax or
sigmoid, or values at the scale of the targets. A run with `--label-inputs` reads one
more column for each class: 1 for the class of a training node, and 0 elsewhere.

A model of several types takes two dicts, as `x_dict` and `edge_index_dict` of a `HeteroData`: rows
by node type, and edges by (source type, name, destination type). It returns the rows of the type
that the run predicts. A type whose rows were learned needs no features. A model that reads edge
features, also of one type, takes them as a third dict, the `edge_attr_dict`.

A model of links returns a score for each pair of nodes. `pairs` (2 x P) holds the ids of sources and
of destinations, as `edge_label_index`, and `relation` names one of several relations:

    scores = model(x, edge_index, pairs)                        # one type
    scores = model(x_dict, edge_index_dict, pairs, relation)    # several types, or edge features:
                                                                # edge_attr=edge_attr_dict
    scores = model(pairs, relation)                             # a table of embeddings
    scores = model(pairs, relation, edge_index_dict)            # LightGCN, over the training edges

`model.encode` takes the same without pairs and returns the embeddings, by node type if there are
several or a table; `model.decode(embeddings, pairs, relation)` scores any number of pairs of them.

`graphmill export-model` wrote this file, the options in `model.json` and the parameters in
`weights.safetensors`.
"""

import json
import struct
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv, SimpleConv
from torch_geometric.utils import scatter, softmax

ACTIVATIONS = {"relu": F.relu, "elu": F.elu, "leaky-relu": F.leaky_relu, "identity": lambda x: x}


def read_tensors(path):
    """Tensors of a safetensors file of 32-bit floats, by name."""
    data = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (8 + length + offset for offset in entry["data_offsets"])
            # a buffer of no bytes is none to PyTorch
            flat = torch.frombuffer(data[first:last], dtype=torch.float32) if last > first else torch.empty(0)
            tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


class L2Norm(nn.Module):
    """Rows of unit length."""

    def forward(self, x):
        return F.normalize(x, dim=1)


def make_norm(name, width):
    """Normalization of rows, or None."""
    made = {"none": None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "l2": lambda _: L2Norm()}[name]
    return made and made(width)


def put_linear(found, linear, name):
    """Adds the parameters of a linear map to those by name."""
    found[f"{name}weight"] = [linear.weight]
    if linear.bias is not None:
        found[f"{name}bias"] = [linear.bias]


def put_norm(found, norm, name):
    """Adds the parameters of a normalization to those by name."""
    if isinstance(norm, (nn.BatchNorm1d, nn.LayerNorm)):
        found[f"{name}gamma"], found[f"{name}beta"] = [norm.weight], [norm.bias]
    if isinstance(norm, nn.BatchNorm1d):
        found[f"{name}running"] = [norm.running_mean, norm.running_var]


class Exported(nn.Module):
    """A module with the options and the parameters of a Graphmill run."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        scale = options["target_scale"] or {"mean": [0.0], "deviation": [1.0]}
        self.register_buffer("mean", torch.tensor(scale["mean"]))
        self.register_buffer("deviation", torch.tensor(scale["deviation"]))
        for c, quantiles in enumerate(scale.get("quantiles", [])):
            self.register_buffer(f"quantiles{c}", torch.tensor(quantiles), persistent=False)

    def dropped(self, x):
        """Hidden rows after dropout."""
        return F.dropout(x, self.options["dropout"], self.training)

    def outputs(self, x):
        """Scores, or values at the scale of the targets."""
        return self.values(x) if self.options["target_scale"] else x

    def values(self, x):
        """Values at the scale of the targets."""
        x, transform = x * self.deviation + self.mean, self.options["target_scale"].get("transform")
        if transform == "log":
            return torch.sign(x) * torch.expm1(x.abs())
        if transform != "quantile":
            return x
        columns = []
        for c in range(x.shape[1]):
            quantiles = getattr(self, f"quantiles{c}")
            rank = (torch.special.ndtr(x[:, c]) * len(quantiles) - 0.5).clamp(0, len(quantiles) - 1)
            low = rank.floor().long()
            high = (low + 1).clamp(max=len(quantiles) - 1)
            columns.append(torch.lerp(quantiles[low], quantiles[high], rank - low))
        return torch.stack(columns, dim=1)

    @torch.no_grad()
    def load_weights(self, tensors):
        """Copies parameters in the layout of `graphmill export-model --to safetensors`."""
        own = self.parameters_by_name()
        if set(own) != set(tensors):
            raise ValueError(f"weights.safetensors: unknown or missing tensors {sorted(set(own) ^ set(tensors))}; export the run again")
        for name, parts in own.items():
            values = tensors[name].reshape(-1).split([part.numel() for part in parts])
            for part, value in zip(parts, values):
                part.copy_(value.reshape(part.shape))

    @torch.no_grad()
    def weights(self):
        """Parameters in the layout of `load_weights`, each as one row of values."""
        own = self.parameters_by_name()
        return {name: torch.cat([part.reshape(-1).float().cpu() for part in parts]) for name, parts in own.items()}


def load(directory=None):
    """The exported model of a directory, by default that of this file, in evaluation mode."""
    directory = Path(directory or Path(__file__).parent)
    model = MODEL(json.loads((directory / "model.json").read_text(encoding="utf-8")))
    model.load_weights(read_tensors(directory / "weights.safetensors"))
    return model.eval()
