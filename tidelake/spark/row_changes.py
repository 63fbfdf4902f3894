"""Writes, updates and deletes rows of a table with Spark, each call in one snapshot.

A change reads a snapshot, computes rows, and writes them. If another writer commits in between, its rows could be lost:
then nothing is published, and the whole change is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import coalesce, col, count, expr, lit, unix_micros, when
from pyspark.sql.functions import max as max_
from pyspark.sql.types import TimestampType

from tidelake.errors import BadInput, BatchOutdated, CommitConflict, UnsupportedFeature
from tidelake.ingest.spark.batch_rows import TypedColumns
from tidelake.ingest.spark.batch_target import Overwrite
from tidelake.ingest.spark.job_names import named_jobs
from tidelake.ingest.spark.release import HAS_DATA_SOURCES, check_session
from tidelake.ingest.spark.sink import sink, write_batch
from tidelake.one_commit import OneCommit
from tidelake.rescaling import rescale_partition
from tidelake.spark.registration import register
from tidelake.spark.table_read import read
from tidelake.storage.base.arguments import checked
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.overwrite import matching_partitions
from tidelake.storage.commit.table_commit import new_commit_user
from tidelake.storage.maintenance.automatic_tags import tag_batch_write
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.format import KIND_COLUMN, CommitKind, RowKind
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import ChangelogProducer, MergeEngine
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.conditions import as_predicate
from tidelake.storage.read.fallback_branch import change_of_other_branch, named_branch, read_of_other_branch
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.write.row_level.keyed_row_changes import (
    ALL_LEVELS,
    check_keyed_rows_can_change,
    check_no_row_waits,
    value_is_kept,
)
from tidelake.storage.write.row_level.row_changes import RowLevelOperation, removes_partitions

_ATTEMPTS: Final = 5
_BATCH_ID: Final = 1  # its commit user has no other batch
_STEP: Final = "_tidelake_step"  # orders the old row of an update before the new one
_MATCHED: Final = "_tidelake_matched"

Condition = str | Column
Assignments = Mapping[str, Condition]


@checked
def write(
    rows: DataFrame,
    table: str,
    warehouse: str,
    *,
    order_by: Sequence[str] = (),
    overwrite: Literal["static", "dynamic"] | Mapping[str, Any] | None = None,
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Write rows to a table of any bucket mode: new rows, or newer rows of their keys.

    rows: columns of the table by name, optionally `_VALUE_KIND` (see `Table.writer`)
    order_by: see `sink`
    options: of the store
    overwrite: the rows replace others, without a changelog. "static": all rows of the table. "dynamic": those of the
        written partitions. Values of partition columns, {"day": "2026-05-01"}: those of the partitions with these
        values; all written rows must be in them.

    Returns the snapshot; None for no rows. Repeated tasks don't write rows twice, but a repeated call does.
    """
    change = _Change.of(rows.sparkSession, table, warehouse, options)
    return change.publish(rows, order_by, lambda _: None, change.checked_overwrite(overwrite))


def delete(
    spark: SparkSession, table: str, warehouse: str, where: Condition, *, options: Mapping[str, str] | None = None
) -> int | None:
    """Delete the rows of a table with primary key that match a condition of Spark (`"amount < 3"`).

    If the merge engine takes no deletes, whole partitions can be deleted: by a text about partition columns alone.

    Returns the snapshot; None if no row matches. Raises CommitConflict if others repeatedly committed first.
    """
    change = _Change.of(spark, table, warehouse, options)
    if (partitions := change.whole_partitions(where)) is not None:
        return OneCommit(change.context, None, None).delete(partitions)
    change.check_can("delete")
    return change.publish_change(
        lambda old: old.filter(_condition(where)).withColumn(KIND_COLUMN, lit(int(RowKind.DELETE)).cast("byte")),
        lambda old: old.filter(_condition(where)),
    )


def update(
    spark: SparkSession,
    table: str,
    warehouse: str,
    values: Assignments,
    where: Condition = "true",
    *,
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Change columns of the rows that match.

    values: by column, an expression of Spark over the old row (`{"amount": "amount * 2", "status": "'paid'"}`)

    Otherwise like `delete`. The newest row of a key must win (merge-engine = deduplicate), or the merge engine is
    partial-update without sequence groups and aggregations, and no value becomes NULL. Columns of the key and of
    `sequence.field` can't be changed.
    """
    change = _Change.of(spark, table, warehouse, options)
    change.check_assignments(values)
    change.check_can("update", values)
    if not values:
        raise BadInput(f"{change.context.name}: an update names the columns to change, and what they become")

    def rows(old: DataFrame) -> DataFrame:
        matching = old.filter(_condition(where))
        change.check_no_value_is_kept(
            matching, {name: (_column(name), _condition(new)) for name, new in values.items()}
        )
        new = [change.assigned(name, values, _column(name)) for name in change.context.schema.names]
        return change.with_old_rows(matching, matching.select(*new, _kind(RowKind.UPDATE_AFTER)))

    return change.publish_change(rows, lambda old: old.filter(_condition(where)))


def merge(
    source: DataFrame,
    table: str,
    warehouse: str,
    *,
    on: Condition | None = None,
    matched_update: Assignments | Literal["*"] | None = None,
    matched_delete: Condition | None = None,
    not_matched_insert: Assignments | Literal["*"] | None = None,
    options: Mapping[str, str] | None = None,
) -> int | None:
    """Run SQL's MERGE. Expressions name columns as `source.x` and `target.x`.

    on: the condition of matching rows; by default, those with the same primary key.
    matched_update: the new values of columns of matching rows; "*" takes the source's columns.
    matched_delete: the condition of matching rows that are deleted; it has precedence over the update.
    not_matched_insert: columns of new rows for source rows without match; "*" takes the source's. Others are null.

    Otherwise like `update`. A row that two source rows change is refused. With `sequence.field`, a row keeps its values
    if its update would be older.
    """
    change = _Change.of(source.sparkSession, table, warehouse, options)
    change.check_can("merge", {})
    if matched_delete is not None:
        change.check_can("merge")
    if matched_update is None and matched_delete is None and not_matched_insert is None:
        raise BadInput(
            "merge needs matched_update, matched_delete or not_matched_insert: without them it would change nothing"
        )
    for values, is_insert in ((matched_update, False), (not_matched_insert, True)):
        if isinstance(values, Mapping):
            change.check_assignments(values, may_set_key=is_insert)
        elif values not in (None, "*"):
            raise BadInput(f'merge takes "*" or expressions by column, not {values!r}')
    names, keys = change.context.schema.names, change.context.schema.primary_keys
    if on is None:
        condition = lit(True)
        for key in keys:
            condition = condition & (_column(key, "source") == _column(key, "target"))
    else:
        condition = _condition(on)

    def rows(old: DataFrame) -> DataFrame:
        target = old.withColumn(_MATCHED, lit(True)).alias("target")
        joined = source.alias("source").join(target, condition, "left")
        is_matched = _column(_MATCHED, "target").isNotNull()
        is_deleted = is_matched & (lit(False) if matched_delete is None else _condition(matched_delete))
        new_values = {
            name: _merged(name, matched_update, _column(name, "target"), is_key=name in keys) for name in names
        }
        is_updated = is_matched & lit(matched_update is not None) & ~change.is_older(new_values, old)
        is_inserted = ~is_matched & lit(not_matched_insert is not None)
        joined = joined.withColumn(
            KIND_COLUMN,
            when(is_deleted, lit(int(RowKind.DELETE)))
            .when(is_updated, lit(int(RowKind.UPDATE_AFTER)))
            .when(is_inserted, lit(int(RowKind.INSERT)))
            .cast("byte"),
        ).filter(col(KIND_COLUMN).isNotNull())
        columns = [
            when(col(KIND_COLUMN) == int(RowKind.UPDATE_AFTER), new_values[name])
            .when(col(KIND_COLUMN) == int(RowKind.INSERT), _merged(name, not_matched_insert, lit(None)))
            .otherwise(_column(name, "target"))
            .alias(name)
            for name in names
        ]
        changed = joined.filter(col(KIND_COLUMN) == int(RowKind.UPDATE_AFTER))
        change.check_no_value_is_kept(
            changed, {name: (_column(name, "target"), new_values[name]) for name in names if name not in keys}
        )
        updated = changed.select("target.*")
        new = joined.select(*columns, KIND_COLUMN)
        change.check_once(new)
        return change.with_old_rows(updated, new)

    def changed(old: DataFrame) -> DataFrame:
        is_changed = lit(True) if matched_update is not None else _condition(matched_delete or "false")
        return old.alias("target").join(source.alias("source"), condition).filter(is_changed).select("target.*")

    return change.publish_change(rows, changed)


@dataclass(frozen=True)
class _Change:
    """table: its name, with the branch."""

    spark: SparkSession
    table: str
    context: TableContext
    warehouse: str
    options: Mapping[str, str]

    @staticmethod
    def of(spark: SparkSession, table: str, warehouse: str, options: Mapping[str, str] | None) -> _Change:
        check_session(spark)
        if HAS_DATA_SOURCES:
            register(spark)
        context = open_catalog(warehouse, options or {}).load(table)
        return _Change(spark, str(Identifier.parse(table)), context, warehouse, options or {})

    def publish_change(
        self, rows: Callable[[DataFrame], DataFrame], changed: Callable[[DataFrame], DataFrame]
    ) -> int | None:
        """Publish the change, with retries.

        rows: computes the rows to write from the existing rows.
        changed: selects the existing rows that change.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            latest = self.context.snapshots.latest()
            check_no_row_waits(self.context, None, latest)
            self._refuse_other_branch(latest, changed)
            base = None if latest is None else latest.id
            made = rows(self._rows_of(self.table, base))
            try:
                return self.publish(made, [_STEP] if _STEP in made.columns else [], _refuse_commits_after(base or 0))
            except CommitConflict:
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _rows_of(self, table: str, snapshot: int | None) -> DataFrame:
        """Return the rows of all levels, in one branch.

        snapshot: None for the latest
        """
        one_branch = {} if (named := named_branch(self.context)) is None else {named[0]: ""}
        at = {} if snapshot is None else {"snapshot": str(snapshot)}
        given = {**self.options, **ALL_LEVELS, **one_branch, **at}
        return read(self.spark, table, self.warehouse, native=False, options=given)

    def _refuse_other_branch(self, latest: Snapshot | None, changed: Callable[[DataFrame], DataFrame]) -> None:
        """Raise UnsupportedFeature if a changed row is read from another branch (`scan.fallback-branch`)."""
        part = read_of_other_branch(self.context, latest, None)
        partitions = [] if part is None else sorted({split.partition for split in part.splits()})
        if part is None or not partitions:
            return
        table = str(replace(Identifier.parse(self.table), branch=part.scan.context.branch))
        rows = changed(self._rows_of(table, None))
        keys = [
            unix_micros(_column(name)) if isinstance(rows.schema[name].dataType, TimestampType) else _column(name)
            for name in self.context.schema.partition_keys
        ]
        with named_jobs(self.spark, "check partitions of", [self.context.name]):
            found = {tuple(row) for row in rows.select(*keys).distinct().collect()}
        decoded = decode_rows(partitions, [field.type for field in self.context.schema.partition_fields])
        of_partitions = zip(*(_as_spark(column).to_pylist() for column in decoded), strict=True)
        for partition, values in zip(partitions, of_partitions, strict=True):
            if values in found:
                raise change_of_other_branch(self.context, part, partition)

    def checked_overwrite(self, given: str | Mapping[str, Any] | None) -> Overwrite | None:
        """Check the argument before a task runs. Raises BadInput if it doesn't fit the table."""
        if given is None:
            return None
        keys = self.context.schema.partition_keys
        if isinstance(given, Mapping):
            matching_partitions((), [given], self.context)  # refuses columns that are no partition columns
            if given:
                return Overwrite(given)
        elif given == "static" or (given == "dynamic" and keys):
            return Overwrite(is_dynamic=given == "dynamic")
        elif given == "dynamic":
            raise BadInput(f'{self.context.name} has no partitions: overwrite="static" replaces all of its rows')
        raise BadInput(
            f'overwrite={given!r}: "static" replaces all rows, "dynamic" replaces the partitions that rows are '
            f'written to, and {{"{keys[0] if keys else "day"}": …}} replaces the matching partitions'
        )

    def publish(
        self,
        rows: DataFrame,
        order_by: Sequence[str],
        guard: Callable[[Sequence[Snapshot]], None],
        overwrite: Overwrite | None = None,
    ) -> int | None:
        one = sink(
            self.table,
            self.warehouse,
            order_by=order_by,
            commit_user=new_commit_user(self.context.options),
            options=self.options,
        )
        columns = TypedColumns(tuple(order_by), replaces=overwrite is not None)
        one = replace(one, guard=guard, overwrite=overwrite, input=columns, rescale=rescale_partition)
        made = write_batch([one], rows, _BATCH_ID)
        if made:
            tag_batch_write(self.context, made[0])
        return made[0] if made else None

    @property
    def _needs_old_rows(self) -> bool:
        """Whether readers of the changelog need the rows that an update replaced, and the merge engine takes them."""
        options = self.context.options
        is_input = options.changelog_producer is ChangelogProducer.INPUT
        return is_input and options.merge_engine is MergeEngine.DEDUPLICATE

    def with_old_rows(self, old: DataFrame, new: DataFrame) -> DataFrame:
        """Return the new rows, with the old rows before them if the changelog needs these.

        old: the rows that are updated.
        """
        if not self._needs_old_rows:
            return new
        before = old.select(*map(_column, self.context.schema.names), _kind(RowKind.UPDATE_BEFORE))
        return before.withColumn(_STEP, lit(0)).union(new.withColumn(_STEP, lit(1)))

    def check_once(self, new: DataFrame) -> None:
        """Raise BadInput for duplicate keys.

        Only needed if old rows are written with new ones, or if a sequence orders rows; otherwise tasks check this.
        """
        if not self._needs_old_rows and not self.context.options.sequence_fields:
            return
        keys = [_column(key) for key in self.context.schema.primary_keys]
        duplicates = new.groupBy(*keys).agg(count("*").alias(_STEP)).filter(col(_STEP) > 1).drop(_STEP)
        with named_jobs(self.spark, "check keys of", [self.context.name]):
            found = duplicates.limit(1).collect()
        if found:
            raise BadInput(
                f"{self.context.name}: several source rows change the row with key {found[0].asDict()}. Keep one row "
                "per key in the source"
            )

    def check_can(self, verb: str, values: Assignments | None = None) -> None:
        """values: of an update; None: the rows are deleted."""
        if not self.context.schema.has_primary_key:
            raise UnsupportedFeature(
                f"tidelake.spark.{verb} on {self.context.name}",
                "it has no primary key, by which tasks find rows",
                f"Use Table.{verb}, which runs in one process",
            )
        check_keyed_rows_can_change(self.context, values, checks_nulls=True)

    def whole_partitions(self, where: Condition) -> Predicate | None:
        """Return the condition of a delete if `Table.delete` removes whole partitions by it, without deletes."""
        if not isinstance(where, str):
            return None
        try:
            found = as_predicate(where, self.context.schema.arrow)
        except BadInput:  # only Spark can read it
            return None
        return found if removes_partitions(self.context, RowLevelOperation(found)) else None

    def check_no_value_is_kept(self, rows: DataFrame, changed: Mapping[str, tuple[Column, Column]]) -> None:
        """Raise UnsupportedFeature for a null in place of a value that the merge engine would keep.

        rows: the rows that are updated.
        changed: old and new value of each column.
        """
        if self.context.options.merge_engine is not MergeEngine.PARTIAL_UPDATE or not changed:
            return
        lost = [max_((old.isNotNull() & new.isNull()).cast("int")) for old, new in changed.values()]
        with named_jobs(self.spark, "check values of", [self.context.name]):
            (found,) = rows.agg(*lost).collect()
        for name, is_lost in zip(changed, found, strict=True):
            if is_lost:
                raise value_is_kept(self.context, name)

    def is_older(self, values: Mapping[str, Column], old: DataFrame) -> Column:
        """Whether the new row loses to the old one by `sequence.field`. Nulls are the oldest, in either order."""
        is_older = lit(False)
        for name in reversed(self.context.options.sequence_fields):
            before, after = _column(name, "target"), values[name].cast(old.schema[name].dataType)
            is_behind = after > before if self.context.options.sequence_descending else after < before
            is_behind = coalesce(is_behind, after.isNull() & before.isNotNull())
            is_older = is_behind | (after.eqNullSafe(before) & is_older)
        return is_older

    def check_assignments(self, values: Assignments, *, may_set_key: bool = False) -> None:
        schema = self.context.schema
        for name in values:
            if name not in schema.by_name:
                hint = did_you_mean(name, schema.names) or "."
                raise BadInput(f"{self.context.name} has no column {name!r}{hint} Correct the name or leave it out")
            if name in schema.primary_keys and not may_set_key:
                raise BadInput(
                    f"{self.context.name}: {name!r} is a column of the primary key, which an update can't change. "
                    "Delete the old row and write a new one"
                )

    def assigned(self, name: str, values: Assignments, old: Column) -> Column:
        return (_condition(values[name]) if name in values else old).alias(name)


def _merged(name: str, values: Assignments | str | None, other: Column, *, is_key: bool = False) -> Column:
    if values is None or (is_key and values == "*"):
        return other
    if isinstance(values, str):
        return _column(name, "source")
    return _condition(values[name]) if name in values else other


def _column(name: str, alias: str = "") -> Column:
    """Whatever its name contains."""
    quoted = "`{}`".format(name.replace("`", "``"))
    return col(f"{alias}.{quoted}" if alias else quoted)


def _condition(text: Condition) -> Column:
    return expr(text) if isinstance(text, str) else text


def _as_spark(column: pa.Array) -> pa.Array:
    """Return partition values in Spark's form: a time with a zone as its microseconds."""
    if not pa.types.is_timestamp(column.type):
        return column
    micros = column.cast(pa.timestamp("us", column.type.tz))
    return micros.cast(pa.int64()) if column.type.tz is not None else micros


def _kind(kind: RowKind) -> Column:
    return lit(int(kind)).cast("byte").alias(KIND_COLUMN)


def _refuse_commits_after(base: int) -> Callable[[Sequence[Snapshot]], None]:
    """Return a guard that refuses the commit if rows were committed after this snapshot."""

    def check(snapshots: Sequence[Snapshot]) -> None:
        for snapshot in snapshots:
            if snapshot.id > base and snapshot.commit_kind is not CommitKind.COMPACT:
                raise BatchOutdated(
                    f"{snapshot.commit_user!r} committed snapshot {snapshot.id} while rows of snapshot {base} were "
                    "being changed. Nothing was published. Try again"
                )

    return check
