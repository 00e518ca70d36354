class Product(nn.Module):
    """A linear map that may have no inputs, of edges without features."""

    def __init__(self, width, out, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, width))
        self.bias = nn.Parameter(torch.empty(out)) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)


class EdgeLayer(nn.Module):
    """A layer over the edges `(u, v)` of an edge type, and their rows `attr`.

    `forward` takes the rows of the sources and of the destinations, and returns a row for each
    destination.
    """

    def into(self, rows, v, like, reduce):
        """Sums or means of the edges' rows by destination: a row for each row of `like`."""
        return scatter(rows, v, dim=0, dim_size=len(like), reduce=reduce)

    def put(self, found, name):
        for part, linear in self.named_children():
            if isinstance(linear, (nn.Linear, Product)):
                put_linear(found, linear, f"{name}{part}.")


class Gine(EdgeLayer):
    """An MLP of the own row and the sum of `relu(neighbour + edge)`: GINE."""

    def __init__(self, options, dim, width, out, last):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.edge = Product(dim, width, bias=True)
        self.mlp = nn.Sequential(nn.Linear(width, out), nn.ReLU(), nn.Linear(out, out))

    def forward(self, source, own, u, v, attr):
        summed = self.into(F.relu(source[u] + self.edge(attr)), v, own, "sum")
        return self.mlp((1 + self.eps) * own + summed)

    def put(self, found, name):
        super().put(found, name)
        found[f"{name}eps"] = [self.eps]
        put_linear(found, self.mlp[0], f"{name}mlp.0.")
        put_linear(found, self.mlp[2], f"{name}mlp.1.")


class EdgeSage(EdgeLayer):
    """The own row and the mean of the neighbours' rows joined with those of the edges: GraphSAGE."""

    def __init__(self, options, dim, width, out, last):
        super().__init__()
        self.neigh, self.edge = nn.Linear(width, out, bias=False), Product(dim, out)
        self.own = nn.Linear(width, out)

    def forward(self, source, own, u, v, attr):
        neighbors, edges = (self.into(rows, v, own, "mean") for rows in (source[u], attr))
        return self.neigh(neighbors) + self.edge(edges) + self.own(own)

    def put(self, found, name):
        put_linear(found, self.neigh, f"{name}neigh.")
        put_linear(found, self.edge, f"{name}edge.")
        found[f"{name}self.weight"], found[f"{name}bias"] = [self.own.weight], [self.own.bias]


class EdgeGatv2(EdgeLayer):
    """Attention whose scores depend on both ends and the edge, to the neighbours and the own row: GATv2."""

    def __init__(self, options, dim, width, out, last):
        super().__init__()
        self.heads, self.size = heads_of(options, out, last)
        self.last, self.dropout = last, options["attention_dropout"]
        inner = self.heads * self.size
        self.left, self.right = nn.Linear(width, inner, bias=False), nn.Linear(width, inner)
        self.edge = Product(dim, inner)
        self.attention, self.bias = nn.Parameter(torch.empty(inner)), nn.Parameter(torch.empty(out))

    def forward(self, source, own, u, v, attr):
        left, of_own, right = self.left(source)[u], self.left(own), self.right(own)
        # the own row has the mean of the edges' rows
        mean = self.edge(self.into(attr, v, own, "mean"))
        rows = [left + right[v] + self.edge(attr), of_own + right + mean]
        scores = [self.by_head(F.leaky_relu(x, 0.2) * self.attention).sum(-1) for x in rows]
        messages = [self.by_head(left), self.by_head(of_own)]
        targets = [v, torch.arange(len(own), device=own.device)]
        mixed = attended(scores, messages, targets, messages[1], self.dropout, self.training)
        return (mixed.mean(1) if self.last else mixed.flatten(1)) + self.bias

    def by_head(self, x):
        return x.view(-1, self.heads, self.size)

    def put(self, found, name):
        super().put(found, name)
        found[f"{name}attention"], found[f"{name}bias"] = [self.attention], [self.bias]


class EdgeGated(EdgeLayer):
    """The own row and the sum of the neighbours' and edges' rows behind gates: residual gated convolution."""

    def __init__(self, options, dim, width, out, last):
        super().__init__()
        self.target, self.own = nn.Linear(width, out), nn.Linear(width, out)
        self.source, self.value = (nn.Linear(width, out, bias=False) for _ in range(2))
        self.edge, self.edge_value = Product(dim, out), Product(dim, out)

    def forward(self, source, own, u, v, attr):
        gate = torch.sigmoid(self.target(own)[v] + self.source(source)[u] + self.edge(attr))
        value = self.value(source)[u] + self.edge_value(attr)
        return self.own(own) + self.into(gate * value, v, own, "sum")

    def put(self, found, name):
        for part, linear in [("target", self.target), ("source", self.source), ("value", self.value)]:
            found[f"{name}{part}.weight"] = [linear.weight]
        found[f"{name}gate.bias"] = [self.target.bias]
        found[f"{name}edge.weight"], found[f"{name}edge.value.weight"] = (
            [self.edge.weight],
            [self.edge_value.weight],
        )
        found[f"{name}self.weight"], found[f"{name}bias"] = [self.own.weight], [self.own.bias]


class RelationEdges(nn.Module):
    """Sum over the edge types of layers that read a row of each edge."""

    def __init__(self, options, layer, width, out, last):
        super().__init__()
        number = {kind["name"]: t for t, kind in enumerate(options["node_types"])}
        self.ends = [(number[source], number[target]) for source, _, target in options["edge_types"]]
        make = EDGE_LAYERS[options["model"]]
        self.layers = nn.ModuleList(make(options, dim, width, out, last) for dim in options["edge_widths"])
        entered = {target for _, target in self.ends}
        others = [t for t in range(len(number)) if t not in entered]
        self.own = nn.ModuleDict({str(t): nn.Linear(width, out) for t in others})
        self.widths = options["edge_widths"]

    def forward(self, x, edges):
        rows = [self.own[str(t)](x) if str(t) in self.own else 0 for t, x in enumerate(x)]
        for r, (layer, (source, target)) in enumerate(zip(self.layers, self.ends)):
            # without edges, a layer still computes the own rows
            u, v, attr = edges[r][2] if r in edges else self.none(r, x[target])
            rows[target] = rows[target] + layer(x[source], x[target], u, v, attr)
        return rows

    def none(self, r, like):
        """No edges of the edge type number `r`."""
        nothing = torch.empty(0, dtype=torch.int64, device=like.device)
        return nothing, nothing, like.new_empty(0, self.widths[r])

    def put(self, found, name, of_type, of_relation):
        for t, linear in self.own.items():
            kind = name + of_type[int(t)]
            found[f"{kind}own.weight"], found[f"{kind}bias"] = [linear.weight], [linear.bias]
        for r, layer in enumerate(self.layers):
            layer.put(found, name + of_relation[r])


EDGE_LAYERS = {"gine": Gine, "gatv2-edge": EdgeGatv2, "sage-edge": EdgeSage, "edge-gated": EdgeGated}
CONVS.update((name, RelationEdges) for name in EDGE_LAYERS)
