"""Marks partitions as done: a file `_SUCCESS` in the directory of each, for jobs of other systems that wait for it.

Source: Java `partition/actions/SuccessFileMarkDoneAction.java`, `partition/file/SuccessFile.java`,
`flink/action/MarkPartitionDoneAction.java`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from tidelake.errors import BadInput
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.pretty_json import pretty_json
from tidelake.storage.commit.overwrite import matching_partitions
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.expired_snapshots import newest_live_entries


def write_success_file(io: FileIO, path: str, now_ms: int) -> None:
    """Write the file with the times of its first and its last write. A file that can't be read is replaced."""
    try:
        created_ms = int(json.loads(io.read(path))["creationTime"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        created_ms = now_ms
    io.write(path, pretty_json({"creationTime": created_ms, "modificationTime": now_ms}).encode())


_log = get_logger(__name__)

SUCCESS_FILE: Final = "_SUCCESS"


def partitions_like(context: TableContext, specs: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Return the partitions with rows that match one of the specs. Raises BadInput if a spec matches none."""
    live_partitions = {entry.partition for entry in newest_live_entries(context)}
    found: set[bytes] = set()
    for spec in specs:
        fitting = (
            matching_partitions(live_partitions, [spec], context) if context.schema.partition_keys and spec else set()
        )
        if not fitting:
            shown = ", ".join(f"{column}={value}" for column, value in spec.items()) or "none was named"
            raise BadInput(f"{context.name} has no partition with rows that matches: {shown}")
        found |= fitting
    return sorted(found)


def mark_done(context: TableContext, partitions: Iterable[bytes]) -> list[str]:
    """Mark partitions as done, and return their names: `dt=2024-05-14/hour=7`."""
    directories = partition_directories(context, partitions)
    for directory in directories:
        write_success_file(context.io, f"{context.location}/{directory}/{SUCCESS_FILE}", epoch_ms())
    return directories


def partition_directories(context: TableContext, partitions: Iterable[bytes]) -> list[str]:
    """Return the directories of partitions, relative to the table's location."""
    return [partition_directory(context, partition) for partition in partitions]


def mark_done_at_end_of_input(context: TableContext, partitions: Collection[bytes]) -> None:
    """Mark the partitions of a batch write as done, if option `partition.end-input-to-done` is set.

    Raises nothing: the rows are committed, and partitions can be marked manually.
    """
    if not context.options.partition_end_input_to_done or not context.schema.partition_keys:
        return
    try:
        _log.info("partitions marked as done", table=context.name, partitions=mark_done(context, sorted(partitions)))
    except Exception as error:
        _log.warning("partitions are not marked as done", table=context.name, error=str(error))
