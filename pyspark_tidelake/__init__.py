"""Where Spark looks for data sources by itself: `format("tidelake")` works without `tidelake.spark.register`.

Source: PySpark `sql/worker/lookup_data_sources.py`: one `DefaultSource` a package named `pyspark_…`.
"""

from tidelake.spark.table_data_source import TidelakeDataSource as DefaultSource

__all__ = ["DefaultSource"]
