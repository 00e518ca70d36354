"""Trains GraphSAGE with PyTorch Geometric, with only the loader replaced.

Reaches a test accuracy of at least 0.88.

    pip install ./crates/python torch torch_geometric
    python examples/python/pyg_graphsage.py
"""

import time

import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

# from torch_geometric.loader import NeighborLoader
from graphmill import NeighborLoader, generate

torch.manual_seed(0)
# any torch_geometric.data.Data works; this one is generated
data = generate(nodes=10_000, classes=10, dim=32, degree=16, signal=0.25, p_in=0.7, seed=1).to_pyg()
train_loader = NeighborLoader(data, num_neighbors=[15, 10], input_nodes=data.train_mask, batch_size=256, shuffle=True)
# one hop with all neighbours, for inference layer by layer
inference_loader = NeighborLoader(data, num_neighbors=[-1], batch_size=4096)


class SAGE(torch.nn.Module):
    def __init__(self, in_channels, hidden_channels, out_channels):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(in_channels, hidden_channels), SAGEConv(hidden_channels, out_channels)])

    def forward(self, x, edge_index):
        x = F.dropout(self.convs[0](x, edge_index).relu(), p=0.3, training=self.training)
        return self.convs[1](x, edge_index)

    @torch.no_grad()
    def inference(self, x_all):
        # layer by layer over all nodes, so that no row is computed twice
        for i, conv in enumerate(self.convs):
            rows = []
            for batch in inference_loader:
                x = conv(x_all[batch.n_id], batch.edge_index)[: batch.batch_size]
                rows.append(x.relu() if i == 0 else x)
            x_all = torch.cat(rows)
        return x_all


model = SAGE(data.num_features, 64, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
for epoch in range(1, 4):
    model.train()
    began, total = time.perf_counter(), 0.0
    for batch in train_loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimizer.step()
        total += float(loss) * batch.batch_size
    seconds = time.perf_counter() - began
    model.eval()
    right = model.inference(data.x).argmax(1) == data.y
    scores = [right[mask].float().mean().item() for mask in (data.train_mask, data.val_mask, data.test_mask)]
    print(f"epoch {epoch}  loss {total / int(data.train_mask.sum()):.4f}  {seconds:.1f} s  ", end="")
    print("train {:.4f}  valid {:.4f}  test accuracy {:.4f}".format(*scores))
