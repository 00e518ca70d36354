class RelationSum(nn.Module):
    """Sum of the own row and of the neighbours' means by edge type, each with weights: R-SAGE and R-GCN."""

    def __init__(self, options, layer, width, out, last):
        super().__init__()
        types, relations = len(options["node_types"]), len(options["edge_types"])
        self.shared, self.blocks = options["model"] == "rgcn", 0
        self.own = nn.ModuleList()
        if not options["no_own_rows"]:
            self.own.extend(nn.Linear(width, out) for _ in range(1 if self.shared else types))
        self.bias = nn.ParameterList(
            nn.Parameter(torch.zeros(out)) for _ in range(0 if len(self.own) else types)
        )
        self.bases, self.relations = nn.ParameterList(), nn.ParameterList()
        if options["bases"]:
            self.bases.extend(nn.Parameter(torch.empty(width, out)) for _ in range(options["bases"]))
            self.relations.extend(nn.Parameter(torch.empty(options["bases"])) for _ in range(relations))
        elif options["blocks"]:
            self.blocks = options["blocks"]
            self.relations.extend(
                nn.Parameter(torch.empty(width // self.blocks, out)) for _ in range(relations)
            )
        else:
            self.relations.extend(nn.Parameter(torch.empty(out, width)) for _ in range(relations))
        self.aggregate = SimpleConv("mean")

    def product(self, x, r):
        """Rows times the weights of the edge type number `r`."""
        weight = self.relations[r]
        if len(self.bases):
            return x @ sum(a * basis for a, basis in zip(weight, self.bases))
        return by_heads(x, weight, self.blocks) if self.blocks else x @ weight.T

    def forward(self, x, edges):
        if len(self.own):
            rows = [self.own[0 if self.shared else t](x) for t, x in enumerate(x)]
        else:
            rows = [bias.expand(len(x), -1) for bias, x in zip(self.bias, x)]
        for r, (source, target, edge_index) in edges.items():
            mean = self.aggregate((x[source], x[target]), edge_index)
            rows[target] = rows[target] + self.product(mean, r)
        return rows

    def put(self, found, name, of_type, of_relation):
        for t, own in enumerate(self.own):
            part = name if self.shared else name + of_type[t]
            found[f"{part}own.weight"], found[f"{part}bias"] = [own.weight], [own.bias]
        found.update((f"{name}{of_type[t]}bias", [bias]) for t, bias in enumerate(self.bias))
        found.update((f"{name}basis" + (f".{b}" if b else ""), [basis]) for b, basis in enumerate(self.bases))
        kind = "coefficients" if len(self.bases) else "blocks" if self.blocks else "weight"
        found.update((f"{name}{of_relation[r]}{kind}", [weight]) for r, weight in enumerate(self.relations))


class RelationGat(nn.Module):
    """Sum of the own row and of graph attention by edge type: R-GAT."""

    def __init__(self, options, layer, width, out, last):
        super().__init__()
        types, relations = len(options["node_types"]), len(options["edge_types"])
        heads, size = heads_of(options, out, last)
        made = {
            "concat": not last,
            "dropout": options["attention_dropout"],
            "add_self_loops": False,
            "bias": False,
        }
        self.convs = nn.ModuleList(GATConv(width, size, heads, **made) for _ in range(relations))
        self.own = nn.ModuleList(nn.Linear(width, out) for _ in range(0 if options["no_own_rows"] else types))
        self.bias = nn.ParameterList(
            nn.Parameter(torch.zeros(out)) for _ in range(0 if len(self.own) else types)
        )

    def forward(self, x, edges):
        if len(self.own):
            rows = [own(x) for own, x in zip(self.own, x)]
        else:
            rows = [bias.expand(len(x), -1) for bias, x in zip(self.bias, x)]
        for r, (source, target, edge_index) in edges.items():
            rows[target] = rows[target] + self.convs[r]((x[source], x[target]), edge_index)
        return rows

    def put(self, found, name, of_type, of_relation):
        for t, own in enumerate(self.own):
            found[f"{name}{of_type[t]}own.weight"], found[f"{name}{of_type[t]}bias"] = (
                [own.weight],
                [own.bias],
            )
        found.update((f"{name}{of_type[t]}bias", [bias]) for t, bias in enumerate(self.bias))
        for r, conv in enumerate(self.convs):
            linear = conv.lin if getattr(conv, "lin", None) is not None else conv.lin_src
            found[f"{name}{of_relation[r]}weight"] = [linear.weight]
            found[f"{name}{of_relation[r]}source"], found[f"{name}{of_relation[r]}target"] = (
                [conv.att_src],
                [conv.att_dst],
            )


class Transformer(nn.Module):
    """Keys, queries and values by node type, with matrices by edge type and a skip: HGT."""

    def __init__(self, options, layer, width, out, last):
        super().__init__()
        types, relations = len(options["node_types"]), len(options["edge_types"])
        self.heads, self.size = heads_of(options, out, last)
        inner, self.dropout = self.heads * self.size, options["attention_dropout"]
        self.maps = nn.ModuleDict()
        for part, sizes in [
            ("key", (width, inner)),
            ("query", (width, inner)),
            ("value", (width, inner)),
            ("out", (inner, out)),
        ]:
            self.maps[part] = nn.ModuleList(nn.Linear(*sizes) for _ in range(types))
        self.skip = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(types if width == out else 0))
        square = (self.size, inner)
        self.attention = nn.ParameterList(nn.Parameter(torch.empty(square)) for _ in range(relations))
        self.message = nn.ParameterList(nn.Parameter(torch.empty(square)) for _ in range(relations))
        self.prior = nn.ParameterList(nn.Parameter(torch.ones(self.heads)) for _ in range(relations))

    def forward(self, x, edges):
        rows = []
        for t, own in enumerate(x):
            query = self.maps["query"][t](own).view(-1, self.heads, self.size)
            into = [
                (r, source, edge_index) for r, (source, target, edge_index) in edges.items() if target == t
            ]
            scores, messages, targets = [], [], []
            for r, source, (u, v) in into:
                key = by_heads(self.maps["key"][source](x[source]), self.attention[r], self.heads).view(
                    -1, self.heads, self.size
                )
                value = by_heads(self.maps["value"][source](x[source]), self.message[r], self.heads).view(
                    -1, self.heads, self.size
                )
                scores.append((key[u] * query[v]).sum(-1) * self.prior[r] / self.size**0.5)
                messages.append(value[u])
                targets.append(v)
            mixed = attended(scores, messages, targets, query, self.dropout, self.training)
            mixed = self.maps["out"][t](F.gelu(mixed.flatten(1)))
            if len(self.skip):
                share = self.skip[t].sigmoid()
                mixed = share * mixed + (1 - share) * own
            rows.append(mixed)
        return rows

    def put(self, found, name, of_type, of_relation):
        for part, maps in self.maps.items():
            for t, linear in enumerate(maps):
                put_linear(found, linear, f"{name}{of_type[t]}{part}.")
        found.update((f"{name}{of_type[t]}skip", [skip]) for t, skip in enumerate(self.skip))
        for part in ("attention", "message", "prior"):
            found.update(
                (f"{name}{of_relation[r]}{part}", [values]) for r, values in enumerate(getattr(self, part))
            )


class SimpleHgn(nn.Module):
    """Graph attention whose scores have a term for each edge type: Simple-HGN."""

    def __init__(self, options, layer, width, out, last):
        super().__init__()
        self.heads, self.size = heads_of(options, out, last)
        self.last, self.slope, self.dropout = last, options["negative_slope"], options["attention_dropout"]
        inner, dim = self.heads * self.size, options["edge_dim"]
        self.lin = nn.Linear(width, inner, bias=False)
        self.source, self.target = nn.Parameter(torch.empty(inner)), nn.Parameter(torch.empty(inner))
        self.relation = nn.Parameter(torch.empty(len(options["edge_types"]) + 1, dim))
        self.edge_lin = nn.Linear(dim, self.heads * dim, bias=False)
        self.edge = nn.Parameter(torch.empty(self.heads * dim))
        self.residual = nn.Linear(width, inner, bias=False) if layer else None

    def forward(self, x, edges):
        terms = (self.edge_lin(self.relation) * self.edge).view(len(self.relation), self.heads, -1).sum(-1)
        z = [self.lin(x).view(-1, self.heads, self.size) for x in x]
        of_source = [(z * self.source.view(self.heads, self.size)).sum(-1) for z in z]
        of_target = [(z * self.target.view(self.heads, self.size)).sum(-1) for z in z]
        rows = []
        for t, own in enumerate(x):
            loops = torch.arange(len(own), device=own.device)
            into = [(r, s, edge_index) for r, (s, target, edge_index) in edges.items() if target == t]
            into.append((len(self.relation) - 1, t, torch.stack([loops, loops])))
            scores = [
                F.leaky_relu(of_source[s][u] + terms[r] + of_target[t][v], self.slope)
                for r, s, (u, v) in into
            ]
            messages, targets = [z[s][u] for _, s, (u, _) in into], [v for _, _, (_, v) in into]
            mixed = attended(scores, messages, targets, z[t], self.dropout, self.training).flatten(1)
            if self.residual is not None:
                mixed = mixed + self.residual(own)
            if self.last:
                mixed = F.normalize(mixed.view(-1, self.heads, self.size).mean(1), dim=1)
            rows.append(mixed)
        return rows

    def put(self, found, name, of_type, of_relation):
        put_linear(found, self.lin, name)
        put_linear(found, self.edge_lin, f"{name}relation.")
        for part in ("source", "target", "relation", "edge"):
            found[f"{name}{part}"] = [getattr(self, part)]
        if self.residual is not None:
            put_linear(found, self.residual, f"{name}residual.")


CONVS = {
    "rsage": RelationSum,
    "rgcn": RelationSum,
    "rgat": RelationGat,
    "hgt": Transformer,
    "simple-hgn": SimpleHgn,
}


def heads_of(options, out, last):
    """Number of attention heads of a layer, and the width of each."""
    heads = options["out_heads"] if last else options["heads"]
    return heads, out if last else out // heads


def by_heads(x, weight, heads):
    """Parts of the columns of `x` times the blocks of `weight`, which stand side by side."""
    blocks = weight.view(weight.shape[0], heads, -1)
    return torch.einsum("nhd,dho->nho", x.view(len(x), heads, -1), blocks).flatten(1)


def attended(scores, messages, targets, like, dropout, training):
    """Messages weighted by the softmax of their scores over each target: a row for each row of `like`."""
    if not scores:
        return torch.zeros_like(like)
    targets = torch.cat(targets)
    weights = softmax(torch.cat(scores), targets, num_nodes=len(like))
    weights = F.dropout(weights, dropout, training)
    return scatter(
        torch.cat(messages) * weights.unsqueeze(-1), targets, dim=0, dim_size=len(like), reduce="sum"
    )


class GraphmillModel(Exported):
    """A stack of typed layers over projected or learned rows, with norms and dense layers."""

    #: whether the last layer computes scores if no dense layers follow it
    scored = True

    def __init__(self, options):
        super().__init__(options)
        hidden, out, layers = options["hidden"], options["outputs"], options["layers"]
        types = options["node_types"]
        self.inputs = nn.ModuleList(
            nn.Linear(kind["width"], hidden) if kind["width"] else LearnedRows(kind["nodes"], hidden)
            for kind in types
        )
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for layer in range(layers):
            last = layer + 1 == layers and options["head_layers"] == 0
            scores = last and self.scored
            to = out if scores else hidden
            self.convs.append(CONVS[options["model"]](options, layer, hidden, to, scores))
            norms = [None if last else make_norm(options["norm"], hidden) for _ in types]
            self.norms.append(nn.ModuleList(nn.Identity() if norm is None else norm for norm in norms))
        sizes = [hidden] * options["head_layers"] + [out]
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def after(self, x):
        """Activation and dropout."""
        return self.dropped(ACTIVATIONS[self.options["activation"]](x))

    def edges(self, layer, edge_index, edge_attr):
        """Source type, destination type and edges that a layer reads, by the number of the edge type.

        Edges are sources and destinations, and the rows of the edges if the model reads them.
        """
        number = {kind["name"]: t for t, kind in enumerate(self.options["node_types"])}
        widths = self.options.get("edge_widths")
        found = {}
        for r, (source, name, target) in enumerate(self.options["edge_types"]):
            edges = edge_index.get((source, name, target))
            if self.options["followed"][layer][r] and edges is not None and edges.shape[1] > 0:
                if widths:
                    # edges without features have rows without columns
                    width = (edges.shape[1], widths[r])
                    attr = edge_attr[source, name, target] if widths[r] else self.mean.new_empty(width)
                    edges = (*edges, attr)
                found[r] = (number[source], number[target], edges)
        return found

    def rows(self, x, edge_index, edge_attr=None):
        """Rows of each type after the graph layers."""
        options = self.options
        rows = [rows(x.get(kind["name"])) for rows, kind in zip(self.inputs, options["node_types"])]
        rows = [F.dropout(x, options["input_dropout"], self.training) for x in rows]
        for layer, (conv, norms) in enumerate(zip(self.convs, self.norms)):
            rows = conv(rows, self.edges(layer, edge_index, edge_attr))
            if layer + 1 < len(self.convs) or len(self.head):
                rows = [self.after(norm(x)) for norm, x in zip(norms, rows)]
        return rows

    def forward(self, x, edge_index, edge_attr=None):
        """Rows of the predicted type, from features by type, and edges and their features by edge type."""
        names = [kind["name"] for kind in self.options["node_types"]]
        scores = self.rows(x, edge_index, edge_attr)[names.index(self.options["predicts"])]
        for i, linear in enumerate(self.head):
            scores = linear(scores) if i + 1 == len(self.head) else self.after(linear(scores))
        return self.outputs(scores)

    def parameters_by_name(self):
        """Tensors of each parameter as `graphmill export-model --to safetensors` lays them out, by name."""
        found = {}
        of_type = [f"{kind['name']}." for kind in self.options["node_types"]]
        of_relation = [":".join(kind) + "." for kind in self.options["edge_types"]]
        for kind, rows in zip(of_type, self.inputs):
            if isinstance(rows, LearnedRows):
                found[f"input.{kind}rows"] = [rows.rows]
            else:
                put_linear(found, rows, f"input.{kind}")
        for layer, (conv, norms) in enumerate(zip(self.convs, self.norms)):
            conv.put(found, f"conv.{layer}.", of_type, of_relation)
            for kind, norm in zip(of_type, norms):
                put_norm(found, norm, f"norm.{layer}.{kind}")
        for i, linear in enumerate(self.head):
            put_linear(found, linear, f"head.{i}.")
        return found


class LearnedRows(nn.Module):
    """A learned row for each node of a type without features."""

    def __init__(self, nodes, width):
        super().__init__()
        self.rows = nn.Parameter(torch.empty(nodes, width))

    def forward(self, _):
        return self.rows


MODEL = GraphmillModel
