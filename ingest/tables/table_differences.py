"""Finds contradictions between a pipeline's configuration and an existing table, which is never changed by it.

A difference that would change the rows, the changelog or the layout is refused. A difference in tuning is a warning
with the command that applies it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidelake.errors import BadInput
from tidelake.ingest.formats.types.inferred_types import is_widening
from tidelake.ingest.settings import TableSettings
from tidelake.storage.model.messages import (
    alter_command,
    rewrite_command,
    set_option,
    set_primary_key,
    set_type,
)
from tidelake.storage.model.options.option_changes import (
    check_option_change,
    check_rewritten_option,
    has_same_meaning,
    text_of,
)
from tidelake.storage.model.options.registry import find_option
from tidelake.storage.model.schema.type_changes import can_change
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import nullable, parse_type


@dataclass(frozen=True, slots=True)
class TableDifference:
    """A difference between the configuration and a table.

    setting: the name of the setting in the configuration.
    configured: the text of the configured value.
    found: the text of the table's value.
    command: the command that alters the table; None if the table can't be altered, or if values could be lost.
    as_found: the setting as the configuration would say what the table has; "" if it would leave it out.
    rewrite: the option of `tidelake table rewrite` that changes the table; None if a rewrite can't.
    location: the root directory of the table.
    """

    table: str
    setting: str
    configured: str
    found: str
    is_refused: bool
    command: str | None = None
    as_found: str = ""
    rewrite: str | None = None
    location: str = ""

    def __str__(self) -> str:
        return (
            f"{self.table}: `{self.setting}` is {self.configured} in the configuration, but {self.found} in the table"
        )


def differences(settings: TableSettings, context: TableContext) -> list[TableDifference]:
    """Return the settings of a table that differ from the table."""
    schema, name = context.schema, settings.name
    found = []
    for setting, wanted, has in (
        ("primary_key", settings.key_of_new(()), schema.primary_keys),
        ("partition_by", settings.partition_by, schema.partition_keys),
    ):
        if wanted and tuple(wanted) != has:
            is_refused = set(wanted) != set(has)
            rewrite = set_primary_key(wanted) if setting == "primary_key" and has else None
            as_found = f"{setting}: [{', '.join(has)}]" if has else ""
            found.append(
                TableDifference(
                    name,
                    setting,
                    _names(wanted),
                    _names(has),
                    is_refused,
                    as_found=as_found,
                    rewrite=rewrite,
                    location=context.location,
                )
            )
    for column, text in settings.columns.items():
        existing = schema.by_name.get(column)
        if existing is not None and nullable(existing.type) != nullable(wanted_type := parse_type(text)):
            is_key = column in (*schema.primary_keys, *schema.partition_keys)
            loses_values = is_widening(wanted_type, existing.type)  # the pipeline may have widened the column itself
            is_convertible = not is_key and not loses_values and can_change(existing.type, wanted_type)
            command = alter_command(name, context.location, set_type(column, wanted_type)) if is_convertible else None
            shown = str(nullable(existing.type))
            found.append(TableDifference(name, f"columns: {column}", text, shown, False, command))
    for key, text in settings.raw_options.items():
        has_text = text_of(schema.options, key)
        if not has_same_meaning(key, text, has_text):
            is_refused = _is_refused(schema.options, key, text)
            command = None if is_refused else alter_command(name, context.location, set_option(key, text))
            shown = "not set" if has_text is None else repr(has_text)
            found.append(
                TableDifference(
                    name,
                    f"options: {key}",
                    repr(text),
                    shown,
                    is_refused,
                    command,
                    as_found="" if has_text is None else f"options: {{{key}: {has_text!r}}}",
                    rewrite=_rewrite_option(schema.options, key, text),
                    location=context.location,
                )
            )
    return found


def check_differences(found: Sequence[TableDifference]) -> None:
    """Raise BadInput that lists the refused differences, if any, with what the configuration should say."""
    refused = [difference for difference in found if difference.is_refused]
    if refused:
        lines = "\n".join(f"  {difference}. {_remedy(difference)}" for difference in refused)
        rewrites = [
            command for table in dict.fromkeys(d.table for d in refused) if (command := _rewrite(table, refused))
        ]
        instead = f", or rewrite the table: `{'`, `'.join(rewrites)}`" if rewrites else ""
        raise BadInput(
            f"the configuration contradicts tables that exist; nothing was read or written:\n{lines}\nSettings don't "
            "change existing tables. Change the configuration to the table's values, or leave out the setting. For "
            f"another table, configure another name{instead}"
        )


def _remedy(difference: TableDifference) -> str:
    return f"Write `{difference.as_found}`" if difference.as_found else "Leave it out"


def _rewrite(table: str, refused: Sequence[TableDifference]) -> str | None:
    """Return the command that makes a table as it is configured; None if a rewrite can't."""
    of_table = [difference for difference in refused if difference.table == table]
    options = [difference.rewrite for difference in of_table if difference.rewrite is not None]
    return rewrite_command(table, of_table[0].location, *options) if len(options) == len(of_table) else None


def _rewrite_option(options: Mapping[str, str], key: str, text: str) -> str | None:
    try:
        check_rewritten_option(options, key, text)
    except BadInput:
        return None
    return set_option(key, text)


def _names(names: Sequence[str]) -> str:
    return f"({', '.join(names)})"


def _is_refused(options: Mapping[str, str], key: str, text: str) -> bool:
    option = find_option(key)
    if option is not None and option.decides_rows:
        return True
    try:
        check_option_change(options, key, text, has_snapshots=True)
    except BadInput:
        return True
    return False
