"""Trains GraphSAINT with PyTorch Geometric, with only the sampler replaced.

Reaches a test accuracy of at least 0.80.

    pip install ./crates/python torch torch_geometric
    python examples/python/pyg_graphsaint.py
"""

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphConv
from torch_geometric.utils import degree

# from torch_geometric.loader import GraphSAINTRandomWalkSampler
from graphmill import GraphSAINTRandomWalkSampler, generate

torch.manual_seed(0)
data = generate(nodes=10_000, classes=10, dim=32, degree=16, signal=0.25, p_in=0.7, seed=1).to_pyg()
row, col = data.edge_index
data.edge_weight = 1.0 / degree(col, data.num_nodes)[col]
loader = GraphSAINTRandomWalkSampler(data, batch_size=1000, walk_length=2, num_steps=10, sample_coverage=20)


class Net(torch.nn.Module):
    def __init__(self, hidden_channels):
        super().__init__()
        self.conv1 = GraphConv(data.num_features, hidden_channels)
        self.conv2 = GraphConv(hidden_channels, hidden_channels)
        self.lin = torch.nn.Linear(2 * hidden_channels, 10)

    def forward(self, x, edge_index, edge_weight):
        x1 = F.dropout(self.conv1(x, edge_index, edge_weight).relu(), p=0.2, training=self.training)
        x2 = F.dropout(self.conv2(x1, edge_index, edge_weight).relu(), p=0.2, training=self.training)
        return self.lin(torch.cat([x1, x2], dim=-1)).log_softmax(dim=-1)


model = Net(64)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(1, 11):
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index, batch.edge_norm * batch.edge_weight)
        loss = F.nll_loss(out, batch.y, reduction="none")
        (loss * batch.node_norm)[batch.train_mask].sum().backward()
        optimizer.step()
model.eval()
with torch.no_grad():
    right = model(data.x, data.edge_index, data.edge_weight).argmax(1) == data.y
print(f"test accuracy {right[data.test_mask].float().mean():.4f}")
