"""The names of datasets in OpenLineage: topics by its specification, tables as Paimon's own lineage in Flink has them.

They contain no credentials: user and password of an address are left out.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import FolderSettings, KafkaSettings
from tidelake.storage.fileio.location import LOCAL_SCHEME, local_path, scheme_of

FILES: Final = "file"  # namespace of local files
_DEFAULT_PORT: Final = "9092"
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@]*@")
_CATALOG: Final = "paimon"  # as Paimon names the catalog of a DataStream job, such as its CDC actions


@dataclass(frozen=True, slots=True)
class DatasetName:
    """The name of a dataset. The namespace says where it is."""

    namespace: str
    name: str


def without_credentials(address: str) -> str:
    """Return an address without user and password."""
    return _CREDENTIALS.sub("", address)


def source_namespace(source: FolderSettings | KafkaSettings) -> str:
    """Return the namespace of what a pipeline reads: `kafka://host:port` of the first broker, or `file`."""
    if isinstance(source, FolderSettings):
        return FILES
    servers = source.bootstrap_servers
    first = (servers if isinstance(servers, str) else servers[0]).split(",")[0].strip()
    host, _, port = first.rpartition(":")
    return f"kafka://{host}:{port}" if host and port.isdigit() else f"kafka://{first}:{_DEFAULT_PORT}"


def input_name(source: FolderSettings | KafkaSettings, topic: str) -> DatasetName:
    """Return the name of the dataset that has the records of a topic. Those of a folder are one dataset."""
    if isinstance(source, FolderSettings):
        return DatasetName(FILES, os.path.abspath(source.path))
    return DatasetName(source_namespace(source), topic)


def warehouse_namespace(config: Config) -> str:
    """Return the namespace of tables: the warehouse, as Paimon's `LineageUtils` has it."""
    warehouse = config.warehouse.rstrip("/") or "/"
    if config.warehouse_options.get("metastore") != "rest" and scheme_of(warehouse) == LOCAL_SCHEME:
        return f"file:{quote(os.path.abspath(local_path(warehouse)))}"
    return without_credentials(warehouse)


def table_name(config: Config, table: str) -> DatasetName:
    """Return the name of a table: `paimon.database.table`, or with the `catalog-key` of a catalog in a database."""
    options = config.warehouse_options
    key = options.get("catalog-key", "") if options.get("metastore") == "jdbc" else ""
    return DatasetName(warehouse_namespace(config), f"{key.strip() or _CATALOG}.{table}")


def file_name(location: str) -> DatasetName:
    """Return the name of a table's folder, as engines that only know files have it: `s3://bucket`, `lake/db/table`."""
    if scheme_of(location) == LOCAL_SCHEME:
        return DatasetName(FILES, os.path.abspath(local_path(location)))
    scheme, _, rest = without_credentials(location).partition("://")
    host, _, path = rest.partition("/")
    return DatasetName(f"{scheme}://{host}", path or "/")
