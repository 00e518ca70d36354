def halves(x):
    """Real and imaginary parts of rows."""
    return x.chunk(2, dim=-1)


def dot(h, r, t, of):
    return (h * t).sum(-1)


def cosine(h, r, t, of):
    h, t = (x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6) for x in (h, t))
    return (h * t).sum(-1)


def bilinear(h, r, t, of):
    return torch.einsum("...i,...ij,...j->...", h, r.unflatten(-1, (h.shape[-1], -1)), t)


def distmult(h, r, t, of):
    return (h * r * t).sum(-1)


def complex_distmult(h, r, t, of):
    (a, b), (c, d), (e, f) = halves(h), halves(r), halves(t)
    return ((a * c - b * d) * e + (a * d + b * c) * f).sum(-1)


def transe(h, r, t, of):
    return of["gamma"] - torch.linalg.vector_norm(h + r - t, ord=of["norm"], dim=-1)


def rotate(h, r, t, of):
    (a, b), (e, f), cos, sin = halves(h), halves(t), r.cos(), r.sin()
    difference = torch.stack([a * cos - b * sin - e, a * sin + b * cos - f])
    return of["gamma"] - torch.linalg.vector_norm(difference, dim=0).sum(-1)


# score of a pair from the rows of its ends and the parameters of its relation, and the width of these
FORMULAS = {
    "dot": (dot, None),
    "cosine": (cosine, None),
    "bilinear": (bilinear, lambda dim: dim * dim),
    "distmult": (distmult, lambda dim: dim),
    "complex": (complex_distmult, lambda dim: dim),
    "transe": (transe, lambda dim: dim),
    "rotate": (rotate, lambda dim: dim // 2),
}


class PairDecoder(nn.Module):
    """Scores of pairs by a formula, with parameters for each relation or without."""

    def __init__(self, options):
        super().__init__()
        self.of = options["decoder"]
        self.formula, width = FORMULAS[self.of["name"]]
        self.relation = None
        if width is not None:
            shape = (len(options["relations"]), width(self.of["width"]))
            self.relation = nn.Parameter(torch.empty(shape))

    def forward(self, h, r, t):
        """Score of each pair; `r` is the number of the relation, or that of each pair's."""
        return self.formula(h, None if self.relation is None else self.relation[r], t, self.of)

    def put(self, found):
        if self.relation is not None:
            name = "angles" if self.of["name"] == "rotate" else "relation"
            found[f"decoder.{name}"] = [self.relation]


class MlpDecoder(nn.Module):
    """Two dense layers over the products of both rows."""

    def __init__(self, options):
        super().__init__()
        width, hidden = options["decoder"]["width"], options["decoder"]["hidden"]
        self.hidden, self.out = nn.Linear(width, hidden), nn.Linear(hidden, 1)

    def forward(self, h, r, t):
        return self.out(F.relu(self.hidden(h * t))).squeeze(-1)

    def put(self, found):
        put_linear(found, self.hidden, "decoder.hidden.")
        put_linear(found, self.out, "decoder.out.")


def make_decoder(options):
    """Decoder with untrained parameters."""
    return (MlpDecoder if options["decoder"]["name"] == "mlp" else PairDecoder)(options)


def score_by_type(model, rows, pairs, relation):
    """Scores of pairs of a relation from rows by node type.

    A relation is the name of one, its number, or the numbers of all pairs' relations, which must join
    the same node types.
    """
    relations = model.options["relations"]
    names = [of["name"] for of in relations]
    if relation is None and len(names) > 1:
        raise ValueError(f"relation: there are several; pass one of {', '.join(names)}")
    if isinstance(relation, str):
        if relation not in names:
            raise ValueError(f"relation '{relation}' is unknown; known: {', '.join(names)}")
        relation = names.index(relation)
    number = 0 if relation is None else relation
    several = torch.unique(number).tolist() if isinstance(number, torch.Tensor) else [number]
    ends = {(of["edge_type"][0], of["edge_type"][2]) for of in (relations[r] for r in several)}
    if len(ends) > 1:
        raise ValueError(f"relation: the pairs join several node types, {sorted(ends)}; score them apart")
    for source, target in ends:
        return model.decoder(rows[source][pairs[0]], number, rows[target][pairs[1]])
    return next(iter(rows.values())).new_empty(0)
