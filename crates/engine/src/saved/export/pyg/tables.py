class TableModel(Exported):
    """A row for each node, propagated or not, and scores of pairs of them by a decoder."""

    def __init__(self, options):
        super().__init__(options)
        nodes = sum(kind["nodes"] for kind in options["tables"])
        self.embedding = nn.Parameter(torch.empty(nodes, options["hidden"]))
        self.decoder = make_decoder(options)

    def by_type(self, rows):
        """Rows of each type, by its name."""
        kinds = self.options["tables"]
        parts = rows.split([kind["nodes"] for kind in kinds])
        return {kind["name"]: part for kind, part in zip(kinds, parts)}

    def encode(self, edge_index=None):
        """Embeddings of the nodes of each type, by its name.

        LightGCN propagates rows over `edge_index`, the training edges by edge type; in a graph of one
        edge type, these may be a tensor.
        """
        if self.options["model"] != "lightgcn":
            return self.by_type(self.embedding)
        if edge_index is None:
            raise ValueError("edge_index: LightGCN propagates rows over the training edges; pass them")
        count = len(self.embedding)
        u, v = self.undirected(edge_index)
        root = torch.bincount(v, minlength=count).to(self.embedding.dtype).rsqrt()
        weight = (root[u] * root[v]).unsqueeze(1)
        layer = rows = self.embedding
        for _ in range(self.options["layers"]):
            layer = scatter(layer[u] * weight, v, dim=0, dim_size=count, reduce="sum")
            rows = rows + layer
        return self.by_type(rows / (self.options["layers"] + 1))

    def undirected(self, edge_index):
        """Distinct edges between rows of the table in both directions, without loops."""
        relations = [tuple(of["edge_type"]) for of in self.options["relations"]]
        if isinstance(edge_index, torch.Tensor):
            edge_index = {relations[0]: edge_index}
        start, starts = 0, {}
        for kind in self.options["tables"]:
            starts[kind["name"]], start = start, start + kind["nodes"]
        ends = []
        for source, name, target in relations:
            u, v = edge_index[source, name, target]
            u, v = u + starts[source], v + starts[target]
            ends += [torch.stack([u, v]), torch.stack([v, u])]
        edges = torch.cat(ends, dim=1)
        return torch.unique(edges[:, edges[0] != edges[1]], dim=1)

    def decode(self, rows, pairs, relation=None):
        """Scores of pairs of embeddings."""
        return score_by_type(self, rows, pairs, relation)

    def forward(self, pairs, relation=None, edge_index=None):
        """Score of each pair of nodes."""
        return self.decode(self.encode(edge_index), pairs, relation)

    def parameters_by_name(self):
        found = {"embedding.rows": [self.embedding]}
        self.decoder.put(found)
        return found


MODEL = TableModel
