"""A pipeline's configuration, read and checked."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from tidelake.errors import BadInput, ConfigError
from tidelake.ingest.config.checks import kafka_errors, option_errors, template_errors
from tidelake.ingest.config.config_layers import add_environment, add_flags, read_yaml
from tidelake.ingest.config.config_messages import config_error, setting_paths
from tidelake.ingest.config.connect_names import take_connect_names
from tidelake.ingest.config.yaml_settings import Path
from tidelake.ingest.formats.connect_schema import spelled_source_type
from tidelake.ingest.formats.registry import capabilities_of
from tidelake.ingest.formats.types.type_mapping import TypeMapping
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME, RedactedOptions
from tidelake.ingest.settings import BootstrapSettings, Config, TableSettings
from tidelake.ingest.shaping.kept_changes import kept_changes_errors
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.ingest.shaping.snapshot_bootstrap import bootstrap_errors
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.storage.base.arguments import check_file_name
from tidelake.storage.catalog.options import is_case_sensitive
from tidelake.storage.fileio.location import LOCAL_SCHEME, REMOTE_SCHEMES, local_path, scheme_of
from tidelake.storage.model.types import parse_type

_LONGEST_AFFIX: Final = ".dead-letters"
_CHARACTERS_MAX: Final = 16 << 20  # so that reading an endless device ends


def load_config(path: pathlib.Path, flags: Iterable[str] = (), environment: Mapping[str, str] | None = None) -> Config:
    """Read a YAML file. `TIDELAKE_…` variables override the file, flags (`checkpoint.interval_ms=5000`) override both.

    environment: None: the environment of the process.

    Relative paths refer to the current directory. A pipeline without a name gets the file's name.

    Raises ConfigError, which names the place, the reason and the remedy.
    """
    text = _text(path)
    return parse_config(text, str(path), flags, os.environ if environment is None else environment, path.stem)


def _text(path: pathlib.Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_CHARACTERS_MAX + 1)
    except (OSError, ValueError) as error:  # not UTF-8, or a zero byte in the path
        raise ConfigError(f"{path}: can't be read: {error}. Pass the path of a configuration file") from error
    if len(text) > _CHARACTERS_MAX:
        raise ConfigError(
            f"{path}: has more than {_CHARACTERS_MAX:,} characters. Pass the path of a configuration file"
        )
    return text


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file, and the flags that override it. It may be read again. Methods block."""

    path: pathlib.Path
    flags: Sequence[str] = ()

    def __str__(self) -> str:
        return str(self.path)

    def load(self) -> Config:
        """Return the configuration. Raises ConfigError."""
        return load_config(self.path, self.flags)

    def digest(self) -> str:
        """Return a digest of the contents. Raises ConfigError."""
        return hashlib.sha256(_text(self.path).encode()).hexdigest()


def parse_config(
    text: str, name: str, flags: Iterable[str] = (), environment: Mapping[str, str] | None = None, pipeline: str = ""
) -> Config:
    """Read the text of a configuration, like `load_config`.

    name: the text's name in messages.
    pipeline: the default of the setting `pipeline`.
    """
    given = read_yaml(text, name)
    take_connect_names(given, {})
    below = dict(given.places)
    add_environment(given, environment or {}, setting_paths())
    take_connect_names(given, below)
    below = dict(given.places)
    add_flags(given, flags)
    take_connect_names(given, below)
    if pipeline:
        given.values.setdefault("pipeline", pipeline)
    try:
        config = msgspec.convert(given.values, Config, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise config_error(str(error), given) from None
    for path, reason, remedy in chain(_freshness_errors(config, given.values), _contradictions(config)):
        raise given.place(path).error(reason, remedy)
    return config


def shown(config: Config) -> Any:
    """Return the configuration with all defaults, as plain values for printing. Secrets are hidden."""
    return without_secrets(msgspec.to_builtins(config, enc_hook=str, str_keys=True))


def without_secrets(value: Any) -> Any:
    """Return plain values for printing, with secrets hidden."""
    if isinstance(value, dict):
        return {k: HIDDEN if v is not None and SECRET_NAME.search(k) else without_secrets(v) for k, v in value.items()}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


def _decode(wanted: type, value: Any) -> Any:
    if wanted is RedactedOptions:
        return RedactedOptions(msgspec.convert(value, dict[str, str], strict=False))
    if not isinstance(value, str):
        raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
    return wanted(value)


def _freshness_errors(config: Config, given: Mapping[str, Any]) -> Iterator[tuple[Path, str, str]]:
    """Yield (path, reason, remedy) of each setting that contradicts `freshness`.

    given: the settings without defaults.
    """
    ruling, checkpoint = config.ruling_target, given.get("checkpoint")
    if ruling is not None and isinstance(checkpoint, Mapping) and "interval_ms" in checkpoint:
        yield (
            ("checkpoint", "interval_ms"),
            f"`freshness.target_ms` of {ruling[0]} is {ruling[1]}, and chooses the interval",
            "Leave out one of the two.",
        )
    if config.freshness.price_an_hour_max is None:
        return
    path: Path = ("freshness", "price_an_hour_max")
    if ruling is None:
        yield path, "without a target nothing is chosen that it could limit", "Add `freshness.target_ms`."
    is_file_store = config.warehouse_options.get("metastore") != "rest"
    if is_file_store and scheme_of(config.warehouse) not in REMOTE_SCHEMES:
        yield path, f"nobody charges for requests at {config.warehouse}", "Leave it out."


def _contradictions(config: Config) -> Iterator[tuple[Path, str, str]]:
    """Yield (path, reason, remedy) of each error that a single setting doesn't show."""
    try:
        check_file_name("pipeline", config.pipeline, affix=_LONGEST_AFFIX)
    except BadInput as error:
        yield ("pipeline",), f"{error}", "It is part of the names of its files, and of its consumer in each table."
    if isinstance(config.source, KafkaSettings):
        for path, reason, remedy in kafka_errors(config.source):
            yield ("source", *path), reason, remedy
    elif _is_folder(config.dead_letters, config.source.path):
        yield (
            ("errors", "dead_letters") if config.errors.dead_letters else ("source", "path"),
            "the source would read the folder that dead letters are written to",
            "Name another folder, or another pipeline.",
        )
    if config.source.decode_processes not in (0, "auto") and capabilities_of(config.format).has_document_ids:
        yield (
            ("source", "decode_processes"),
            f"the ids in records of {config.format} are compared over all partitions, which one process does",
            "Set 0, or `auto`.",
        )
    yield from _bootstrap_contradictions(config)
    names = [table.name for table in config.tables]
    for at, name in enumerate(names):
        if name in names[:at]:
            yield (
                ("tables", at, "name"),
                f"table {name} is configured twice",
                "Write one entry per table; `match` may be a list.",
            )
    for at, table in enumerate(config.tables):
        yield from _contradictions_of_table(config, at, table)


def _bootstrap_contradictions(config: Config) -> Iterator[tuple[Path, str, str]]:
    """Yield an error for each `bootstrap` of a format whose records don't say that they are of a snapshot."""
    if capabilities_of(config.format).snapshot_marks_of is not None:
        return
    entries: list[tuple[Path, BootstrapSettings | None]] = [(("bootstrap", "enabled"), config.bootstrap)]
    entries += [(("tables", at, "bootstrap", "enabled"), table.bootstrap) for at, table in enumerate(config.tables)]
    for path, given in entries:
        if given is not None and given.enabled:
            yield (
                path,
                f"records of {config.format} don't show, or not to us, which of them are of a snapshot",
                "Leave it out. A dump can go to the highest level, see docs/bootstrap.md.",
            )


def _contradictions_of_table(config: Config, at: int, table: TableSettings) -> Iterator[tuple[Path, str, str]]:
    """Yield the errors of one entry.

    at: its position in `tables`
    """
    spelled = str if is_case_sensitive(config.warehouse_options) else str.lower
    for setting, reason, remedy in template_errors(table):
        yield ("tables", at, setting), f"{table.name}: {reason}", remedy
    missing = set(map(spelled, table.partition_by)) - set(map(spelled, table.primary_key or table.partition_by))
    if missing and table.raw_options.get("bucket") != "-1":
        yield (
            ("tables", at, "partition_by"),
            f"the primary key of {table.name} lacks the partition columns {', '.join(sorted(missing))}",
            "Add them to `primary_key`, or set `bucket: -1` in `options`: then keys move between partitions.",
        )
    for column, word in table.source_types.items():
        try:
            spelled_source_type(column, word)
        except BadInput as error:
            yield ("tables", at, "source_types", column), f"{table.name}: {error}", "Correct the value."
    try:
        TypeMapping.parse(table.type_mapping)
    except BadInput as error:
        yield ("tables", at, "type_mapping"), f"{table.name}: {error}", "Correct the value."
    for column, text in table.columns.items():
        try:
            parse_type(text)
        except BadInput as error:
            yield ("tables", at, "columns", column), f"{table.name}: {error}", "Write the type as in SQL."
    if table.paused and not config.has_quarantine:
        yield (
            ("tables", at, "paused"),
            f"{table.name} can't be paused: the pipeline has no quarantine, where its records would wait",
            "Stop the pipeline instead, or take the entry out of `tables`.",
        )
    for setting, reason, remedy in (*kept_changes_errors(table), *bootstrap_errors(table)):
        yield ("tables", at, setting), f"{table.name}: {reason}", remedy
    try:
        ShapedColumns.of(table, config.mask_salt)
    except BadInput as error:
        yield ("tables", at), f"{table.name}: {error}", "`tidelake help shaping-tables` has examples."
    for option, reason, remedy in option_errors(table):
        yield ("tables", at, "options", *([] if option is None else [option])), f"{table.name}: {reason}", remedy


def _is_folder(location: str, folder: pathlib.Path) -> bool:
    return scheme_of(location) == LOCAL_SCHEME and os.path.realpath(local_path(location)) == os.path.realpath(folder)
