"""What decides which row of a key is the newest: sequence groups, sequence fields, or the order of writes.

A sequence group of a partial-update table (`fields.<sequence fields>.sequence-group`) decides for some columns.

Source: Java `mergetree/compact/PartialUpdateMergeFunction.java` (its factory), `schema/SchemaValidation.java`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.merge.aggregate_functions import column_aggregations, depends_on_order, is_order_free
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import MergeEngine, TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import CONSTRUCTED_ROOTS, Root

PREFIX: Final = "fields."
SUFFIX: Final = ".sequence-group"
UNORDERED_ROOTS: Final = CONSTRUCTED_ROOTS | {Root.VARIANT, Root.BLOB}


@dataclass(frozen=True, slots=True)
class SequenceGroup:
    """Columns of a partial-update table that follow their own sequence fields.

    option: the name of the option that defines the group.
    ordered_by: the sequence fields, most significant first.
    protected: the columns that a row changes only if its sequence is not older. The sequence fields are not included.
    """

    option: str
    ordered_by: tuple[str, ...]
    protected: frozenset[str]

    @property
    def columns(self) -> frozenset[str]:
        return self.protected.union(self.ordered_by)


def sequence_groups(schema: TableSchema, options: Mapping[str, str]) -> tuple[SequenceGroup, ...]:
    """Return all groups, in the order of the options. No two groups share a column.

    Raises BadInput for unknown columns, columns of the primary key, columns in two groups, and sequence fields of a
    type without an order.
    """
    groups = [
        _group(schema, key, value)
        for key, value in options.items()
        if key.startswith(PREFIX) and key.endswith(SUFFIX) and len(key) > len(PREFIX) + len(SUFFIX) - 1
    ]
    group_of: dict[str, SequenceGroup] = {}
    for group in groups:
        for name in sorted(group.columns):
            first = group_of.setdefault(name, group)
            if first is not group:
                raise BadInput(
                    f"option {group.option}: column {name!r} is also in {first.option}, but a column can have only "
                    "one order; name it in only one of the groups"
                )
    return tuple(groups)


def _group(schema: TableSchema, key: str, value: str) -> SequenceGroup:
    ordered_by = tuple(key[len(PREFIX) : -len(SUFFIX)].split(","))
    protected = value.split(",")
    where = f"option {key} = {value!r}"
    for name in (*ordered_by, *protected):
        check_columns(schema, where, [name])
        if name in schema.primary_keys:
            raise BadInput(f"{where}: {name!r} is part of the primary key, the same in all rows of a key; leave it out")
    for name in ordered_by:
        found = schema.by_name[name].type
        if found.root in UNORDERED_ROOTS:
            raise BadInput(f"{where}: {name!r} is {found}, which has no order; order the group by another column")
    return SequenceGroup(key, ordered_by, frozenset(protected).difference(ordered_by))


def check_columns(schema: TableSchema, where: str, names: Sequence[str]) -> None:
    """Raise BadInput for a name that is not a column."""
    for name in names:
        if name not in schema.by_name:
            known = ", ".join(schema.names)
            raise BadInput(f"{where}: no column {name!r}; the table has {known}{did_you_mean(name, schema.names)}")


def sequence_numbers_decide(schema: TableSchema, options: TableOptions) -> bool:
    """Whether the newest row of a key is the one with the highest sequence number, in a table with a primary key.

    False if other columns decide (`sequence.field`, sequence groups). False if the order makes no difference: then
    writers don't coordinate their sequence numbers.
    """
    if options.sequence_fields or is_order_free(schema, options):
        return False
    return not sequence_groups(schema, options)


def columns_changed_by_late_rows(schema: TableSchema, options: TableOptions) -> tuple[str, ...]:
    """Return the columns that depend on when rows were merged, if rows don't arrive in the order of `sequence.field`.

    A merged row has only the greatest sequence of its rows. A later row with a sequence between theirs is ordered
    before or after all of them. Columns of sequence groups don't follow `sequence.field`, and so are not among them.
    """
    fixed = {*schema.primary_keys, *options.sequence_fields}
    if not options.sequence_fields:
        return ()
    if options.merge_engine is MergeEngine.AGGREGATION:
        functions = column_aggregations(schema, options)
        return tuple(a.field.name for a in functions if a.field.name not in fixed and depends_on_order(a))
    if options.merge_engine is MergeEngine.PARTIAL_UPDATE:
        fixed |= {name for group in sequence_groups(schema, options) for name in group.columns}
        return tuple(field.name for field in schema.fields if field.type.nullable and field.name not in fixed)
    return ()


def late_rows_note(schema: TableSchema, options: TableOptions) -> str | None:
    """Return a sentence about `columns_changed_by_late_rows`; None if there are none."""
    columns = columns_changed_by_late_rows(schema, options)
    if not columns:
        return None
    verb, order = "depends" if len(columns) == 1 else "depend", ", ".join(options.sequence_fields)
    return (
        f"{', '.join(columns)} {verb} on when rows were merged if rows don't arrive in the order of {order}, as in Java"
    )
