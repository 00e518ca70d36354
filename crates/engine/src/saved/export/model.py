"""Model of a Graphmill run, made of the layers of PyTorch Geometric.

    from model import load
    model = load()                      # a torch.nn.Module in evaluation mode
    scores = model(x, edge_index)       # rows of all nodes; edges point from neighbour to node

`x` holds the feature rows of the dataset as Graphmill stores them, `edge_index` all of its edges.
The outputs are those of `graphmill predict` on every node, to rounding: scores before softmax or
sigmoid, or values at the scale of the targets. A run with `--label-inputs` reads one
more column for each class: 1 for the class of a training node, and 0 elsewhere.

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
            flat = torch.frombuffer(data[first:last], dtype=torch.float32)
            tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


class L2Norm(nn.Module):
    """Rows of unit length."""

    def forward(self, x):
        return F.normalize(x, dim=1)


class PowersConv(nn.Module):
    """Parts of the rows, part `k` of which is aggregated `k` times: MixHop, and GraphSAGE that concatenates."""

    def __init__(self, width, out, hops, aggregate, last):
        super().__init__()
        self.hops, self.last = hops, last
        self.lin = nn.Linear(width, (hops + 1) * out if last else out, bias=False)
        self.bias = nn.Parameter(torch.zeros(out))
        self.aggregate = SimpleConv(aggregate)

    def forward(self, x, edge_index, edge_weight=None):
        x, powers = self.lin(x), self.hops + 1
        small, wider = divmod(x.shape[1], powers)
        for stay in range(self.hops, 0, -1):
            # the first parts are the wider ones by a column
            at = stay * small + min(stay, wider)
            x = torch.cat([x[:, :at], self.aggregate(x[:, at:], edge_index, edge_weight)], dim=1)
        if self.last:
            x = x.reshape(x.shape[0], powers, -1).mean(dim=1)
        return x + self.bias


class PinSageConv(nn.Module):
    """The own row and the mean of the neighbours' dense rows, at unit length unless they are the scores."""

    def __init__(self, width, out, activation, last):
        super().__init__()
        self.activation, self.last = activation, last
        inner = width if last else out
        self.pool = nn.Linear(width, inner)
        self.lin_l, self.lin_r = nn.Linear(inner, out), nn.Linear(width, out, bias=False)
        self.aggregate = SimpleConv("mean")

    def forward(self, x, edge_index):
        neighbors = self.aggregate(self.activation(self.pool(x)), edge_index)
        rows = self.lin_l(neighbors) + self.lin_r(x)
        return rows if self.last else F.normalize(self.activation(rows), dim=1)


def make_conv(options, width, out, last):
    """Graph layer with untrained parameters."""
    kind = options["model"]
    if kind == "sage":
        if options["aggregator"] == "max-pool":
            return SAGEConv(width, out, aggr="max", project=True)
        if options["sage_combine"] == "concat":
            return PowersConv(width, out, 1, "mean", last)
        return SAGEConv(width, out, aggr="mean")
    if kind == "gcn":
        return GCNConv(width, out, normalize=False, add_self_loops=False)
    if kind == "mixhop":
        return PowersConv(width, out, options["hops"], "sum", last)
    if kind == "pinsage":
        return PinSageConv(width, out, ACTIVATIONS[options["activation"]], last)
    if kind in ("gat", "gatv2"):
        heads = options["out_heads"] if last else options["heads"]
        size = out if last else out // heads
        dropout = options["attention_dropout"]
        layer = GATConv if kind == "gat" else GATv2Conv
        conv = layer(width, size, heads, concat=not last, dropout=dropout, add_self_loops=False)
        if kind == "gatv2":
            conv.lin_l.bias = None  # the bias of the other end says the same of the scores
        return conv
    inner = [nn.Linear(width, out)] + ([nn.BatchNorm1d(out)] if options["norm"] == "batch" else [])
    return GINConv(nn.Sequential(*inner, nn.ReLU(), nn.Linear(out, out)), train_eps=True)


def make_norm(name, width):
    """Normalization of rows, or None."""
    made = {"none": None, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "l2": lambda _: L2Norm()}[name]
    return made and made(width)


class GraphmillModel(nn.Module):
    """A stack of graph layers with the dense layers, norms and residuals around them."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        hidden, out, layers = options["hidden"], options["outputs"], options["layers"]
        width = options["inputs"]
        self.input = None
        if options["input_layer"]:
            self.input, width = nn.Linear(width, hidden), hidden
        self.convs, self.norms, self.residuals = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for layer in range(layers):
            last = layer + 1 == layers and options["head_layers"] == 0
            to = out if last else hidden
            self.convs.append(make_conv(options, width, to, last))
            norm = None if last else make_norm(options["norm"], to)
            self.norms.append(norm if norm is not None else nn.Identity())
            linear = options["residual"] == "linear"
            self.residuals.append(nn.Linear(width, to, bias=False) if linear else nn.Identity())
            width = to
        sizes = [hidden] * options["head_layers"] + [out]
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        scale = options["target_scale"] or {"mean": [0.0], "deviation": [1.0]}
        self.register_buffer("mean", torch.tensor(scale["mean"]))
        self.register_buffer("deviation", torch.tensor(scale["deviation"]))
        for c, quantiles in enumerate(scale.get("quantiles", [])):
            self.register_buffer(f"quantiles{c}", torch.tensor(quantiles), persistent=False)

    def after(self, x, activated=False):
        """Activation, unless the layer applied it, and dropout."""
        x = x if activated else ACTIVATIONS[self.options["activation"]](x)
        return F.dropout(x, self.options["dropout"], self.training)

    def edges(self, edge_index, nodes):
        """Edges that the layers read, with their weights (GCN, MixHop) or None."""
        kind = self.options["model"]
        if kind not in ("gcn", "mixhop", "gat", "gatv2"):
            return edge_index, None
        loops = torch.arange(nodes, device=edge_index.device)
        with_loops = torch.cat([edge_index, torch.stack([loops, loops])], dim=1)
        if kind in ("gat", "gatv2"):
            return with_loops, None
        degree = torch.zeros(nodes, device=edge_index.device)
        degree.scatter_add_(0, edge_index[1], torch.ones(edge_index.shape[1], device=edge_index.device))
        factor = (degree + 1).rsqrt()
        return with_loops, factor[with_loops[0]] * factor[with_loops[1]]

    def forward(self, x, edge_index):
        options = self.options
        edge_index, weight = self.edges(edge_index, x.shape[0])
        x = F.dropout(x, options["input_dropout"], self.training)
        if self.input is not None:
            x = self.after(self.input(x))
        for layer, (conv, norm, residual) in enumerate(zip(self.convs, self.norms, self.residuals)):
            last = layer + 1 == len(self.convs) and len(self.head) == 0
            rows = conv(x, edge_index) if weight is None else conv(x, edge_index, weight)
            if options["residual"] == "linear" or options["residual"] == "identity" and x.shape == rows.shape:
                rows = rows + residual(x)
            x = rows if last else self.after(norm(rows), isinstance(conv, PinSageConv))
        for i, linear in enumerate(self.head):
            x = linear(x) if i + 1 == len(self.head) else self.after(linear(x))
        return self.values(x) if options["target_scale"] else x

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

    def parameters_by_name(self):
        """Tensors of each parameter in the layout of `graphmill export-model --to safetensors`, by its name there.

        A parameter of several tensors holds them one after the other.
        """
        found = {}

        def put_linear(linear, name):
            found[f"{name}weight"] = [linear.weight]
            if linear.bias is not None:
                found[f"{name}bias"] = [linear.bias]

        def put_norm(norm, name):
            found[f"{name}gamma"], found[f"{name}beta"] = [norm.weight], [norm.bias]
            if isinstance(norm, nn.BatchNorm1d):
                found[f"{name}running"] = [norm.running_mean, norm.running_var]

        if self.input is not None:
            put_linear(self.input, "input.")
        hops = self.options["hops"] if self.options["model"] == "mixhop" else 1
        for layer, conv in enumerate(self.convs):
            # a layer of several hops has the weights in its first one, and the rest in its last one
            name, end = f"conv.{layer * hops}.", (layer + 1) * hops - 1
            if isinstance(conv, (SAGEConv, PinSageConv)):
                pool = conv.pool if isinstance(conv, PinSageConv) else conv.lin if conv.project else None
                if pool is not None:
                    put_linear(pool, f"{name}pool.")
                found[f"{name}neigh.weight"], found[f"{name}self.weight"] = [conv.lin_l.weight], [conv.lin_r.weight]
                found[f"{name}bias"] = [conv.lin_l.bias]
            elif isinstance(conv, (GCNConv, PowersConv)):
                found[f"{name}weight"], found[f"conv.{end}.bias"] = [conv.lin.weight], [conv.bias]
            elif isinstance(conv, GATConv):
                linear = conv.lin if getattr(conv, "lin", None) is not None else conv.lin_src
                found[f"{name}weight"], found[f"{name}bias"] = [linear.weight], [conv.bias]
                found[f"{name}source"], found[f"{name}target"] = [conv.att_src], [conv.att_dst]
            elif isinstance(conv, GATv2Conv):
                put_linear(conv.lin_l, f"{name}left.")
                put_linear(conv.lin_r, f"{name}right.")
                found[f"{name}attention"], found[f"{name}bias"] = [conv.att], [conv.bias]
            else:
                found[f"{name}eps"] = [conv.eps]
                put_linear(conv.nn[0], f"{name}mlp.0.")
                put_linear(conv.nn[-1], f"{name}mlp.1.")
                if isinstance(conv.nn[1], nn.BatchNorm1d):
                    put_norm(conv.nn[1], f"{name}mlp.")
            if isinstance(self.norms[layer], (nn.BatchNorm1d, nn.LayerNorm)):
                put_norm(self.norms[layer], f"norm.{end}.")
            if isinstance(self.residuals[layer], nn.Linear):
                put_linear(self.residuals[layer], f"residual.{end}.")
        for i, linear in enumerate(self.head):
            put_linear(linear, f"head.{i}.")
        return found

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
    model = GraphmillModel(json.loads((directory / "model.json").read_text(encoding="utf-8")))
    model.load_weights(read_tensors(directory / "weights.safetensors"))
    return model.eval()
