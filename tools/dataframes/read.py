"""Reads the table db.t of a warehouse by a library, and prints a line of JSON: `read.py ray WAREHOUSE`."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import tidelake


def with_ray(scan: tidelake.Scan) -> dict[str, Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    whole = scan.to_ray_dataset(parallelism=3)
    filtered = scan.where("id >= 250").to_ray_dataset()
    mapped = whole.map_batches(doubled, batch_format="pyarrow")
    return {
        "ids": sorted(row["id"] for row in whole.take_all()),
        "tasks": len(whole.materialize().get_internal_block_refs()),
        "schema": [str(kind) for kind in whole.schema().base_schema.types],
        "filtered": filtered.count(),
        "mapped": mapped.sum("double"),
        "empty": scan.where("id < 0").to_ray_dataset().count(),
    }


def doubled(rows: pa.Table) -> pa.Table:
    return pa.table({"double": pc.multiply(rows["id"], 2)})


def with_dask(scan: tidelake.Scan) -> dict[str, Any]:
    import dask.dataframe as dd

    frame = dd.from_map(read_group, scan.splits(3), scan=scan, meta=read_group(None, scan.limit(0)))
    return {
        "ids": sorted(frame["id"].compute(scheduler="threads").tolist()),
        "tasks": frame.npartitions,
        "mapped": int(frame["id"].sum().compute(scheduler="processes", num_workers=2)) * 2,
    }


def read_group(group: Any, scan: tidelake.Scan) -> Any:
    return scan.to_arrow(None if group is None else [group]).to_pandas()


def with_daft(scan: tidelake.Scan) -> dict[str, Any]:
    import daft

    frame = daft.from_arrow(scan.to_arrow())
    return {"ids": sorted(frame.to_pydict()["id"]), "mapped": frame.sum("id").to_pydict()["id"][0] * 2}


def with_torch(scan: tidelake.Scan) -> dict[str, Any]:
    warnings.simplefilter("ignore")  # a PyTorch that was built for an older NumPy says so
    import torch
    from torch.utils.data import DataLoader

    loaded: dict[str, Any] = {}
    numbers = scan.select(["id", "ok", "price"])
    for context in ("fork", "spawn"):
        dataset = numbers.to_torch(batch_rows=64)
        found = list(DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=context))
        loaded[context] = sorted(i for batch in found for i in batch["id"].tolist())
    loaded["types"] = [str(found[0][name].dtype) for name in ("id", "ok", "price")]
    loaded["rows"] = sorted(i for batch in DataLoader(numbers.to_torch(), batch_size=7) for i in batch["id"].tolist())
    nodes = [[row["id"] for row in numbers.to_torch(rank=rank, world_size=3)] for rank in range(3)]
    loaded["nodes"] = [len(ids) for ids in nodes]
    loaded["of all nodes"] = sorted(chain.from_iterable(nodes))
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        loaded["distributed"] = len(list(numbers.to_torch()))
        torch.distributed.destroy_process_group()
    shuffled = numbers.to_torch(shuffle_rows=100, seed=7)
    first = [row["id"] for row in shuffled]
    loaded["again"] = first == [row["id"] for row in shuffled]
    shuffled.set_epoch(1)
    second = [row["id"] for row in shuffled]
    loaded["orders"] = [sorted(first) == sorted(second), first != second, first != sorted(first)]
    return loaded


if __name__ == "__main__":
    library, warehouse = sys.argv[1:]
    table = tidelake.open_catalog(warehouse).table("db.t")
    print(
        json.dumps({"ray": with_ray, "dask": with_dask, "daft": with_daft, "torch": with_torch}[library](table.scan()))
    )
