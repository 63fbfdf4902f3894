"""Which checks a configuration gets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tidelake.doctor import machine, source, tables, warehouse
from tidelake.doctor.checks import Check, CheckResult, counted, failed, ok, run_checks
from tidelake.errors import TidelakeError
from tidelake.ingest.config.config import load_config
from tidelake.ingest.formats.base import RegistryUser
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.pipeline import builder
from tidelake.ingest.pipeline.configured_source import with_short_limit
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import KafkaSettings

_LIMIT_S: Final = 15.0
_BROKER_LIMIT_S: Final = 5.0  # without an answer; the other checks of the source also read
TABLES_LIMIT_S: Final = 60.0  # all tables are looked at
_SOURCE: Final = "Check `source.bootstrap_servers`, `source.security_protocol`, the login, and whether the broker runs"
_STORE: Final = "Check `warehouse`, `warehouse_options` and the credentials of the store"


def examine(path: Path, settings: Sequence[str], command: str) -> list[CheckResult]:
    """Check the configuration, and everything that it needs. Without a valid one, only the machine is checked.

    command: runs this pipeline, for remedies
    """
    versions = Check("versions", machine.check_versions, _LIMIT_S, "Install tidelake again")
    try:
        config = load_config(path, settings)
        open_format(config.format, config.format_options)
    except TidelakeError as error:
        found = failed(
            str(error), "Correct the configuration (`tidelake help configuration`); nothing else was checked"
        )
        return [CheckResult("configuration", [found]), *run_checks([versions])]
    return [
        CheckResult(
            "configuration",
            [ok(f"pipeline {config.pipeline}, {counted(len(config.tables), 'entry', 'entries')} of tables")],
        ),
        *run_checks([versions, *checks_of(with_short_limit(config), command)]),
    ]


def checks_of(config: Config, command: str) -> list[Check]:
    """Return the checks of the machine, the source, the warehouse and the tables.

    command: runs this pipeline, for remedies
    """
    on = config.source
    found = [
        Check("memory", partial(machine.check_memory, config), _LIMIT_S, "Set a memory limit that can be read"),
        Check("spill space", partial(machine.check_spill_space, config), _LIMIT_S, "Set `write.spill_directory`"),
        Check("open files", lambda: machine.check_descriptors(len(_named(config))), _LIMIT_S, _STORE),
    ]
    if isinstance(on, KafkaSettings):
        found += [
            Check(
                "Kafka client",
                machine.check_kafka_client,
                _LIMIT_S,
                "Install the release of aiokafka that the message names",
            ),
            Check("broker", partial(source.check_broker, on), _BROKER_LIMIT_S, _SOURCE),
            Check("topics", partial(source.check_topics, on, config.format), _LIMIT_S, _SOURCE),
        ]
    found.append(Check("position", partial(source.check_position, config, command), _LIMIT_S, _SOURCE))
    format_ = open_format(config.format, config.format_options)
    if isinstance(format_, RegistryUser) and format_.registry_urls:
        remedy = "Check `schema_registry_url`, its credentials, and whether the registry runs"
        found.append(Check("schema registry", partial(source.check_registry, format_), _LIMIT_S, remedy))
    of_tables = (
        ("options", tables.check_differences),
        ("tables", tables.check_soundness),
        ("consumers", tables.check_consumers),
        ("sorted runs", tables.check_sorted_runs),
    )
    return [
        *found,
        Check("catalog", partial(warehouse.check_catalog, config), _LIMIT_S, _STORE),
        Check(
            "store",
            partial(warehouse.check_store, config),
            _LIMIT_S,
            f"{_STORE}. An object {warehouse.PROBE_PREFIX}… may be left there: remove it",
        ),
        *_of_freshness(config),
        *(
            Check(name, lambda look=look: look(builder.expanded(config).config), TABLES_LIMIT_S, _STORE)  # type: ignore[misc]
            for name, look in of_tables
        ),
    ]


def _of_freshness(config: Config) -> list[Check]:
    if config.ruling_target is None:
        return []
    return [Check("freshness", partial(warehouse.check_freshness, config), _LIMIT_S, _STORE)]


def _named(config: Config) -> list[str]:
    return [table.name for table in builder.expanded(config).config.named_tables]
