"""`tidelake sync-table`, `tidelake sync-database`: Paimon's `kafka_sync_table` and `kafka_sync_database`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from tidelake.cli.commands.ingest import run_config
from tidelake.cli.output import CommandOutput
from tidelake.ingest.config.config import parse_config, without_secrets
from tidelake.ingest.config.sync_database import SyncDatabaseArguments, sync_database_configuration
from tidelake.ingest.config.sync_table import SyncTableArguments, sync_table_configuration
from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME


def sync_table(out: CommandOutput, *, show: bool = False, settings: Sequence[str] = (), **arguments: Any) -> None:
    """Run the pipeline of the arguments. The other arguments are those of `SyncTableArguments`.

    show: only print the configuration
    """
    configuration = sync_table_configuration(SyncTableArguments(**arguments))
    _run(out, configuration, "sync-table", settings, show=show)


def sync_database(out: CommandOutput, *, show: bool = False, settings: Sequence[str] = (), **arguments: Any) -> None:
    """Run the pipeline of the arguments. The other arguments are those of `SyncDatabaseArguments`.

    show: only print the configuration
    """
    configuration = sync_database_configuration(SyncDatabaseArguments(**arguments))
    _run(out, configuration, "sync-database", settings, show=show)


def _run(out: CommandOutput, configuration: dict[str, Any], name: str, settings: Sequence[str], *, show: bool) -> None:
    text = json.dumps(configuration, indent=2, ensure_ascii=False)  # a subset of YAML
    loaded = parse_config(text, name, settings, os.environ)
    if show:
        out.document(without_secrets(configuration))
    else:
        run_config(out, loaded, RecoveryFlags(), _command())


def _command() -> str:
    """Return the command to run this again, ready to be pasted; the user has to fill in secrets."""
    parts = []
    for part in sys.argv[1:]:
        name, equals, _ = part.partition("=")
        parts.append(f"{name}={HIDDEN}" if equals and SECRET_NAME.search(name) else part)
    return shlex.join(["tidelake", *parts])
