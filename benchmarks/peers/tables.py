#!/usr/bin/env python3
"""Trains tables of embeddings: LightGCN with PyTorch Geometric, knowledge graphs with PyKEEN.

    tables.py DATASET --system pyg --max-batches 24 --epochs 3      a directory of format 2 of items of users
    tables.py TRIPLES --system pykeen --decoder complex --epochs 3  train.txt, valid.txt and test.txt, or a .tar.gz of them

`--rank` ranks both ends of all validation triples among all entities without other true triples, after
no training, and prints the seconds of the ranking instead.
"""

import argparse
import os
import tarfile
import time

from common import array, emit, epoch_record, read_manifest, set_threads

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("dataset")
parser.add_argument("--system", choices=["pyg", "pykeen"], required=True)
parser.add_argument("--hidden", type=int, default=64)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--decoder", choices=["distmult", "complex", "rotate", "transe"], default="complex")
parser.add_argument("--negatives", type=int, default=32)
parser.add_argument("--gamma", type=float, default=9.0)
parser.add_argument("--batch-size", type=int, default=2048)
parser.add_argument("--lr", type=float, default=0.001)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--max-batches", type=int, default=0, help="LightGCN: batches of an epoch; 0 for all")
parser.add_argument("--rank", action="store_true", help="PyKEEN: full ranking alone")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--threads", type=int, default=0, help="0 for the library's default")
options = parser.parse_args()
set_threads(options.threads)

import torch


def lightgcn():
    """Epochs of LightGCN: the whole propagation at every step, a negative item for each pair."""
    from torch_geometric.nn import LightGCN

    manifest, counts = read_manifest(options.dataset)
    task = manifest["tasks"][0]
    ends = task["on"]["edges"]
    directory = os.path.join(options.dataset, "tasks", task["directory"])
    pairs = array(directory, "seeds")[array(directory, "train")].T.contiguous()
    pairs[1] += counts[ends["source"]]
    edges = torch.cat([pairs, pairs.flip(0)], 1)
    model = LightGCN(sum(counts.values()), options.hidden, options.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    first, last = counts[ends["source"]], sum(counts.values())
    epochs = []
    for epoch in range(1, options.epochs + 1):
        clock, losses = time.perf_counter(), []
        for batch in torch.randperm(pairs.shape[1]).split(options.batch_size):
            users, items = pairs[:, batch]
            negatives = torch.randint(first, last, items.shape)
            positive, negative = model(edges, torch.stack([users.repeat(2), torch.cat([items, negatives])])).chunk(2)
            nodes = torch.cat([users, items, negatives])
            loss = model.recommendation_loss(positive, negative, nodes, lambda_reg=1e-4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
            if len(losses) == options.max_batches:
                break
        epochs.append(epoch_record(epoch, losses, clock))
    emit(system="pyg", epochs=epochs)


def triples(name):
    """Triples of a file of the dataset, as an array of texts."""
    import numpy as np

    if os.path.isdir(options.dataset):
        with open(os.path.join(options.dataset, name)) as file:
            text = file.read()
    else:
        with tarfile.open(options.dataset) as archive:
            member = next(entry for entry in archive.getmembers() if os.path.basename(entry.name) == name)
            text = archive.extractfile(member).read().decode()
    return np.array([line.split("\t") for line in text.splitlines() if line], dtype=str)


def knowledge():
    """Epochs of a table on triples with the self-adversarial loss, or the ranking of the validation triples."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.losses import NSSALoss
    from pykeen.models import ComplEx, DistMult, RotatE, TransE
    from pykeen.training import SLCWATrainingLoop
    from pykeen.triples import TriplesFactory

    train = TriplesFactory.from_labeled_triples(triples("train.txt"))
    known = {"entity_to_id": train.entity_to_id, "relation_to_id": train.relation_to_id}
    make = {"distmult": DistMult, "complex": ComplEx, "rotate": RotatE, "transe": TransE}[options.decoder]
    # a complex number is two columns of `--hidden`
    width = options.hidden // 2 if options.decoder in ("complex", "rotate") else options.hidden
    loss = NSSALoss(margin=options.gamma, adversarial_temperature=1.0)
    model = make(triples_factory=train, embedding_dim=width, random_seed=options.seed, loss=loss)
    if options.rank:
        ranked, other = (TriplesFactory.from_labeled_triples(triples(name), **known) for name in ("valid.txt", "test.txt"))
        evaluator = RankBasedEvaluator(filtered=True)
        clock = time.perf_counter()
        evaluator.evaluate(
            model,
            ranked.mapped_triples,
            batch_size=options.batch_size,
            additional_filter_triples=[train.mapped_triples, other.mapped_triples],
            use_tqdm=False,
        )
        seconds = time.perf_counter() - clock
        emit(system="pykeen", seconds=seconds, triples=ranked.num_triples)
        return
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    loop = SLCWATrainingLoop(
        model=model,
        triples_factory=train,
        optimizer=optimizer,
        negative_sampler_kwargs={"num_negs_per_pos": options.negatives},
    )
    epochs, clocks = [], [time.perf_counter()]

    from pykeen.training.callbacks import TrainingCallback

    class Clock(TrainingCallback):
        """Notes the end of each epoch."""

        def post_epoch(self, epoch, epoch_loss, **kwargs):
            clocks.append(time.perf_counter())
            epochs.append({"epoch": epoch, "loss": float(epoch_loss), "seconds": clocks[-1] - clocks[-2]})

    loop.train(
        triples_factory=train,
        num_epochs=options.epochs,
        batch_size=options.batch_size,
        use_tqdm=False,
        use_tqdm_batch=False,
        callbacks=Clock(),
    )
    emit(system="pykeen", epochs=epochs)


torch.manual_seed(options.seed)
lightgcn() if options.system == "pyg" else knowledge()
