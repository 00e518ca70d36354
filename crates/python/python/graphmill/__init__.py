"""Fast loaders for PyTorch Geometric and DGL, and training of graph neural networks in Rust.

- :class:`NeighborLoader`, :class:`HGTLoader`, :class:`LinkNeighborLoader`, :class:`ShaDowKHopSampler`, :class:`GraphSAINTNodeSampler`,
  :class:`GraphSAINTEdgeSampler`, :class:`GraphSAINTRandomWalkSampler`, :class:`ClusterData` and
  :class:`ClusterLoader` take the arguments of the classes of the same name in
  ``torch_geometric.loader`` and yield the same batches. So do :class:`TemporalDataLoader` and
  :class:`LastNeighborLoader` for streams of events.
- :mod:`graphmill.metrics` ranks candidates, and :func:`negative_sampling` draws pairs without an
  edge.
- :mod:`graphmill.dgl` yields message-flow blocks like DGL's ``DataLoader``, and minibatches with
  the fields of GraphBolt's.
- :class:`Dataset` is a graph with features, labels and a split, in memory or in a directory, and
  :class:`TypedDataset` one of several types. :func:`generate`, :func:`import_dataset`,
  :meth:`Dataset.from_tables` and the other ``from_`` methods create datasets.
- :func:`train` returns a :class:`Run`, with its history, its model and predictions; with
  ``repeat=N`` several, with the mean and the deviation of their scores.
- :func:`evaluate`, :func:`predict`, :func:`recommend`, :func:`embed`, :func:`export_model`,
  :func:`report`, :func:`runs`, :func:`hotness`, :func:`partition`, :func:`reorder`, :func:`info`,
  :func:`plan`, :func:`bench`, :func:`doctor`, :func:`sweep`, :func:`datasets`, :func:`download` and
  :func:`serve` are the commands of the same name (``recommend`` is ``predict --top-k``); those for
  shells, ``completions`` and ``man``, have no function. :func:`load_model` makes a run's model a
  ``torch.nn.Module``, and :func:`import_model` the reverse. :class:`Predictor` keeps a run open and
  answers for single nodes, :class:`LinkPredictor` one on links.

PyTorch and PyTorch Geometric are optional. Without them batches hold NumPy arrays.
"""

from . import dgl, loggers, metrics
from ._graphmill import __version__
from .catalogue import datasets, download
from .cluster import ClusterData, ClusterLoader
from .data import Data
from .dataset import Dataset, TablePlan, append, generate, import_dataset, plan_tables
from .export import export_dataset, info, reorder
from .graphsaint import GraphSAINTEdgeSampler, GraphSAINTNodeSampler, GraphSAINTRandomWalkSampler
from .hetero import HeteroData
from .hgt import HGTLoader
from .link import LinkNeighborLoader, NegativeSampling, negative_sampling
from .loader import Loader
from .machine import bench, doctor, plan
from .neighbor import NeighborLoader
from .predictor import LinkPredictor, Predictor
from .option_types import (
    BenchOptions,
    HotnessOptions,
    HotnessReportOptions,
    PartitionReportOptions,
    PlanOptions,
    ReorderOptions,
    TrainOptions,
)
from .result import History, Run, Runs
from .run import hotness, hotness_report, options, partition, partition_report, train
from .saved import Recommendations, embed, evaluate, export_model, import_model, load_model, predict, recommend, report, runs
from .service import ServeOptions, Service, serve
from .shadow import ShaDowKHopSampler
from .sweep import sweep
from .temporal import LastNeighborLoader, TemporalDataLoader
from .typed import TypedDataset

__all__ = [
    "BenchOptions",
    "ClusterData",
    "ClusterLoader",
    "Data",
    "Dataset",
    "GraphSAINTEdgeSampler",
    "GraphSAINTNodeSampler",
    "GraphSAINTRandomWalkSampler",
    "HGTLoader",
    "HeteroData",
    "History",
    "HotnessOptions",
    "HotnessReportOptions",
    "LastNeighborLoader",
    "LinkNeighborLoader",
    "LinkPredictor",
    "Loader",
    "NegativeSampling",
    "NeighborLoader",
    "PartitionReportOptions",
    "PlanOptions",
    "Predictor",
    "Recommendations",
    "ReorderOptions",
    "Run",
    "Runs",
    "ServeOptions",
    "Service",
    "ShaDowKHopSampler",
    "TablePlan",
    "TemporalDataLoader",
    "TrainOptions",
    "TypedDataset",
    "__version__",
    "append",
    "bench",
    "datasets",
    "dgl",
    "doctor",
    "download",
    "embed",
    "evaluate",
    "export_dataset",
    "export_model",
    "generate",
    "hotness",
    "hotness_report",
    "import_dataset",
    "import_model",
    "info",
    "load_model",
    "loggers",
    "metrics",
    "negative_sampling",
    "options",
    "partition",
    "partition_report",
    "plan",
    "plan_tables",
    "predict",
    "recommend",
    "reorder",
    "report",
    "runs",
    "serve",
    "sweep",
    "train",
]
