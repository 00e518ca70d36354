class LinkModel(GraphmillModel):
    """Embeddings by typed layers, and scores of pairs of them by a decoder."""

    scored = False

    def __init__(self, options):
        super().__init__(options)
        self.decoder = make_decoder(options)

    def encode(self, x, edge_index, edge_attr=None):
        """Embeddings of the nodes of each type, by its name."""
        names = [kind["name"] for kind in self.options["node_types"]]
        return dict(zip(names, self.rows(x, edge_index, edge_attr)))

    def decode(self, rows, pairs, relation=None):
        """Scores of pairs of embeddings."""
        return score_by_type(self, rows, pairs, relation)

    def forward(self, x, edge_index, pairs, relation=None, edge_attr=None):
        """Score of each pair of nodes."""
        return self.decode(self.encode(x, edge_index, edge_attr), pairs, relation)

    def parameters_by_name(self):
        found = super().parameters_by_name()
        self.decoder.put(found)
        return found


MODEL = LinkModel
