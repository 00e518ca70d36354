"""Trains on message-flow blocks in DGL's style, with plain PyTorch layers.

Reaches a test accuracy of at least 0.85.

    pip install ./crates/python torch
    python examples/python/dgl_blocks.py
"""

import torch
import torch.nn.functional as F

# import dgl.dataloading as dgl
from graphmill import dgl, generate

torch.manual_seed(0)
dataset = generate(nodes=10_000, classes=10, dim=32, degree=16, signal=0.25, p_in=0.7, seed=1)


class SageLayer(torch.nn.Module):
    def __init__(self, width_in, width_out):
        super().__init__()
        self.own, self.neighbors = torch.nn.Linear(width_in, width_out), torch.nn.Linear(width_in, width_out, bias=False)

    def forward(self, block, x):
        # destination v is also source v; the mean is over indices[indptr[v]:indptr[v + 1]]
        mean = F.embedding_bag(block.indices, x, block.indptr, mode="mean", include_last_offset=True)
        return self.own(x[: block.num_dst]) + self.neighbors(mean)


layers = torch.nn.ModuleList([SageLayer(dataset.num_features, 64), SageLayer(64, dataset.num_classes)])
optimizer = torch.optim.Adam(layers.parameters(), lr=0.005)


def forward(blocks):
    hidden = layers[0](blocks[0], blocks[0].srcdata["feat"]).relu()
    return layers[1](blocks[1], hidden)


# fanouts in DGL's order: the layer farthest from the seeds first
train = dgl.DataLoader(dataset, dataset.train, dgl.NeighborSampler([10, 15]), batch_size=256, shuffle=True)
test = dgl.DataLoader(dataset, dataset.test, dgl.MultiLayerFullNeighborSampler(2), batch_size=256)
for epoch in range(3):
    for input_nodes, output_nodes, blocks in train:
        optimizer.zero_grad()
        F.cross_entropy(forward(blocks), blocks[-1].dstdata["label"]).backward()
        optimizer.step()
with torch.no_grad():
    right = [forward(blocks).argmax(1) == blocks[-1].dstdata["label"] for _, _, blocks in test]
print(f"test accuracy {torch.cat(right).float().mean():.4f}")
