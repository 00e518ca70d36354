"""People's own tables: columns of every library become the same dataset, and new rows are predicted."""

import datetime
import gc
import os
import warnings

import numpy as np
import pytest

import graphmill

SEGMENTS = ["retail", "merchant", "mule"]


def accounts(count=240):
    """Accounts with text keys, gaps, dates and lists, and transfers between them, as columns."""
    rows = range(count)
    nodes = {
        "account_id": [f"acc-{i:04}" for i in rows],
        "country": [("DE", "FR")[i // 3 % 2] for i in rows],
        "signup": [datetime.date(2023, 1, 1 + i % 28) for i in rows],
        "age": [None if i % 11 == 0 else 20 + 20 * (i % 3) + i % 9 for i in rows],
        "is_new": [i % 4 == 0 for i in rows],
        "note": [f"note {i}" for i in rows],
        "segment": [None if i % 6 == 5 else SEGMENTS[i % 3] for i in rows],
    }
    ends = [(i, (i + 3 * k * (1 + i % 4)) % count) for i in rows for k in (1, 2, 3)]
    edges = {"from": [f"acc-{i:04}" for i, _ in ends], "to": [f"acc-{j:04}" for _, j in ends], "amount": [i % 40 + 0.5 for i, _ in ends]}
    return nodes, edges


HOW = {"id": "account_id", "label": "segment", "src": "from", "dst": "to"}
ARRAYS = ("x", "y", "indptr", "indices", "train", "valid", "test", "keys")


def same(one, other):
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)


def libraries(nodes, edges, tmp_path):
    """The same tables by library."""
    found = {}
    try:
        import pyarrow as pa
        import pyarrow.parquet

        found["pyarrow"] = pa.table(nodes), pa.table(edges)
        found["reader"] = tuple(pa.RecordBatchReader.from_batches(t.schema, t.to_batches(max_chunksize=50)) for t in found["pyarrow"])
        found["dictionary"] = pa.table(nodes).set_column(1, "country", pa.array(nodes["country"]).dictionary_encode()), pa.table(edges)
        for name, table in zip(("n", "e"), found["pyarrow"]):
            pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
        found["parquet"] = tmp_path / "n.parquet", os.fspath(tmp_path / "e.parquet")
    except ImportError:
        pass
    try:
        import polars

        found["polars"] = polars.DataFrame(nodes), polars.DataFrame(edges)
    except ImportError:
        pass
    try:
        import pandas

        found["pandas"] = pandas.DataFrame(nodes), pandas.DataFrame(edges)
    except ImportError:
        pass
    try:
        import duckdb

        found["duckdb"] = duckdb.from_arrow(found["pyarrow"][0]), duckdb.from_arrow(found["pyarrow"][1])
    except (ImportError, KeyError):
        pass
    return found


def test_tables_of_every_library_are_the_same_dataset(tmp_path):
    nodes, edges = accounts()
    expected = graphmill.Dataset.from_tables(nodes, edges, **HOW)
    assert (expected.num_nodes, expected.num_edges, expected.num_features) == (240, 720, 5)
    assert expected.keys.tolist() == nodes["account_id"] and expected.class_names == sorted(SEGMENTS)
    assert expected.feature_names == ["country=DE", "country=FR", "signup.age", "age", "is_new"]
    labels = [-1 if segment is None else expected.class_names.index(segment) for segment in nodes["segment"]]
    assert expected.y.tolist() == labels and (len(expected.train), len(expected.valid)) == (120, 40)
    by_library = libraries(nodes, edges, tmp_path)
    for library, tables in by_library.items():
        found = graphmill.Dataset.from_tables(*tables, **HOW)
        assert same(found, expected), library
    report = expected.import_report
    assert report["nodes"][0]["columns"][5]["becomes"].startswith("ignored: free text")


def test_unknown_treatments_of_edges_without_rows_are_refused():
    with pytest.raises(ValueError, match="dangling: 'dropp' is unknown; use 'error', 'drop', 'add'"):
        graphmill.Dataset.from_tables({"id": [1]}, id="id", dangling="dropp")


def test_columns_are_arrays_and_sequences_of_any_type():
    rng = np.random.default_rng(0)
    nodes = {
        "id": np.arange(40) * 10,
        "number": rng.normal(size=40).astype(np.float32),
        "flag": np.arange(40) % 2 == 0,
        "day": np.datetime64("2024-01-01") + np.arange(40),
        "vector": rng.normal(size=(40, 3)),
        "mixed": [1 if i % 2 else "one" for i in range(40)],
        "gaps": [float("nan") if i % 3 else i for i in range(40)],
    }
    edges = {"a": [0, 10, 20], "b": np.array([10, 20, 390], np.int32)}
    plan = graphmill.plan_tables(nodes, edges, id="id", src="a", dst="b")
    becomes = {line["column"]: line["becomes"] for line in plan.report["nodes"][0]["columns"]}
    assert becomes["id"] == "key" and becomes["flag"] == "truth value" and becomes["day"] == "date: age"
    assert becomes["vector"].startswith("list of 3 numbers") and becomes["mixed"].startswith("category of 2 values")
    assert "standardized" in becomes["number"] and "number" in becomes["gaps"] and "[[nodes]]" in plan.schema
    dataset = graphmill.Dataset.from_tables(nodes, edges, id="id", src="a", dst="b")
    assert dataset.keys.dtype == np.int64 and dataset.keys.tolist() == nodes["id"].tolist()
    assert np.allclose(dataset.x[:, 3:6], nodes["vector"], atol=1e-6) and dataset.edge_index.tolist() == [[0, 1, 2], [1, 2, 39]]


def test_formats_are_found_stated_and_refused():
    days = [f"{1 + i % 28:02}.01.2024" for i in range(40)]
    nodes = {"id": list(range(40)), "amount": [f"{i}.500,25 €" for i in range(1, 41)], "day": days}
    edges = {"a": [0, 1], "b": [1, 2], "when": ["01/02/2024", "03/02/2024"]}
    how = dict(id="id", src="a", dst="b", edge_time="when")
    with pytest.raises(ValueError, match="fit several formats, %d/%m/%Y and %m/%d/%Y; state the right one"):
        graphmill.Dataset.from_tables(nodes, edges, **how)
    dataset = graphmill.Dataset.from_tables(nodes, edges, edge_formats={"when": "%d/%m/%Y"}, columns={"amount": "raw"}, **how)
    assert dataset.x[:, 0].tolist() == [1000 * i + 500.25 for i in range(1, 41)] and dataset.feature_names == ["amount", "day.age"]
    lines = {line["column"]: line.get("format") for line in dataset.import_report["nodes"][0]["columns"]}
    assert lines == {"id": None, "amount": "decimal-comma €", "day": "%d.%m.%Y"}
    nodes["amount"][7] = "8500.25 €"
    with pytest.raises(ValueError, match=r"row 8: column 'amount': '8500.25 €' is not a number with a decimal comma"):
        graphmill.Dataset.from_tables(nodes, id="id", formats={"amount": "decimal-comma €"})


def test_texts_for_missing_values_are_stated_and_pointed_out():
    ages = ["unknown" if i % 5 == 0 else str(i % 9) for i in range(60)]
    nodes = {"id": list(range(60)), "age": ages, "score": [-999 if i == 7 else i for i in range(60)]}
    edges = {"a": [0, 1, 2], "b": [1, 2, None], "w": [1.0, -1.0, 3.0]}
    how = dict(id="id", src="a", dst="b", edge_features=["w"], columns={"score": "raw"})
    nulls = {"age": ["unknown"], "score": "-999"}
    edges["b"][2] = 3
    dataset = graphmill.Dataset.from_tables(nodes, edges, nulls=nulls, edge_nulls={"w": "-1"}, **how)
    missing = {line["column"]: line["missing"] for line in dataset.import_report["nodes"][0]["columns"]}
    assert missing == {"id": 0, "age": 12, "score": 1} and dataset.import_report["edges"][0]["columns"][2]["missing"] == 1
    assert dataset.x[7, 1] != -999 and dataset.x[8, 1] == 8
    with pytest.warns(UserWarning, match=r"nodes 'node': column 'age': 48 of 60 values are numbers, the others 'unknown' \(12\).*null age=unknown"):
        graphmill.Dataset.from_tables(nodes, edges, **how)


def test_columns_of_nodes_that_determine_a_target_are_warned_of():
    nodes = {"id": list(range(60)), "code": [f"c{i % 2}" for i in range(60)]}
    targets = {"id": list(range(60)), "left": ["xy"[i % 2] for i in range(60)]}
    how = dict(id="id", targets=targets, target_id="id", target_label="left")
    with pytest.warns(UserWarning, match=r"targets 'left': column 'code' determines the label 'left'.*leave it out of nodes 'node'"):
        graphmill.Dataset.from_tables(nodes, **how)


def test_columns_that_determine_the_label_are_warned_of():
    nodes = {"id": list(range(60)), "kind": ["xy"[i % 2] for i in range(60)], "code": [f"c{i % 2}" for i in range(60)]}
    with pytest.warns(UserWarning, match=r"column 'code' determines the label 'kind': its values imply it in 100 % of 60 labelled rows.*code=ignore"):
        dataset = graphmill.Dataset.from_tables(nodes, id="id", label="kind")
    assert dataset.import_report["nodes"][0]["leaks"][0]["support"] == 30
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        graphmill.Dataset.from_tables(nodes, id="id", label="kind", ignore=["code"])


class Frame:
    """Stand-in for a DataFrame of pandas without PyArrow."""

    def __init__(self, columns):
        self.data, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return self.data[name]

    def to_dict(self):
        return self.data

    def __arrow_c_stream__(self):
        raise ImportError("pyarrow is required")


def test_frames_without_arrow_are_converted_by_columns():
    nodes, edges = accounts(60)
    expected = graphmill.Dataset.from_tables(nodes, edges, **HOW)
    assert same(graphmill.Dataset.from_tables(Frame(nodes), Frame(edges), **HOW), expected)
    lazy = type("LazyFrame", (), {"collect": None})()
    with pytest.raises(TypeError, match=r"not LazyFrame; call its collect\(\)"):
        graphmill.Dataset.from_tables(lazy, edges, **HOW)
    broken = type("Broken", (), {"__arrow_c_stream__": lambda self: 1 / 0})()
    with pytest.raises(ValueError, match="the table gives no Arrow stream: division by zero"):
        graphmill.Dataset.from_tables(broken, edges, **HOW)


def test_directories_are_kept_or_removed_with_the_dataset(tmp_path):
    nodes, edges = accounts(60)
    kept = graphmill.Dataset.from_tables(nodes, edges, **HOW, path=tmp_path / "bank")
    assert kept.name == "bank" and (tmp_path / "bank/preprocessing.json").exists()
    assert same(graphmill.Dataset(tmp_path / "bank"), kept)
    with pytest.raises(ValueError, match="bank"):
        graphmill.Dataset.from_tables(nodes, edges, **HOW, path=tmp_path / "bank")
    temporary = graphmill.Dataset.from_tables(nodes, edges, **HOW, name="mine")
    temporary.save(tmp_path / "copy")
    copy = graphmill.Dataset(tmp_path / "copy")
    assert same(copy, temporary) and copy.name == "mine" and copy.class_names == temporary.class_names != []
    again = graphmill.Dataset.from_tables(nodes, edges, **HOW, like=copy)
    assert (again.x == copy.x).all()
    directory, x = temporary.path, temporary.x
    assert temporary.name == "mine" and os.path.isdir(directory)
    expected = x.copy()
    del temporary
    gc.collect()
    assert not os.path.exists(directory) and (x == expected).all()


def test_several_tables_are_a_typed_dataset(tmp_path):
    users = {"user": ["ann", "bob", "eve"], "age": [30, None, 40]}
    items = {"item": [7, 8], "price": [1.5, 2.5]}
    buys = {"who": ["ann", "eve", "ann"], "what": [8, 8, 7], "at": [datetime.datetime(2024, 1, d) for d in (1, 2, 3)]}
    schema = {
        "nodes": [{"type": "user", "files": users, "id": "user"}, {"type": "item", "files": items, "id": "item", "label": "price"}],
        "edges": [{"type": "buys", "files": buys, "source": "user", "src": "who", "destination": "item", "dst": "what",
                   "time": "at", "reverse": "bought_by"}],
    }  # fmt: skip
    shop = graphmill.Dataset.from_tables(schema=schema, name="shop", path=tmp_path / "shop")
    assert isinstance(shop, graphmill.TypedDataset) and shop.node_types == ["user", "item"]
    assert shop.edge_types == [("user", "buys", "item"), ("item", "bought_by", "user")]
    assert shop.nodes("user").keys.tolist() == ["ann", "bob", "eve"] and shop.nodes("item").keys.tolist() == [7, 8]
    edges = shop.edges(("user", "buys", "item"))
    assert edges.edge_index.tolist() == [[0, 0, 2], [0, 1, 1]] and edges.reverse == "bought_by"
    assert edges.time.tolist() == [1704240000, 1704067200, 1704153600]
    task = shop.task("price")
    assert (task.kind, task.on, task.y.tolist()) == ("node-regression", "item", [1.5, 2.5])
    assert shop.info["node_types"][0]["nodes"] == 3 and "2 types" in str(shop)
    again = graphmill.TypedDataset(tmp_path / "shop")
    assert again.nodes("user").feature_names == ["age"]
    run = graphmill.train(shop, epochs=1)
    assert len(run.history) == 1 and run.test.metric == "rmse"
    (tmp_path / "schema.toml").write_text(graphmill.plan_tables({"id": ["a", "b"]}, id="id").schema.replace('"nodes', '"n.csv" # "nodes'))
    with pytest.raises(TypeError, match="name: the schema file says it"):
        graphmill.Dataset.from_tables(schema=tmp_path / "schema.toml", name="other")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"id": None}, TypeError, "id: it is missing"),
        ({"id": "acount_id"}, ValueError, "nodes 'node': there is no column 'acount_id', did you mean 'account_id'"),
        ({"nodes": 7}, TypeError, "nodes 'node': expected a path, a dict of columns.*not int"),
        ({"columns": {"age": "quartile"}}, ValueError, "unknown word 'quartile'"),
        ({"edges": None}, TypeError, "src: it belongs to the table of edges, which is missing"),
        ({"schema": {}}, TypeError, "nodes: the schema describes the tables"),
        ({"split": "random:1"}, ValueError, "random:1"),
        ({"like": graphmill.Dataset.demo()}, ValueError, "like: the dataset demo is in memory"),
    ],
)
def test_faults_name_the_argument_or_the_column(change, error, message):
    nodes, edges = accounts(30)
    given = {"nodes": nodes, "edges": edges, **HOW, **change}
    with pytest.raises(error, match=message):
        graphmill.Dataset.from_tables(**given)


def test_faults_of_values_are_listed_at_once():
    nodes, edges = accounts(60)
    nodes["age"][7:9] = [float("inf"), float("inf")]
    edges["to"][3] = "acc-9999"
    with pytest.raises(ValueError) as caught:
        graphmill.Dataset.from_tables(nodes, edges, **HOW)
    assert "2 infinite numbers" in str(caught.value)
    nodes["age"][7:9] = [1, 2]
    with pytest.raises(ValueError, match="edges 'edge': column 'to': 1 of 180 rows name a node that is not .*row 4 'acc-9999'"):
        graphmill.Dataset.from_tables(nodes, edges, **HOW)
    dropped = graphmill.Dataset.from_tables(nodes, edges, **HOW, dangling="drop")
    assert dropped.num_edges == 179
    with pytest.raises(ValueError, match="column 'b' has 2 rows, but the first column has 1"):
        graphmill.Dataset.from_tables({"a": [1], "b": [1, 2]}, id="a")


def split_off(table, rows):
    """Rows of a table of columns."""
    return {name: [values[i] for i in rows] for name, values in table.items()}


@pytest.mark.parametrize("model", ["sage", "gcn"])
@pytest.mark.parametrize("undirected", [False, True])
def test_new_rows_get_the_scores_that_they_have_in_the_dataset(tmp_path, model, undirected):
    nodes, edges = accounts()
    known = 200
    is_known = [u < "acc-0200" and v < "acc-0200" for u, v in zip(edges["from"], edges["to"])]
    inner = split_off(edges, [e for e, known_ in enumerate(is_known) if known_])
    how = {**HOW, "undirected": undirected}
    part = graphmill.Dataset.from_tables(split_off(nodes, range(known)), inner, **how, path=tmp_path / "part")
    options = dict(model=model, hidden=8, epochs=3, fanout=[5, 5], batch_size=64, lr=0.02, progress=False)
    graphmill.train(part, out=tmp_path / "run", **options)
    # all rows, encoded by the statistics of the known ones
    whole = graphmill.Dataset.from_tables(nodes, edges, **how, like=part, path=tmp_path / "whole")
    expected = graphmill.predict(tmp_path / "run", dataset=whole, kind="probabilities")
    new = split_off({name: values for name, values in nodes.items() if name != "segment"}, range(known, 240))
    with pytest.warns(UserWarning, match=f"{part.num_edges} edges between known nodes are left out"):
        found = graphmill.predict(tmp_path / "run", on=new, edges=edges, kind="probabilities")
    assert np.abs(found - expected[known:]).max() < 1e-5 and np.ptp(found[:, 0]) > 0
    outer = split_off(edges, [e for e, known_ in enumerate(is_known) if not known_])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = graphmill.predict(tmp_path / "run", on=new, edges=outer, kind="probabilities")
        classes = graphmill.predict(tmp_path / "run", on=new, edges=outer)
        alone = graphmill.predict(tmp_path / "run", on=new, kind="embeddings")
    assert (again == found).all() and (classes == found.argmax(1)).all() and alone.shape == (40, 8)
    reordered = split_off(new, range(39, -1, -1))
    backwards = graphmill.predict(tmp_path / "run", on=reordered, edges=outer, kind="probabilities")
    assert np.abs(backwards[::-1] - found).max() < 1e-5


def test_appended_rows_are_those_of_an_import_of_all_rows(tmp_path):
    nodes, edges = accounts()
    is_known = [u < "acc-0200" and v < "acc-0200" for u, v in zip(edges["from"], edges["to"])]
    inner, outer = (split_off(edges, [e for e, known in enumerate(is_known) if known == part]) for part in (True, False))
    part = graphmill.Dataset.from_tables(split_off(nodes, range(200)), inner, **HOW, path=tmp_path / "part")
    new = split_off(nodes, range(200, 240))
    longer = graphmill.append(part, tmp_path / "longer", nodes=new, edges={"edge": outer}, split="random:100,0,0")
    whole = graphmill.Dataset.from_tables(nodes, edges, **HOW, like=part)
    for name in ("x", "y", "indptr", "indices", "keys"):
        assert np.array_equal(getattr(longer, name), getattr(whole, name)), name
    assert longer.name == "part" and (longer.valid == part.valid).all() and len(longer.train) > len(part.train)
    options = dict(hidden=8, epochs=1, fanout=[5, 5], batch_size=64, progress=False)
    graphmill.train(part, out=tmp_path / "run", **options)
    run = graphmill.train(longer, out=tmp_path / "continued", start_from=os.fspath(tmp_path / "run"), **options)
    assert len(run.history) == 1
    with pytest.raises(ValueError, match="40 rows with a key that the dataset has: row 1 'acc-0200'"):
        graphmill.append(longer, tmp_path / "again", nodes=new)
    row = {name: [values[7]] for name, values in nodes.items()} | {"segment": [None]}
    ended = {"account_id": ["acc-0003"]}
    later = graphmill.append(longer, tmp_path / "later", nodes=row, changed="replace", end_nodes=ended)
    assert (later.y[7] == longer.y[7] and np.allclose(later.x[7], longer.x[7])) and later.num_nodes == 240
    assert later.indptr[3] == later.indptr[4] and 3 not in later.indices and 3 not in later.train
    with pytest.raises(ValueError, match="1 row with a key that the dataset does not have"):
        graphmill.append(later, tmp_path / "again", end_nodes={"account_id": ["acc-9999"]})
    graphmill.partition_report(part, 3, methods=["hash"], out=tmp_path / "parts", batches=1, fanout=[3, 2])
    report = graphmill.partition_report(later, like=tmp_path / "parts", batches=1, fanout=[3, 2])
    assert report.results[0].method == "like" and report.results[0].parts == 3
    with pytest.raises(ValueError, match="parts: like keeps the parts of known nodes"):
        graphmill.partition_report(later, 3, like=tmp_path / "parts")
    with pytest.raises((ValueError, OSError), match="does not extend"):
        other = graphmill.Dataset.from_tables(nodes, edges, **HOW, path=tmp_path / "other")
        graphmill.partition_report(other, like=tmp_path / "parts")
    memory = graphmill.Dataset.from_arrays(edge_index=[[0], [1]], num_nodes=2)
    with pytest.raises(ValueError, match="in memory, without statistics of columns"):
        graphmill.append(memory, tmp_path / "again", nodes=new)


def test_one_run_predicts_several_columns_of_classes(tmp_path):
    nodes, edges = accounts()
    nodes["region"] = [None if i % 5 == 4 else ("north", "south")[i % 3 == 0] for i in range(240)]
    data = graphmill.Dataset.from_tables(nodes, edges, **{**HOW, "label": ["segment", "region"]})
    assert (data.class_columns, data.num_classes) == ({"segment": 3, "region": 2}, 5)
    assert data.class_names == ["merchant", "mule", "retail", "north", "south"]
    assert data.y.shape == (240, 2) and data.y[5, 0] == -1 and data.y[4, 1] == -1
    run = graphmill.train(data, epochs=8, hidden=16, fanout=[5, 5], batch_size=32, out=tmp_path / "run")
    test = next(part for part in graphmill.evaluate(run).parts if part["part"] == "test")
    columns = test["diagnostics"]["columns"]
    assert [of["name"] for of in columns] == ["segment", "region"]
    assert test["scores"]["accuracy"] == np.mean([of["scores"]["accuracy"] for of in columns])
    classes = graphmill.predict(run)
    shares = graphmill.predict(run, kind="probabilities")
    assert classes.shape == (240, 2) and shares.shape == (240, 5)
    assert np.array_equal(classes, np.stack([shares[:, :3].argmax(1), shares[:, 3:].argmax(1)], 1))
    assert np.allclose(shares[:, :3].sum(1), 1) and np.allclose(shares[:, 3:].sum(1), 1)


def test_new_rows_get_recommendations(tmp_path):
    nodes, edges = accounts(60)
    is_known = [u < "acc-0050" and v < "acc-0050" for u, v in zip(edges["from"], edges["to"])]
    inner, outer = (split_off(edges, [e for e, known in enumerate(is_known) if known is of]) for of in (True, False))
    part = graphmill.Dataset.from_tables(split_off(nodes, range(50)), inner, **HOW, path=tmp_path / "part")
    graphmill.train(part, task="link", out=tmp_path / "run", epochs=1, hidden=8, fanout=[5, 5], batch_size=14, progress=False)
    new = split_off({name: values for name, values in nodes.items() if name != "segment"}, range(50, 60))
    found = graphmill.recommend(tmp_path / "run", k=60, on=new, edges=outer)
    pairs = set(zip(found.nodes.tolist(), found.candidates.tolist()))
    number = lambda key: int(key[4:])
    linked = {(number(u) - 50, number(v)) for u, v in zip(outer["from"], outer["to"]) if number(u) >= 50 > number(v)}
    assert linked and pairs == {(i, j) for i in range(10) for j in range(50)} - linked
    assert (np.diff(found.scores)[np.diff(found.nodes) == 0] <= 0).all()
    with pytest.raises(TypeError, match="leave out nodes, keys and at"):
        graphmill.recommend(tmp_path / "run", [0], on=new)
    with pytest.raises(TypeError, match="pass on= too"):
        graphmill.recommend(tmp_path / "run", edges=outer)


def test_faults_of_new_rows(tmp_path):
    nodes, edges = accounts(60)
    data = graphmill.Dataset.from_tables(nodes, edges, **HOW, path=tmp_path / "data")
    graphmill.train(data, out=tmp_path / "run", epochs=1, hidden=8, fanout=[5, 5], progress=False)
    new = {"account_id": ["x", "y"], "country": ["DE", "IT"], "signup": ["2024-01-01", None], "age": [30, 40], "is_new": [True, False]}
    with pytest.warns(UserWarning, match="column 'country': 1 value that the dataset does not have"):
        assert graphmill.predict(tmp_path / "run", on=new).shape == (2,)
    new["country"][1] = "FR"

    def predict(message, edges=None, error=ValueError, run="run", **change):
        with pytest.raises(error, match=message):
            graphmill.predict(tmp_path / run, on={**new, **change}, edges=edges)

    predict("1 of 2 rows have a key that is in data already: 'acc-0003'; remove them", account_id=["x", "acc-0003"])
    predict("1 of 2 rows repeat the key of an earlier row: x", account_id=["x", "x"])
    predict("new edges: .*neither the new tables nor the dataset has: row 1 'acc-9999'", edges={"from": ["x"], "to": ["acc-9999"]})
    predict("there is no column 'to'", edges={"from": ["x"], "two": ["y"]})
    predict("'young' is not a finite number", age=[30, "young"])
    predict("the table has no rows", **{name: [] for name in new})
    short = {name: values for name, values in new.items() if name != "age"}
    with pytest.raises(ValueError, match="the column 'age' of the other dataset is missing"):
        graphmill.predict(tmp_path / "run", on=short)
    with pytest.raises(TypeError, match="edges: these are the edges of new nodes"):
        graphmill.predict(tmp_path / "run", edges=edges)
    with pytest.raises(TypeError, match="on: all rows of the table are predicted"):
        graphmill.predict(tmp_path / "run", [1], on=new)
    made = graphmill.generate("sbm", nodes=300, seed=1)
    graphmill.train(made, out=tmp_path / "other", epochs=1, hidden=8, progress=False)
    with pytest.raises(ValueError, match="it is in memory, without the encodings of its columns"):
        graphmill.predict(tmp_path / "other", on=new, dataset=made)


def test_new_rows_of_several_types_get_the_scores_that_they_have_in_the_dataset(tmp_path):
    nodes, edges = accounts(120)
    nodes = {name: values for name, values in nodes.items() if name in ("account_id", "age", "is_new", "segment")}
    nodes["branch"] = [f"b{i % 8 if i < 100 else i % 10}" for i in range(120)]
    branches = {"branch": [f"b{i}" for i in range(10)], "staff": [5 * i * i for i in range(10)]}
    is_known = [u < "acc-0100" and v < "acc-0100" for u, v in zip(edges["from"], edges["to"])]
    inner, outer = (split_off(edges, [e for e, known in enumerate(is_known) if known == part]) for part in (True, False))

    def bank(nodes, branches, edges, name, **how):
        foreign = [{"column": "branch", "to": "branch", "type": "belongs_to", "reverse": "has"}]
        account = {"type": "account", "files": nodes, "id": "account_id", "label": "segment", "foreign_keys": foreign}
        branch = {"type": "branch", "files": branches, "id": "branch"}
        transfer = {"type": "transfer", "files": edges, "source": "account", "destination": "account", "src": "from", "dst": "to"}
        schema = {"nodes": [account, branch], "edges": [transfer]}
        return graphmill.Dataset.from_tables(schema=schema, path=tmp_path / name, **how)

    part = bank(split_off(nodes, range(100)), split_off(branches, range(8)), inner, "part")
    run = tmp_path / "run"
    graphmill.train(part, out=run, hidden=8, epochs=2, fanout=[5, 5], batch_size=32, lr=0.02, progress=False)
    whole = bank(nodes, branches, edges, "whole", like=part)
    expected = graphmill.predict(run, dataset=whole, kind="probabilities")[100:]
    on = {"account": split_off(nodes, range(100, 120)), "branch": split_off(branches, (8, 9))}
    found = graphmill.predict(run, on=on, edges={"transfer": outer}, kind="probabilities")
    assert np.abs(found - expected).max() < 1e-5 and np.ptp(found[:, 0]) > 0
    by_ends = {("account", "transfer", "account"): outer}
    assert (graphmill.predict(run, on=on, edges=by_ends, dataset=part, kind="probabilities") == found).all()
    # without a type the nodes are those that the run predicts
    known = {**on["account"], "branch": ["b1"] * 20}
    assert graphmill.predict(run, on=known).shape == (20,)
    with pytest.raises(ValueError, match="new nodes of account: column 'branch': .* 'branch' that neither .* row 9 'b8'"):
        graphmill.predict(run, on={"account": on["account"]})
    with pytest.raises(ValueError, match="the run predicts nodes of 'account', and no table has new ones"):
        graphmill.predict(run, on={"branch": on["branch"]})


def shop():
    """Users, items that they rate at times, and a row of each user at two times, as columns."""
    users, items = [f"u{i}" for i in range(30)], list(range(10))
    rates = {
        "who": [users[e * 7 % 30] for e in range(240)],
        "what": [e * 3 % 10 for e in range(240)],
        "day": [e % 40 for e in range(240)],
        "stars": [(e * 7 % 30 % 3) + (e * 3 % 10 % 2) + 0.5 for e in range(240)],
    }
    churn = {
        "who": users * 2,
        "day": [20] * 30 + [40] * 30,
        "left": [i % 3 == 0 for i in range(30)] * 2,
        "fold": ["train"] * 30 + ["valid"] * 15 + ["test"] * 15,
    }
    nodes = [
        {"type": "user", "files": {"name": users, "joined": [i % 5 for i in range(30)]}, "id": "name", "time": "joined"},
        {"type": "item", "files": {"number": items, "size": [i % 2 for i in items]}, "id": "number"},
    ]
    edges = [{"type": "rates", "files": rates, "source": "user", "src": "who", "destination": "item", "dst": "what",
              "time": "day", "label": "stars", "reverse": "rated_by"}]  # fmt: skip
    targets = [{"name": "churn", "files": churn, "on": "user", "id": "who", "time": "day", "label": "left", "split": "column:fold"}]
    return {"nodes": nodes, "edges": edges, "targets": targets}


def test_targets_at_times_and_labels_of_edges_are_tasks(tmp_path):
    data = graphmill.Dataset.from_tables(schema=shop(), name="shop", path=tmp_path / "shop")
    assert isinstance(data, graphmill.TypedDataset) and data.tasks == ["stars", "churn"]
    assert data.nodes("user").time.tolist() == [i % 5 for i in range(30)]
    stars, churn = data.task("stars"), data.task("churn")
    assert (stars.kind, stars.on, stars.seeds.shape) == ("edge-regression", "user:rates:item", (240, 2))
    assert stars.time.tolist() == [e % 40 for e in range(240)]
    # the oldest edges train
    assert stars.time[stars.train].max() <= stars.time[stars.valid].min() and stars.time[stars.valid].max() <= stars.time[stars.test].min()
    assert (churn.kind, churn.on, churn.names) == ("node-classification", "user", ["false", "true"])
    assert (churn.seeds.tolist(), churn.time.tolist()) == (list(range(30)) * 2, [20] * 30 + [40] * 30)
    assert churn.train.tolist() == list(range(30)) and churn.test.tolist() == list(range(45, 60))
    for task in ("stars", "churn"):
        result = graphmill.train(tmp_path / "shop", task=task, epochs=1, hidden=8, fanout="2,2", out=tmp_path / task, progress=False)
        assert result.test.score is not None


def test_one_table_of_targets_is_an_argument():
    schema = shop()
    users, churn = schema["nodes"][0]["files"], schema["targets"][0]["files"]
    rates = {"a": users["name"], "b": users["name"][1:] + users["name"][:1], "day": list(range(30)), "kind": ["x", "y"] * 15}
    how = {"id": "name", "node_time": "joined", "src": "a", "dst": "b", "edge_time": "day", "edge_label": "kind", "edge_split": "random:50,25,25"}
    data = graphmill.Dataset.from_tables(users, rates, churn, target_id="who", target_time="day", target_label="left", **how)
    assert data.tasks == ["kind", "left"]
    assert [len(getattr(data.task("left"), part)) for part in ("train", "valid", "test")] == [36, 12, 12]
    assert len(data.task("kind").train) == 15
    plan = graphmill.plan_tables(users, rates, targets=churn, target_id="who", target_label="left", target_name="churn", id="name", src="a", dst="b")
    assert plan.report["targets"][0]["name"] == "churn" and "targets 'churn' of 'node': 60 rows" in str(plan)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"target_label": None}, TypeError, "target_label: it is missing; name the column to predict in the table of targets"),
        ({"targets": None}, TypeError, "target_id: it belongs to the table of targets, which is missing"),
        ({"target_time": None}, ValueError, "with the node of an earlier row"),
        ({"target_time": "left"}, ValueError, "not every value is one of dates or numbers"),
        ({"targets": {"who": ["u1", "u99"], "day": [1, float("nan")], "left": [True, False]}}, ValueError, "row 2 'u99'"),
        ({"targets": {"who": ["u1", "u2"], "day": [1, float("nan")], "left": [True, False]}}, ValueError, "1 row without a time: row 2"),
    ],
)
def test_faults_of_targets_name_the_argument_or_the_row(change, error, message):
    schema = shop()
    given = {"nodes": schema["nodes"][0]["files"], "targets": schema["targets"][0]["files"], "id": "name"}
    given.update(target_id="who", target_time="day", target_label="left")
    with pytest.raises(error, match=message):
        graphmill.Dataset.from_tables(**{**given, **change})


def test_rows_without_keys_and_parts_of_a_split_are_tables(tmp_path):
    users = {"type": "user", "files": {"name": ["ann", "bob", "eve"], "age": [30, 20, 40]}, "id": "name"}
    visits = {"who": ["ann", None, "eve", "ann"], "day": [1, 2, 3, 4], "spent": [1.5, 2.5, 0.5, 4.5]}
    foreign = {"column": "who", "to": "user", "type": "of", "time": "day", "reverse": "made"}
    visit = {"type": "visit", "files": visits, "time": "day", "foreign_keys": [foreign]}
    rows = lambda day, *left: {"who": ["ann", "bob", "eve"], "day": [day] * 3, **({"left": list(left)} if left else {})}  # noqa: E731
    parts = {"train": rows(5, True, False, True), "valid": rows(6, False, True, True), "test": rows(7)}
    target = {"name": "churn", **parts, "on": "user", "id": "who", "time": "day", "label": "left"}
    schema = {"nodes": [users, visit], "targets": [target]}
    data = graphmill.Dataset.from_tables(schema=schema, path=tmp_path / "data")
    assert data.nodes("visit").keys.tolist() == [0, 1, 2, 3]
    made = data.edges(("user", "made", "visit"))
    assert (made.edge_index.tolist(), made.time.tolist()) == ([[0, 2, 0], [0, 2, 3]], [1, 3, 4])
    churn = data.task("churn")
    assert [getattr(churn, part).tolist() for part in ("train", "valid", "test")] == [[0, 1, 2], [3, 4, 5], []]
    assert churn.time.tolist() == [5] * 3 + [6] * 3 + [7] * 3
    (tmp_path / "test.csv").write_text("who,day\nann,7\n")
    with pytest.raises(ValueError, match="pass all of them in one way"):
        graphmill.Dataset.from_tables(schema={**schema, "targets": [{**target, "test": tmp_path / "test.csv"}]})
    with pytest.raises(ValueError, match="nodes 'user': id is missing.*foreign keys of 'visit' name the nodes"):
        graphmill.Dataset.from_tables(schema={"nodes": [{**users, "id": []}, visit]})


def test_a_directory_of_relbench_is_a_dataset(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import json

    import pyarrow.parquet

    def write(name, columns, foreign, key=None, time=None):
        table = pa.table(columns)
        described = {"fkey_col_to_pkey_table": foreign, "pkey_col": key, "time_col": time}
        metadata = {entry: json.dumps(value).encode() for entry, value in described.items()}
        path = tmp_path / "rel" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), path)

    days = lambda *days: [datetime.datetime(2024, 1, day) for day in days]  # noqa: E731
    write("db/drivers", {"driverId": list(range(4)), "born": [1985, 1990, 1997, 1981]}, {}, key="driverId")
    results = {"driverId": pa.array([0.0, None, 3.0, 1.0]), "date": days(1, 2, 3, 4), "points": [1.5, 2.0, 3.0, 4.0]}
    write("db/results", results, {"driverId": "drivers"}, time="date")
    for part, day in (("train", 5), ("val", 6), ("test", 7)):
        rows = {"date": days(day, day, day, day), "driverId": list(range(4))}
        rows |= {} if part == "test" else {"won": [0, 1, 1, 0]}
        write(f"tasks/driver-won/{part}", rows, {"driverId": "drivers"}, time="date")
    data = graphmill.import_dataset("relbench", tmp_path / "rel", tmp_path / "out", task="driver-won", name="f1")
    assert isinstance(data, graphmill.TypedDataset) and (data.name, data.tasks) == ("f1", ["driver-won"])
    assert data.edges(("results", "driverId", "drivers")).edge_index.tolist() == [[0, 3, 2], [0, 1, 3]]
    task = data.task("driver-won")
    assert (task.kind, task.names, len(task.train), len(task.test)) == ("node-classification", ["0", "1"], 4, 0)
    assert data.import_report["notes"] == []
    with pytest.raises(ValueError, match="unknown task 'driver-one'"):
        graphmill.import_dataset("relbench", tmp_path / "rel", tmp_path / "none", task="driver-one")
    with pytest.raises(TypeError, match="no option 'undirected' for the format 'relbench'"):
        graphmill.import_dataset("relbench", tmp_path / "rel", tmp_path / "none", undirected=True)


def test_ends_of_two_types_are_different_nodes():
    bought = {"user": [1, 2, 2], "item": [1, 1, 3]}
    data = graphmill.Dataset.from_tables(edges=bought, src="user", dst="item", src_type="user", dst_type="item")
    assert isinstance(data, graphmill.TypedDataset)
    assert data.edges(("user", "edge", "item")).edge_index.tolist() == [[0, 1, 1], [0, 0, 1]]
    users = {"name": [1, 2], "age": [30, None]}
    options = {"id": "name", "node_type": "user", "src": "user", "dst": "item", "dst_type": "item"}
    aged = graphmill.Dataset.from_tables(users, bought, **options)
    assert aged.edges(("user", "edge", "item")).edge_index.tolist() == [[0, 1, 1], [0, 0, 1]]
    with pytest.raises(TypeError, match="src_type: it belongs to the table of edges"):
        graphmill.Dataset.from_tables(users, id="name", src_type="user")
