"""Options of the metadata that Iceberg readers read.

Source: Java `iceberg/IcebergOptions.java`, `iceberg/IcebergCommitCallback.java`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.option_value import EnumValue, OptionValue

ICEBERG_FORMAT_VERSION_3: Final = 3


class IcebergStorage(StrEnum):
    """Whether a table has Iceberg metadata, and for whom."""

    DISABLED = "disabled"
    TABLE_LOCATION = "table-location"
    HADOOP_CATALOG = "hadoop-catalog"
    HIVE_CATALOG = "hive-catalog"
    REST_CATALOG = "rest-catalog"


class MetadataLocation(StrEnum):
    """Where Iceberg metadata is: in the table, or in the folder `iceberg` of its warehouse."""

    TABLE = "table-location"
    CATALOG = "catalog-location"


class IcebergOptions(BaseOptions):
    """Options of the metadata for Iceberg readers."""

    iceberg_storage = EnumValue("metadata.iceberg.storage", IcebergStorage)
    _iceberg_storage_location = OptionValue[str | None]("metadata.iceberg.storage-location")
    # 2 or 3; only 3 has deletion vectors
    iceberg_format_version = OptionValue[int]("metadata.iceberg.format-version")
    # From how many small manifests on they are merged if they fill one, and from how many on in any case
    iceberg_compaction_min_files = OptionValue[int]("metadata.iceberg.compaction.min.file-num")
    iceberg_compaction_max_files = OptionValue[int]("metadata.iceberg.compaction.max.file-num")
    # Whether old versions of the metadata file are deleted, and how many stay besides the newest
    iceberg_deletes_old_metadata = OptionValue[bool]("metadata.iceberg.delete-after-commit.enabled")
    iceberg_previous_versions_max = OptionValue[int]("metadata.iceberg.previous-versions-max")
    iceberg_manifest_compression = OptionValue[str]("metadata.iceberg.manifest-compression")
    # Whether manifest lists have the field names of Iceberg 1.4
    iceberg_manifest_legacy_version = OptionValue[bool]("metadata.iceberg.manifest-legacy-version")

    @property
    def iceberg_enabled(self) -> bool:
        return self.iceberg_storage is not IcebergStorage.DISABLED

    @property
    def iceberg_metadata_location(self) -> MetadataLocation:
        if self._iceberg_storage_location is not None:
            return MetadataLocation(self._iceberg_storage_location.strip().lower())
        is_in_table = self.iceberg_storage is IcebergStorage.TABLE_LOCATION
        return MetadataLocation.TABLE if is_in_table else MetadataLocation.CATALOG
