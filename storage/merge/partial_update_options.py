"""The options of merge engine partial-update, checked against the schema and each other.

Source: Java `mergetree/compact/PartialUpdateMergeFunction.java` (its factory).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.merge.aggregate_functions import DEFAULT_FUNCTION_OPTION, LAST_NON_NULL_VALUE, column_aggregation
from tidelake.storage.merge.column_aggregation import ColumnAggregation
from tidelake.storage.merge.sequence_groups import SequenceGroup, sequence_groups
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.schema.table_schema import TableSchema

_ON_DELETE: Final = "partial-update.remove-record-on-delete"
_ON_SEQUENCES: Final = "partial-update.remove-record-on-sequence-group"


@dataclass(frozen=True)
class PartialUpdateOptions:
    """The options of merge engine partial-update.

    ignore_delete: whether deletes are dropped.
    remove_on_delete: whether a delete removes the record.
    groups: the sequence groups. No two groups share a column.
    removing: the sequence fields whose deletes remove the record.
    aggregations: the aggregated columns. Each belongs to a sequence group.
    """

    ignore_delete: bool = False
    remove_on_delete: bool = False
    groups: tuple[SequenceGroup, ...] = ()
    removing: frozenset[str] = frozenset()
    aggregations: tuple[ColumnAggregation, ...] = ()

    @classmethod
    def of(cls, schema: TableSchema, options: TableOptions) -> PartialUpdateOptions:
        """Read and check the options.

        Raises BadInput for options that Java refuses, and if Java's result would depend on the order of the options.
        """
        groups = sequence_groups(schema, options)
        found = cls(
            options.ignore_delete,
            options.partial_update_removes_on_delete,
            groups,
            frozenset(options.partial_update_removes_on_sequences),
            _aggregations(schema, options, groups),
        )
        _check_removals(found, options)
        return found

    @property
    def takes_deletes(self) -> bool:
        return self.ignore_delete or self.remove_on_delete or bool(self.groups)


def _check_removals(found: PartialUpdateOptions, options: TableOptions) -> None:
    for key, is_on in ((_ON_DELETE, found.remove_on_delete), (_ON_SEQUENCES, bool(found.removing))):
        if is_on and found.ignore_delete:
            raise BadInput(f"option {key} = {options[key]!r}: ignore-delete drops every delete; unset one of them")
    if found.remove_on_delete and found.groups:
        raise BadInput(
            f"option {_ON_DELETE} = true: it can't be combined with {found.groups[0].option}, whose columns deletes "
            f"retract; unset one of them, or name sequence fields in {_ON_SEQUENCES} instead"
        )
    ordering = {name for group in found.groups for name in group.ordered_by}
    for name in sorted(found.removing - ordering):
        available = f"those are {', '.join(sorted(ordering))}" if ordering else "the table has none"
        raise BadInput(
            f"option {_ON_SEQUENCES} = {options[_ON_SEQUENCES]!r}: {name!r} is not a sequence field of a "
            f"'fields.<column>.sequence-group'; {available}"
        )


def _aggregations(
    schema: TableSchema, options: TableOptions, groups: tuple[SequenceGroup, ...]
) -> tuple[ColumnAggregation, ...]:
    """Return the aggregated columns. Key columns and sequence fields are never aggregated.

    Keys are the same in all rows of a key, and sequence fields follow the newest sequence.
    """
    protected = {name for group in groups for name in group.protected}
    ordering = {name for group in groups for name in group.ordered_by}
    found = []
    for column in schema.fields:
        option = f"fields.{column.name}.aggregate-function"
        option = option if option in options else DEFAULT_FUNCTION_OPTION
        function = options.get(option)
        if function is None or column.name in ordering or column.name in schema.primary_keys:
            continue
        if column.name in protected:
            found.append(column_aggregation(function, column, options))
        elif function != LAST_NON_NULL_VALUE:  # the default behaviour of a column
            raise BadInput(
                f"option {option} = {function!r}: column {column.name!r} is in no sequence group, and outside of one "
                "merge-engine = partial-update aggregates nothing; name it in a 'fields.<column>.sequence-group', or "
                "use merge-engine = aggregation"
            )
    return tuple(found)
