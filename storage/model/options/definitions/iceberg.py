"""Options of the metadata that Iceberg readers read.

Source: Java `iceberg/IcebergOptions.java`.
"""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    FILE_WRITING_OPERATIONS,
    Condition,
    Option,
    Refusal,
    other_than,
    supported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, INT, TEXT, one_of

_OF_CATALOGS: Final = "it belongs to metadata.iceberg.storage = hive-catalog or rest-catalog, which writing refuses"
_ACTS_ON: Final = FILE_WRITING_OPERATIONS
_IS_CATALOG: Final = Condition(
    "hive-catalog or rest-catalog",
    "rest-catalog",
    lambda key, values: values[key].strip().lower() in ("hive-catalog", "rest-catalog"),
)

ICEBERG_OPTIONS: Final[tuple[Option, ...]] = (
    supported(
        "metadata.iceberg.storage",
        one_of("disabled", "table-location", "hadoop-catalog", "hive-catalog", "rest-catalog"),
        "disabled",
        _ACTS_ON,
        Refusal(
            _ACTS_ON,
            _IS_CATALOG,
            "this release does not tell a catalog of Iceberg tables about new snapshots",
            "Set hadoop-catalog, and let the readers open the metadata by its path; or write with Java Paimon",
        ),
    ),
    supported("metadata.iceberg.storage-location", one_of("table-location", "catalog-location"), None, _ACTS_ON),
    supported(
        "metadata.iceberg.format-version",
        INT,
        "2",
        _ACTS_ON,
        Refusal(
            _ACTS_ON, other_than("2", "3", example="1"), "Iceberg has only these versions here", "Set it to 2 or 3"
        ),
    ),
    supported("metadata.iceberg.compaction.min.file-num", INT, "10", _ACTS_ON),
    supported("metadata.iceberg.compaction.max.file-num", INT, "50", _ACTS_ON),
    supported("metadata.iceberg.delete-after-commit.enabled", BOOLEAN, "true", _ACTS_ON),
    supported("metadata.iceberg.previous-versions-max", INT, "0", _ACTS_ON),
    supported("metadata.iceberg.manifest-compression", TEXT, "snappy", _ACTS_ON),
    supported("metadata.iceberg.manifest-legacy-version", BOOLEAN, "false", _ACTS_ON),
    without_effect("metadata.iceberg.uri", TEXT, None, _OF_CATALOGS),
    without_effect("metadata.iceberg.hive-conf-dir", TEXT, None, _OF_CATALOGS),
    without_effect("metadata.iceberg.hadoop-conf-dir", TEXT, None, _OF_CATALOGS),
    without_effect(
        "metadata.iceberg.hive-client-class",
        TEXT,
        "org.apache.hadoop.hive.metastore.HiveMetaStoreClient",
        _OF_CATALOGS,
    ),
    without_effect("metadata.iceberg.database", TEXT, None, _OF_CATALOGS),
    without_effect("metadata.iceberg.table", TEXT, None, _OF_CATALOGS),
    without_effect("metadata.iceberg.glue.skip-archive", BOOLEAN, "false", _OF_CATALOGS),
    without_effect("metadata.iceberg.hive-skip-update-stats", BOOLEAN, "false", _OF_CATALOGS),
)
