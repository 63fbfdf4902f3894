"""`format("tidelake-changelog-folder")`: the data source that Spark creates first."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from tidelake.spark.changelog_folder.read_options import FORMAT, FolderReadOptions
from tidelake.spark.changelog_folder.readers import FolderBatchReader, FolderStreamReader
from tidelake.spark.spark_types import record_schema
from tidelake.storage.base.errors import UnsupportedFeature


class ChangeLogFolderDataSource(DataSource):
    """The data source. Its options are in `tidelake.spark.changelog_folder.read_options`. Spark keeps it pickled."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return record_schema(has_headers=bool(FolderReadOptions.of(self.options).kept_headers))

    def reader(self, schema: StructType) -> FolderBatchReader:
        return FolderBatchReader(FolderReadOptions.of(self.options), schema)

    def streamReader(self, schema: StructType) -> FolderStreamReader:  # noqa: N802 - Spark's name
        return FolderStreamReader(FolderReadOptions.of(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise UnsupportedFeature(
            f'write.format("{FORMAT}")', "this data source can only read change logs", "Write into a table"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
        return self.writer(schema, overwrite)
