"""Writes small Parquet tables with Arrow (C++), pandas, Polars, DuckDB and fastparquet.

    pip install pyarrow pandas polars duckdb fastparquet
    python fuzz/write_tables.py

The seeds are checked in, so run this only to add a writer.
"""

import tempfile
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq

SEEDS = Path(__file__).parent / "seeds" / "import_parquet"
FILE = b"\xff%%\xff"

edges = pa.table({"src": pa.array([0, 2, 1, 1], pa.int64()), "dst": pa.array([1, 1, 2, 0], pa.int32())})
nodes = pa.table({
    "label": pa.array([1, None, 0], pa.int64()),
    "x": pa.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32())),
    "split": ["train", "none", "valid"],
})
flat = nodes.drop(["x"])


def arrow(**options):
    return lambda table, path: pq.write_table(table, path, **options)


def bare(**options):
    return arrow(store_schema=False, **options)


def duck(options):
    return lambda rows, path: duckdb.sql(f"copy rows to '{path}' (format parquet, {options})")


def pandas(engine):
    return lambda table, path: table.to_pandas().to_parquet(path, engine=engine)


def writer_of_polars(**options):
    return lambda table, path: polars.from_arrow(table).write_parquet(path, **options)


ends = ["src", "dst"]
WRITERS = {
    "arrow-snappy": (bare(), edges, nodes),
    "arrow-second-zstd": (bare(version="2.6", data_page_version="2.0", compression="zstd"), edges, nodes),
    "arrow-plain": (bare(use_dictionary=False, compression="none", write_statistics=False), edges, nodes),
    "arrow-gzip-index": (bare(compression="gzip", write_page_index=True, write_page_checksum=True), edges, nodes),
    "arrow-lz4": (bare(compression="lz4"), edges, nodes),
    "arrow-schema": (arrow(), edges, nodes),
    "arrow-delta": (bare(use_dictionary=False, column_encoding=dict.fromkeys(ends, "DELTA_BINARY_PACKED")), edges, None),
    "arrow-streams": (bare(use_dictionary=False, column_encoding=dict.fromkeys(ends, "BYTE_STREAM_SPLIT")), edges, None),
    "duckdb": (duck("codec snappy"), edges, nodes),
    "duckdb-second": (duck("parquet_version v2, codec zstd"), edges, nodes),
    "polars": (writer_of_polars(), edges, nodes),
    "polars-lz4": (writer_of_polars(compression="lz4"), edges, nodes),
    "pandas": (pandas("pyarrow"), edges, None),
    "fastparquet": (pandas("fastparquet"), edges, flat),
}

SEEDS.mkdir(parents=True, exist_ok=True)
for name, (write, *tables) in WRITERS.items():
    seed = b""
    with tempfile.TemporaryDirectory() as folder:
        for file, table in zip(["edges.parquet", "nodes.parquet"], tables):
            if table is not None:
                path = Path(folder) / file
                write(table, str(path))
                seed += FILE + file.encode() + b"\n" + path.read_bytes()
    (SEEDS / f"real-{name}").write_bytes(seed)
    print(name, len(seed))
