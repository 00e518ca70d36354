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


class GraphmillModel(Exported):
    """A stack of graph layers with the dense layers, norms and residuals around them."""

    def __init__(self, options):
        super().__init__(options)
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

    def after(self, x, activated=False):
        """Activation, unless the layer applied it, and dropout."""
        x = x if activated else ACTIVATIONS[self.options["activation"]](x)
        return self.dropped(x)

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
        return self.outputs(x)

    def parameters_by_name(self):
        """Tensors of each parameter in the layout of `graphmill export-model --to safetensors`, by its name there.

        A parameter of several tensors holds them one after the other.
        """
        found = {}
        if self.input is not None:
            put_linear(found, self.input, "input.")
        hops = self.options["hops"] if self.options["model"] == "mixhop" else 1
        for layer, conv in enumerate(self.convs):
            # a layer of several hops has the weights in its first one, and the rest in its last one
            name, end = f"conv.{layer * hops}.", (layer + 1) * hops - 1
            if isinstance(conv, (SAGEConv, PinSageConv)):
                pool = conv.pool if isinstance(conv, PinSageConv) else conv.lin if conv.project else None
                if pool is not None:
                    put_linear(found, pool, f"{name}pool.")
                found[f"{name}neigh.weight"], found[f"{name}self.weight"] = [conv.lin_l.weight], [conv.lin_r.weight]
                found[f"{name}bias"] = [conv.lin_l.bias]
            elif isinstance(conv, (GCNConv, PowersConv)):
                found[f"{name}weight"], found[f"conv.{end}.bias"] = [conv.lin.weight], [conv.bias]
            elif isinstance(conv, GATConv):
                linear = conv.lin if getattr(conv, "lin", None) is not None else conv.lin_src
                found[f"{name}weight"], found[f"{name}bias"] = [linear.weight], [conv.bias]
                found[f"{name}source"], found[f"{name}target"] = [conv.att_src], [conv.att_dst]
            elif isinstance(conv, GATv2Conv):
                put_linear(found, conv.lin_l, f"{name}left.")
                put_linear(found, conv.lin_r, f"{name}right.")
                found[f"{name}attention"], found[f"{name}bias"] = [conv.att], [conv.bias]
            else:
                found[f"{name}eps"] = [conv.eps]
                put_linear(found, conv.nn[0], f"{name}mlp.0.")
                put_linear(found, conv.nn[-1], f"{name}mlp.1.")
                put_norm(found, conv.nn[1], f"{name}mlp.")
            put_norm(found, self.norms[layer], f"norm.{end}.")
            if isinstance(self.residuals[layer], nn.Linear):
                put_linear(found, self.residuals[layer], f"residual.{end}.")
        for i, linear in enumerate(self.head):
            put_linear(found, linear, f"head.{i}.")
        return found


MODEL = GraphmillModel
