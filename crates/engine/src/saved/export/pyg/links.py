class LinkModel(GraphmillModel):
    """Embeddings by graph layers, and scores of pairs of them by a decoder."""

    def __init__(self, options):
        super().__init__(options)
        self.decoder = make_decoder(options)

    def encode(self, x, edge_index):
        """Embedding of each node."""
        return super().forward(x, edge_index)

    def decode(self, rows, pairs):
        """Scores of pairs of embeddings."""
        return self.decoder(rows[pairs[0]], 0, rows[pairs[1]])

    def forward(self, x, edge_index, pairs):
        """Score of each pair of nodes."""
        return self.decode(self.encode(x, edge_index), pairs)

    def parameters_by_name(self):
        found = super().parameters_by_name()
        self.decoder.put(found)
        return found


MODEL = LinkModel
