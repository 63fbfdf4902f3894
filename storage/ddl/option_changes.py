"""Checks which options of an existing table may change.

Source: Java `schema/SchemaManager.java` (checkAlterTableOption, checkResetTableOption), `CoreOptions.java`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelake.errors import BadInput
from tidelake.storage.model.format import UNAWARE_BUCKET
from tidelake.storage.model.options.registry import find_option
from tidelake.storage.model.options.table_options import TableOptions


def check_option_change(options: Mapping[str, str], key: str, new: str | None, *, has_snapshots: bool) -> None:
    """Raise BadInput, naming the option, if it may not change from its value in `options` to `new` (None: unset)."""
    option = find_option(key)
    if option is not None and option.never_changes:
        raise BadInput(f"option {key} defines the kind of the table, and can't be changed; create another table")
    if not has_snapshots:
        return
    if option is not None and option.immutable:
        raise BadInput(f"option {key}: files that are written already depend on it; create another table")
    old = TableOptions(options)
    match key:
        case "bucket":
            _check_buckets(options.get(key), new)
        case "deletion-vectors.enabled" if old.is_on(key) != _is_on(key, new):
            if not old.is_on("deletion-vectors.modifiable"):
                raise BadInput(
                    f"option {key}: without a full compaction, rows could be duplicated or reappear; run a full "
                    "compaction, and set 'deletion-vectors.modifiable' = 'true' first"
                )
        case "ignore-delete" | "ignore-update-before" if old.is_on(key) and not _is_on(key, new):
            raise BadInput(f"option {key} can't be reverted: the dropped data is lost; create another table")
        case "manifest.format" if old.manifest_format.lower() != (new or "avro").strip().lower():
            raise BadInput(
                f"option {key}: Java Paimon reads all manifests of a table in the format of this option, but the "
                f"existing ones are {old.manifest_format}; create another table"
            )
        case "clustering.columns" if "pk-clustering-override" in options:
            raise BadInput(f"option {key}: with pk-clustering-override, files are sorted by it; create another table")


def _is_on(key: str, value: str | None) -> bool:
    return value is not None and TableOptions({key: value}).is_on(key)


def _check_buckets(old: str | None, new: str | None) -> None:
    if new is None:
        raise BadInput("option bucket can't be unset once rows are written; set a number")
    numbers = []
    for text in (old, new):
        try:
            numbers.append(UNAWARE_BUCKET if text is None else int(text))
        except ValueError:
            raise BadInput(f"option bucket = {text!r}: expected a whole number") from None
    if UNAWARE_BUCKET in numbers:
        raise BadInput(
            f"option bucket can't change from {old or UNAWARE_BUCKET} to {new} once rows are written; create another "
            "table"
        )
