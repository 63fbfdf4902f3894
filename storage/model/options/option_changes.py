"""Checks which options of an existing table may change, for good (ALTER) or for one object (dynamic options).

One rule decides both. What rows are written by never changes while there are rows: their buckets, keys, merge engine
and files. A dynamic option also can't replace what decides which of the rows win: the next reader, writer or compaction
would apply the stored options to what this one wrote.

Source: Java `schema/SchemaManager.java` (checkAlterTableOption, checkResetTableOption), `CoreOptions.java`,
`table/AbstractFileStoreTable.java` (checkImmutability).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.model.format import UNAWARE_BUCKET
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options.option import Option
from tidelake.storage.model.options.registry import TABLE_REGISTRY, find_option
from tidelake.storage.model.options.table_options import ChangelogProducer, TableOptions

_FORMAT_OF_MANIFESTS: Final = "manifest.format"
_REWRITTEN: Final = frozenset(  # options that files depend on, and that a rewrite of all files can change
    {
        "merge-engine",
        "bucket",
        "bucket-key",
        "bucket-function.type",
        "dynamic-bucket.initial-buckets",
        "rowkind.field",
        "aggregation.remove-record-on-delete",
        "partial-update.remove-record-on-delete",
        "partial-update.remove-record-on-sequence-group",
    }
)
_LEVELS: Final = frozenset({"num-levels", "num-sorted-run.compaction-trigger"})  # the default of one follows the other


def check_spelling(keys: Iterable[str]) -> None:
    """Raise BadInput for the first option that Paimon doesn't have and that resembles one that it has.

    Names that resemble none are properties of other programs. They are stored, and the log names them once.
    """
    for key in keys:
        if hint := meant_instead(key):
            raise BadInput(f"option {key}: Paimon has no option of this name{hint} Correct it, or leave it out")


def meant_instead(key: str) -> str:
    """Return `; did you mean …?` for an option that Paimon doesn't have; "" if it has it, or none that is similar."""
    return did_you_mean(key, _names_like(key)) if find_option(key) is None else ""


def _names_like(key: str) -> Iterable[str]:
    """Return the names of all options, those of a family about columns with the column that `key` names."""
    yield from (name for name in TABLE_REGISTRY.keys if "<" not in name)
    column = key.partition(".")[2].rpartition(".")[0]
    for option in TABLE_REGISTRY.options:
        if option.key.startswith("fields.<column>.") and option.key.count("<") == 1 and column:
            yield option.key.replace("<column>", column)


def check_dynamic_options(stored: Mapping[str, str], dynamic: Mapping[str, str]) -> None:
    """Raise BadInput for a dynamic option that is misspelt, or that may not override the stored one."""
    check_spelling(dynamic)
    for key in _LEVELS & dynamic.keys():
        _check_highest_level(key, stored, {**stored, **dynamic})
    for key, text in dynamic.items():
        option = find_option(key)
        if option is None or not is_fixed_for_callers(option) or has_same_meaning(key, text, text_of(stored, key)):
            continue
        has = text_of(stored, key)
        shown = "it is not set" if has is None else f"it is {has!r}"
        remedy = ", or change it for the table (alter_table)" if _can_change(stored, key, text) else ""
        raise BadInput(
            f"option {key} = {text!r}: a dynamic option can't override what the rows of the table are written by; in "
            f"the table {shown}. Leave it out{remedy}"
        )


def _can_change(stored: Mapping[str, str], key: str, text: str) -> bool:
    try:
        check_option_change(stored, key, text, has_snapshots=True)
    except BadInput:
        return False
    return True


def is_fixed_for_callers(option: Option) -> bool:
    """Return whether a dynamic option may not override it, because rows and files depend on its stored value."""
    return option.never_changes or option.immutable or option.decides_rows or option.key == _FORMAT_OF_MANIFESTS


def text_of(options: Mapping[str, str], key: str) -> str | None:
    """Return a table's value of an option, under any of its names."""
    option = find_option(key)
    names = (key,) if option is None or option.is_family else (key, option.key, *option.fallbacks)
    return next((options[name] for name in names if name in options), None)


def has_same_meaning(key: str, text: str, has_text: str | None) -> bool:
    """Return whether two texts mean the same value. None: not set, which means the default."""
    option = find_option(key)
    if has_text is None and option is not None:
        has_text = option.in_effect
    if has_text is None:
        return False
    if text.strip() == has_text.strip():
        return True
    if option is None:
        return False
    try:
        first, second = option.kind.parse(text), option.kind.parse(has_text)  # 128 mb equals 128mb
    except BadInput:
        return False
    return first is not None and first == second


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
        case "changelog-producer" if old.text(key) != _text(key, new):
            raise BadInput(
                f"option {key} can't change from {old.changelog_producer} to {new or 'none'} once rows are written: "
                "changes that were not announced yet would be lost or announced twice, and followers from the earliest "
                "snapshot would miss those before. Create another table with it, copy the rows into it, and follow that"
            )
        case "ignore-delete" | "ignore-update-before" if old.is_on(key) and not _is_on(key, new):
            raise BadInput(f"option {key} can't be reverted: the dropped data is lost; create another table")
        case "manifest.format" if old.manifest_format.lower() != (new or "avro").strip().lower():
            raise BadInput(
                f"option {key}: Java Paimon reads all manifests of a table in the format of this option, but the "
                f"existing ones are {old.manifest_format}; create another table"
            )
        case "partition.default-name" | "partition.legacy-name" if old.text(key) != _text(key, new):
            raise BadInput(f"option {key}: directories of partitions are named by it; create another table")
        case "num-levels" | "num-sorted-run.compaction-trigger":
            _check_highest_level(key, options, {k: v for k, v in {**options, key: new}.items() if v is not None})
        case "clustering.columns" if "pk-clustering-override" in options:
            raise BadInput(f"option {key}: with pk-clustering-override, files are sorted by it; create another table")


def check_rewritten_option(options: Mapping[str, str], key: str, new: str | None) -> None:
    """Raise BadInput, naming the option, if a rewrite of all rows can't change it to `new` (None: unset).

    It can change what only the files of the newest snapshot depend on, and what ALTER can change, too. The rest says
    something about changes that were announced, about older snapshots, or about the names of directories.
    """
    option = find_option(key)
    if option is not None and not option.is_family and option.key in _REWRITTEN:
        return
    if key in ("primary-key", "partition"):
        what = "pass the key itself (--primary-key)" if key == "primary-key" else "create another table"
        raise BadInput(f"option {key} can't be changed by a rewrite; {what}")
    check_option_change(options, key, new, has_snapshots=True)


def check_altered_with_rows(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raise BadInput if no order of changes leads from the old options to the new ones in a table with rows."""
    options, left = dict(old), {key for key in (*old, *new) if old.get(key) != new.get(key)}
    while left:
        refusal: BadInput | None = None
        for key in sorted(left):
            try:
                check_option_change(options, key, new.get(key), has_snapshots=True)
            except BadInput as error:
                refusal = refusal or error
                continue
            left.discard(key)
            options = {k: v for k, v in {**options, key: new.get(key)}.items() if v is not None}
            break
        else:
            assert refusal is not None
            raise refusal


def _check_highest_level(key: str, stored: Mapping[str, str], changed: Mapping[str, str]) -> None:
    """Raise BadInput if the highest level would rise in a table whose changelog is made of what arrives there.

    Java allows it, and its next full compaction announces each row a second time.
    """
    old, new = TableOptions(stored), TableOptions(changed)
    if old.changelog_producer is ChangelogProducer.FULL_COMPACTION and new.num_levels > old.num_levels:
        raise BadInput(
            f"option {key}: the table would have {new.num_levels} levels instead of {old.num_levels}. A full "
            "compaction then moves its files to the new highest level, and changelog-producer = full-compaction "
            f"would announce all rows again. Set 'num-levels' = '{old.num_levels}' first, and the trigger may have any "
            "value"
        )


def _is_on(key: str, value: str | None) -> bool:
    return value is not None and TableOptions({key: value}).is_on(key)


def _text(key: str, value: str | None) -> str | None:
    return TableOptions({} if value is None else {key: value}).text(key)


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
