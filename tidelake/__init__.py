"""Tidelake writes change streams from Kafka and Spark into tables that every Apache Paimon reader can open.

    import tidelake

    catalog = tidelake.open_catalog("/data/lake")
    table = catalog.table("shop.orders")
    table.scan(columns=["id", "amount"], filter=tidelake.col("amount") > 3).to_arrow()

All functions block. They may be called inside a running event loop (a notebook); `tidelake.aio` offers the same with
async. The names are defined in `tidelake.public`, which is imported at their first use: `tidelake --help` does not wait
for Arrow. Other types are in `tidelake.arguments`, `conditions`, `errors`, `results` and `schema`. `tidelake.duckdb`
makes the tables of a warehouse views of DuckDB.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelake import aio as aio
    from tidelake import arguments as arguments
    from tidelake import conditions as conditions
    from tidelake import duckdb as duckdb
    from tidelake import errors as errors
    from tidelake import results as results
    from tidelake import schema as schema
    from tidelake.public import *  # noqa: F403
else:
    _MODULES = ("aio", "arguments", "conditions", "duckdb", "errors", "results", "schema")

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"tidelake.{name}")
        public = import_module("tidelake.public")
        if name == "__all__" or name in public.__all__:
            return getattr(public, name)
        raise AttributeError(f"module 'tidelake' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return [*import_module("tidelake.public").__all__, *_MODULES]
