"""Types of the extension module, which is internal: users import the names of `graphmill`."""

from os import PathLike
from typing import Any, Callable, Iterator

import numpy as np
from numpy.typing import NDArray

__version__: str

class Topology:
    num_nodes: int
    num_edges: int
    @staticmethod
    def from_edges(num_nodes: int, src: NDArray[Any], dst: NDArray[Any]) -> Topology: ...
    @staticmethod
    def bipartite(num_src: int, num_dst: int, src: NDArray[Any], dst: NDArray[Any]) -> Topology: ...
    @staticmethod
    def from_columns(indptr: NDArray[Any], indices: NDArray[Any]) -> Topology: ...

class Tiers:
    description: str
    types: list[int]
    def __init__(self, dataset: Dataset, inputs: NDArray[Any] | None, options: str, given: list[str]) -> None: ...
    @staticmethod
    def of_types(
        dataset: TypedDataset,
        columns: list[tuple[int, NDArray[Any]]],
        together: bool,
        sampler: tuple[str, list[list[int]], str],
        options: str,
        given: list[str],
    ) -> Tiers: ...
    def traffic(self) -> dict[str, Any]: ...

class Source:
    num_inputs: int
    @staticmethod
    def neighbors(
        topology: Topology,
        inputs: NDArray[Any],
        tables: list[tuple[str, str, Any]],
        *,
        seed: int,
        fanout: list[int],
        replace: bool,
        edges: str,
        disjoint: bool,
        weights: NDArray[np.float64] | None = None,
        starts: list[int] | None = None,
        times: tuple[bool, NDArray[np.int64], NDArray[np.int64], tuple[str, int, float]] | None = None,
    ) -> Source: ...
    @staticmethod
    def ego(
        topology: Topology,
        inputs: NDArray[Any],
        tables: list[tuple[str, str, Any]],
        *,
        seed: int,
        depth: int,
        fanout: int,
        replace: bool,
    ) -> Source: ...
    @staticmethod
    def subgraphs(
        topology: Topology,
        tables: list[tuple[str, str, Any]],
        *,
        seed: int,
        sampler: str,
        batches: int,
        roots: NDArray[Any],
        budget: int,
        walk_length: int,
        coverage: int,
    ) -> Source: ...
    def norms(self) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None: ...
    def start(
        self,
        *,
        epoch: int,
        order: NDArray[np.uint64],
        batch_size: int,
        first: int,
        last: int,
        threads: int,
        ahead: int,
    ) -> Batches: ...
    def one(self, epoch: int, number: int, inputs: list[int]) -> tuple[Any, ...]: ...

class Batches(Iterator[tuple[Any, ...]]):
    def __next__(self) -> tuple[Any, ...]: ...
    def close(self) -> None: ...

class TypedSource:
    num_inputs: int
    def __init__(
        self,
        types: list[tuple[str, int]],
        relations: list[tuple[int, int, Topology]],
        tables: list[tuple[str, str, int, Any]],
        *,
        seed: int,
        inputs: tuple[int, NDArray[Any]] | dict[str, Any],
        fanout: list[list[int]] | None = None,
        samples: list[list[int]] | None = None,
        replace: bool = False,
        weights: list[NDArray[np.float64] | None] | None = None,
        disjoint: bool = False,
        times: dict[str, Any] | None = None,
        induced: bool = False,
        reverses: list[int] | None = None,
    ) -> None: ...
    def start(
        self,
        *,
        epoch: int,
        order: NDArray[np.uint64],
        batch_size: int,
        first: int,
        last: int,
        threads: int,
        ahead: int,
    ) -> TypedBatches: ...
    def one(self, epoch: int, number: int, inputs: list[int]) -> tuple[Any, ...]: ...
    def one_of_nodes(
        self, epoch: int, number: int, nodes: list[tuple[int, NDArray[Any]]], times: NDArray[np.int64] | None = None
    ) -> tuple[Any, ...]: ...
    def one_of_links(
        self, epoch: int, number: int, links: tuple[NDArray[Any], NDArray[Any]], times: NDArray[np.int64] | None = None
    ) -> tuple[Any, ...]: ...

class TypedBatches(Iterator[tuple[Any, ...]]):
    def __next__(self) -> tuple[Any, ...]: ...
    def close(self) -> None: ...

def negatives(
    src: NDArray[Any],
    dst: NDArray[Any],
    known: tuple[NDArray[Any], NDArray[Any]],
    *,
    sizes: tuple[int, int],
    same_type: bool,
    amount: float,
    together: bool,
    method: str,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...
def rank_metric(
    name: str, scores: NDArray[np.float32], relevant: NDArray[np.bool_], starts: list[int], k: int
) -> float | None: ...

class TypedBlockSource:
    num_inputs: int
    def __init__(
        self,
        dataset: TypedDataset,
        inputs: list[tuple[int, NDArray[Any]]],
        sampler: tuple[str, list[list[int]], str],
        tables: list[tuple[int, NDArray[Any]]],
        seed: int,
    ) -> None: ...
    def start(
        self,
        *,
        epoch: int,
        order: NDArray[np.uint64],
        batch_size: int,
        first: int,
        last: int,
        threads: int,
        ahead: int,
    ) -> TypedBlockBatches: ...

class TypedBlockBatches(Iterator[tuple[Any, ...]]):
    def __next__(self) -> tuple[Any, ...]: ...
    def close(self) -> None: ...

class Events:
    def __init__(self, src: NDArray[Any], dst: NDArray[Any], time: NDArray[np.int64]) -> None: ...
    def batch(
        self, events: tuple[int, int], count: int, of: tuple[int, int]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]: ...

class LastNeighbors:
    def __init__(self, num_nodes: int, size: int) -> None: ...
    def clear(self) -> None: ...
    def insert(self, src: NDArray[Any], dst: NDArray[Any]) -> None: ...
    def of_nodes(
        self, nodes: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]: ...
    def save(self) -> bytes: ...
    def restore(self, bytes: bytes) -> None: ...

class BlockSource:
    num_inputs: int
    def __init__(
        self, dataset: Dataset, inputs: NDArray[Any], options: str, with_features: bool, tiers: Tiers | None
    ) -> None: ...
    def start(
        self,
        *,
        epoch: int,
        order: NDArray[np.uint64],
        batch_size: int,
        first: int,
        last: int,
        threads: int,
        ahead: int,
    ) -> BlockBatches: ...

class BlockBatches(Iterator[tuple[Any, ...]]):
    def __next__(self) -> tuple[Any, ...]: ...
    def close(self) -> None: ...

class Dataset:
    path: PathLike[str] | None
    name: str
    metric: str | None
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    class_columns: list[tuple[str, int]]
    is_multilabel: bool
    has_sparse_features: bool
    key_type: str | None
    @staticmethod
    def open(path: str, verify: bool) -> Dataset: ...
    @staticmethod
    def demo() -> Dataset: ...
    @staticmethod
    def from_arrays(
        name: str,
        num_nodes: int,
        *,
        src: NDArray[Any],
        dst: NDArray[Any],
        columns: bool,
        x: NDArray[Any] | None,
        y: NDArray[Any] | None,
        classes: int | None,
        parts: list[NDArray[Any]],
        rule: tuple[str, int] | None,
        weight: NDArray[np.float32] | None,
        undirected: bool,
        metric: str | None,
    ) -> Dataset: ...
    def save(self, path: str, replace: bool, is_typed: bool) -> None: ...
    def topology(self) -> Topology: ...
    def indptr(self) -> NDArray[np.uint64]: ...
    def indices(self) -> NDArray[np.uint32]: ...
    def edge_weight(self) -> NDArray[np.float32] | None: ...
    def x(self) -> NDArray[Any] | None: ...
    def y(self) -> NDArray[Any] | None: ...
    def part(self, name: str) -> NDArray[np.uint32]: ...
    def original_ids(self) -> NDArray[np.uint32] | None: ...
    def keys(self) -> NDArray[np.int64] | list[str] | None: ...
    def names(self) -> tuple[list[str], list[str]]: ...
    def import_report(self) -> str | None: ...

class TypedDataset:
    path: PathLike[str] | None
    name: str
    is_one_type: bool
    node_types: list[tuple[str, int]]
    edge_types: list[tuple[tuple[str, str, str], int]]
    tasks: list[str]
    @staticmethod
    def open(path: str, verify: bool) -> TypedDataset: ...
    @staticmethod
    def build(
        name: str,
        nodes: list[tuple[str, int, NDArray[Any] | None, NDArray[np.int64] | None, NDArray[np.int64] | list[str] | None]],
        edges: list[tuple[list[str], NDArray[np.int64], NDArray[np.int64], dict[str, NDArray[Any]]]],
        tasks: list[dict[str, Any]],
    ) -> TypedDataset: ...
    def save(self, path: str, replace: bool) -> None: ...
    def to_dataset(self) -> Dataset: ...
    def info(self) -> str: ...
    def nodes(self, name: str) -> dict[str, Any]: ...
    def edges(self, of: list[str]) -> dict[str, Any]: ...
    def topology(self, r: int) -> Topology: ...
    def task(self, name: str) -> dict[str, Any]: ...
    def import_report(self) -> str | None: ...

class Predictor:
    def __init__(self, run: str, dataset: AnyDataset | None, last: bool) -> None: ...
    def find(self, keys: list[str]) -> NDArray[np.int64]: ...
    def predict(self, nodes: Any, seed: int | None) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
    def predict_new(
        self,
        x: NDArray[np.float32],
        edges: tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]],
        undirected: bool,
        seed: int | None,
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.float32]], int]: ...
    def predict_new_types(
        self,
        rows: list[tuple[str, NDArray[np.float32]]],
        edges: list[tuple[str, NDArray[Any], NDArray[Any], NDArray[np.float32]]],
        undirected: bool,
        seed: int | None,
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.float32]], int]: ...
    @property
    def task(self) -> str: ...
    @property
    def node_type(self) -> str | None: ...
    @property
    def class_columns(self) -> list[tuple[str, int]]: ...
    @property
    def class_names(self) -> list[str]: ...
    @property
    def num_scores(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...

class LinkPredictor:
    def __init__(self, run: str, dataset: AnyDataset | None, last: bool, all_edges: bool) -> None: ...
    def relation(self, name: str) -> int: ...
    def node_type(self, name: str) -> int: ...
    def find(self, node_type: int, keys: list[str]) -> NDArray[np.int64]: ...
    def score(self, relation: int, source: Any, destination: Any, at: int | None) -> NDArray[np.float32]: ...
    def top(
        self, nodes: tuple[int, Any], k: int, sources: bool, include_known: bool, at: int | None
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]: ...
    def embed(self, node_type: int, nodes: Any, at: int | None) -> NDArray[np.float32]: ...
    def add_events(
        self, source: Any, destination: Any, times: NDArray[np.int64], features: NDArray[np.float32]
    ) -> None: ...
    @property
    def events(self) -> list[int] | None: ...
    @property
    def end_time(self) -> int | None: ...
    @property
    def relations(self) -> list[tuple[str, int, int]]: ...
    @property
    def node_types(self) -> list[str | None]: ...
    @property
    def embedding_dim(self) -> int: ...

class Table:
    @staticmethod
    def from_stream(name: str, capsule: Any) -> Table: ...
    @staticmethod
    def from_columns(name: str, columns: list[tuple[str, str, list[Any]]]) -> Table: ...

Observe = Callable[[str], None] | None
#: open dataset, or the path of a directory of any kind
AnyDataset = Dataset | TypedDataset | str
#: file of node ids, or keys
Asked = tuple[str | None, list[str] | None]

def generate(
    generator: str, options: str, out: str | None, replace: bool, memory: int | None, observe: Observe
) -> tuple[Dataset | None, TypedDataset | None]: ...
def import_dataset(
    format: str, src: str, out: str, options: list[tuple[str, str]], replace: bool, memory: int | None, observe: Observe
) -> tuple[Dataset | None, TypedDataset | None]: ...
def import_tables(
    schema: tuple[str, list[tuple[str, Table]]], like: str | None, out: str, replace: bool, memory: int | None, observe: Observe
) -> tuple[Dataset | None, TypedDataset | None]: ...
def append_tables(
    base: str,
    more: tuple[list[list[str]], list[tuple[str, Table]]],
    options: tuple[list[str], int, str, str, str | None],
    out: tuple[str, bool],
    memory: int | None,
    observe: Observe,
) -> tuple[Dataset | None, TypedDataset | None]: ...
def plan_tables(schema: tuple[str, list[tuple[str, Table]]], like: str | None) -> tuple[str, str, str]: ...
def partition(
    topology: Topology, train: NDArray[Any], *, method: str, parts: int, seed: int, slack: float | None, train_slack: float | None, refine: bool | None
) -> NDArray[np.uint32]: ...
def partition_types(
    dataset: TypedDataset, *, task: str, method: str, parts: int, seed: int, slack: float | None, train_slack: float | None, refine: bool | None
) -> list[tuple[str, NDArray[np.uint32]]]: ...
def partition_report(
    dataset: Dataset | TypedDataset,
    *,
    methods: list[str],
    parts: int,
    seed: int,
    slack: float | None,
    train_slack: float | None,
    refine: bool | None,
    batches: int,
    options: str,
    paths: tuple[str | None, str | None],
) -> str: ...
def order(epoch: int, **options: Any) -> NDArray[np.uint64]: ...
def num_batches(**options: Any) -> int: ...
def is_typed(path: str) -> bool: ...
def needs_directory(options: str, like: str | None = None) -> bool: ...
def train(
    dataset: AnyDataset | None, options: str, out: str | None, resume: bool, like: str | None, observe: Observe
) -> str: ...
def repeat_plan(
    options: str, count: int, out: str | None, resume: bool
) -> tuple[str | None, list[tuple[int, str | None, bool]]]: ...
def repeated(runs: list[tuple[int, str | None, str]], out: str | None) -> str: ...
def evaluate(
    run: str, dataset: AnyDataset | None, last: bool, propagate: tuple[str, str] | None
) -> str: ...
def predict(
    run: str,
    dataset: AnyDataset | None,
    asked: Asked,
    kind: str,
    last: bool,
    original_ids: bool,
    at: int | None,
    propagate: tuple[str, str] | None,
    out: str,
) -> str: ...
def predict_new(
    run: str,
    dataset: AnyDataset | None,
    new: tuple[list[str], list[str], list[tuple[str, Table]]],
    kind: str,
    last: bool,
    out: str,
) -> tuple[str, list[str]]: ...
def embed(
    run: str, dataset: AnyDataset | None, asked: Asked, options: tuple[str | None, bool, int | None], last: bool, out: str
) -> str: ...
def candidates(
    run: str, dataset: AnyDataset | None, asked: Asked, k: int, options: tuple[bool, str | None, bool, int | None], last: bool
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]: ...
def candidates_of_new(
    run: str,
    dataset: AnyDataset | None,
    new: tuple[list[str], list[str], list[tuple[str, Table]]],
    k: int,
    options: tuple[bool, str | None, bool, int | None],
    last: bool,
) -> tuple[tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]], list[str]]: ...
def export_model(run: str, to: str, out: str, last: bool) -> str: ...
def import_model(run: str, weights: list[tuple[str, NDArray[np.float32]]], out: str, last: bool) -> None: ...
def hotness(dataset: Dataset, metric: str, options: str) -> NDArray[np.float64]: ...
def hotness_report(
    dataset: Dataset | TypedDataset, policies: tuple[list[str], bool], samplers: list[str], ratios: list[float], epochs: int, options: str
) -> str: ...
def options(of: str) -> list[tuple[str, str, str, str, str, list[str] | None]]: ...
def summary(run: str) -> str: ...
def write_report(run: str) -> PathLike[str]: ...
def runs(dirs: list[str]) -> str: ...
def sweep(
    dataset: AnyDataset | None, how: tuple[list[str], str, str], out: str, resume: bool, observe: Observe
) -> str: ...
def datasets() -> str: ...
def download(name: str, out: str, mirror: str | None, verify: bool, observe: Observe) -> str: ...
def doctor() -> str: ...
def bench(
    name: str, dataset: Dataset | None, dim: int | None, repeat: int | None, scale: int | None, options: str
) -> str: ...
def plan(
    measured: tuple[Dataset, str | None] | tuple[TypedDataset, str] | str, hardware: str | None, device_counts: str | None, options: str
) -> str: ...
def plan_machines(
    measured: tuple[Dataset, str | None] | tuple[TypedDataset, str], cluster: tuple[str, int | None, str | None], network: str, options: str
) -> str: ...
def info(dataset: Dataset) -> str: ...
def export_dataset(
    dataset: Dataset | TypedDataset, format: str, out: str, replace: bool, undirected_once: bool, compress: bool
) -> list[str]: ...
def reorder(
    dataset: Dataset | TypedDataset,
    out: str,
    by: tuple[str, int | None],
    run_options: str,
    work: tuple[bool, int | None],
    observe: Observe,
) -> tuple[Dataset | None, TypedDataset | None]: ...
