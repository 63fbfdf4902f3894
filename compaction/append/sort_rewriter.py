"""Sorts the rows of an append table into new files, so that a condition on some columns reads few files.

Source of the idea: Java `flink/action/SortCompactAction.java`. The order of rows:
`tidelake.compaction.append.clustering`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.compaction.append.clustering import CURVE_COLUMN, ClusteringStrategy, Curve
from tidelake.compaction.append.external_sort import PIECE_BYTES, ExternalSort
from tidelake.compaction.append.rewriter import AppendRewriter
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.commit.commit_increment import CompactResult
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.normalized_keys import normalize_column
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_type

_SAMPLES_PER_MAGNIFICATION: Final = 100
_MAGNIFICATION_MIN: Final = 20


@dataclass(frozen=True, slots=True)
class Clustering:
    """How the rows of an append table are sorted.

    columns: for strategy `order`, most significant first
    """

    columns: tuple[str, ...]
    strategy: ClusteringStrategy

    @classmethod
    def of(cls, context: TableContext, columns: Sequence[str], strategy: ClusteringStrategy | None) -> Clustering:
        """Return the clustering by these columns.

        strategy: None chooses by the number of columns

        Raises BadInput for columns that can't be sorted by.
        """
        fields = context.schema.select(columns)
        if len(set(columns)) != len(columns):
            raise BadInput(f"{context.name}: a column to sort by is named twice: {', '.join(columns)}")
        for field in fields:
            _check_sortable(field, context.name)
            if field.name in context.schema.partition_keys:
                raise BadInput(f"{context.name}: {field.name} has only one value in a partition; sort by other columns")
        if context.options.sort_sample_magnification < _MAGNIFICATION_MIN:
            raise BadInput(
                f"{context.name}: option sort-compaction.local-sample.magnification = "
                f"{context.options.sort_sample_magnification} is too coarse; set at least {_MAGNIFICATION_MIN}"
            )
        return cls(tuple(columns), ClusteringStrategy.choose(columns, strategy))

    def __str__(self) -> str:
        return f"{self.strategy} by {', '.join(self.columns)}"


def sort_files(
    rewriter: AppendRewriter, files: Sequence[DataFileMeta], clustering: Clustering, *, piece_bytes: int = PIECE_BYTES
) -> CompactResult:
    """Write the same rows, sorted, to new files. A curve reads twice: the columns of its sample, then everything.

    piece_bytes: about a third of the memory that is used.
    """
    rows, by = rewriter.read(files), clustering.columns
    if clustering.strategy is not ClusteringStrategy.ORDER:
        curve = Curve.from_samples(
            clustering.columns, clustering.strategy, list(_sample(rewriter, files, clustering.columns))
        )
        rows, by = map(curve.with_positions, rows), (CURVE_COLUMN,)
    columns = [field.name for field in rewriter.row_fields]
    sorted_rows = (batch.select(columns) for batch in ExternalSort(by, piece_bytes).sorted(rows))
    return rewriter.replace(files, sorted_rows, str(clustering))


def _sample(
    rewriter: AppendRewriter, files: Sequence[DataFileMeta], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield randomly chosen rows. Every n-th row would show only one value of a column that repeats in a cycle."""
    context = rewriter.context
    wanted = _SAMPLES_PER_MAGNIFICATION * context.options.sort_sample_magnification
    share = min(1.0, wanted / max(1, sum(file.row_count for file in files)))
    random = np.random.default_rng(0)
    for batch in rewriter.read(files, context.schema.select(columns)):
        yield batch if share == 1.0 else batch.filter(pa.array(random.random(batch.num_rows) < share))


def _check_sortable(field: DataField, table_name: str) -> None:
    try:
        normalize_column(pa.array([], arrow_type(field.type)), nullable=True)
    except UnsupportedFeature:
        raise BadInput(
            f"{table_name}: column {field.name} {field.type} has a type without an order, so rows can't be sorted by it"
        ) from None
