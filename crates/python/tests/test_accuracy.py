"""The same model reaches the same accuracy with either loader."""

import pytest

from conftest import HAS_PYG

if not HAS_PYG:
    pytest.skip("torch and torch_geometric are not installed", allow_module_level=True)
pytest.importorskip("torch_sparse", reason="PyTorch Geometric's loader needs torch_sparse or pyg_lib")

import torch
import torch.nn.functional as F
from torch_geometric.loader import NeighborLoader as Theirs
from torch_geometric.nn import GraphSAGE

from graphmill import NeighborLoader as Ours


def accuracy(loader, data, seed):
    torch.manual_seed(seed)
    model = GraphSAGE(data.num_features, 16, 2, 5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batches = loader(data, [5, 5], data.train_mask, batch_size=200, shuffle=True)
    for _ in range(4):
        for batch in batches:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    with torch.no_grad():
        right = model(data.x, data.edge_index).argmax(1) == data.y
    return right[data.test_mask].float().mean().item()


def test_both_loaders_reach_the_same_accuracy(sbm):
    torch.set_num_threads(1)
    data = sbm.to_pyg()
    ours, theirs = ([accuracy(loader, data, seed) for seed in range(4)] for loader in (Ours, Theirs))
    ours, theirs = torch.tensor(ours), torch.tensor(theirs)
    error = ((ours.var() + theirs.var()) / 4).sqrt()
    print(f"ours {ours.mean():.4f}, theirs {theirs.mean():.4f}, standard error of the difference {error:.4f}")
    assert ours.mean() > 0.7 and abs(ours.mean() - theirs.mean()) < max(4 * error, 0.01)
