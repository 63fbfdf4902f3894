"""A scratch warehouse beside the user's own, with empty copies of their tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.config.config import load_config
from tidelake.ingest.config.lower_case import lower_case_for_catalog
from tidelake.ingest.pipeline.builder import expanded
from tidelake.ingest.secrets import RedactedOptions
from tidelake.ingest.settings import (
    CheckpointSettings,
    Config,
    DeadLetterTableSettings,
    MetricsSettings,
    PipelineFreshnessSettings,
)
from tidelake.ingest.source_settings import FolderSettings
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.catalog.options import CatalogOptions
from tidelake.storage.fileio import FileIO, open_retrying_file_io

PREFIX: Final = ".tidelake-chaos-"
_INTERVAL_MS_MAX: Final = 500  # so that a minute has many checkpoints
_POLL_INTERVAL_MS: Final = 50
# Options by which a table writes, or calls, outside of its own folder
_OUTSIDE: Final = (
    "commit.callbacks", "data-file.external-paths", "global-index.external-path", "metadata.iceberg.",
    "object-location", "partition.mark-done", "path", "tag.callbacks",
)  # fmt: skip

T = TypeVar("T")


def without_outside(options: Mapping[str, T]) -> dict[str, T]:
    """Return the options without those by which a table would write, or call, outside of its own folder."""
    return {name: value for name, value in options.items() if not name.startswith(_OUTSIDE)}


class ScratchPipeline(msgspec.Struct, frozen=True):
    """The user's pipeline on a scratch warehouse. It can be given to another process as JSON.

    config: file of the user's configuration.
    settings: what the command line changes in it.
    warehouse: the scratch warehouse.
    folder: change logs that replace the source.
    """

    config: str
    settings: Sequence[str]
    warehouse: str
    folder: str

    def users_own(self) -> Config:
        """Return the user's configuration. Raises BadInput if it is wrong."""
        return load_config(Path(self.config), self.settings)

    def settings_of_run(self, *, until_end: bool) -> Config:
        """Return the configuration of a run: the user's own, but for the source and everything that has an address."""
        own = lower_case_for_catalog(self.users_own())
        errors, quarantine = own.errors, own.quarantine
        if not isinstance(errors.dead_letters, DeadLetterTableSettings):
            errors = msgspec.structs.replace(errors, dead_letters=None)
        checkpoint: CheckpointSettings = msgspec.structs.replace(
            own.checkpoint, interval_ms=min(own.first_interval_ms, _INTERVAL_MS_MAX)
        )
        return msgspec.structs.replace(
            own,
            warehouse=self.warehouse,
            warehouse_options=self._options(own),
            source=FolderSettings(
                path=Path(self.folder),
                until="end" if until_end else "forever",
                poll_interval_ms=_POLL_INTERVAL_MS,
                max_record_bytes=own.source.max_record_bytes,
            ),
            checkpoint=checkpoint,
            freshness=PipelineFreshnessSettings(),
            tables=[
                msgspec.structs.replace(one, options=without_outside(one.options), freshness=None) for one in own.tables
            ],
            errors=errors,
            quarantine=msgspec.structs.replace(quarantine, location=None),
            metrics=MetricsSettings(),
        )

    def create_tables(self) -> list[str]:
        """Create the warehouse, with an empty copy of each of the user's tables that exists. Returns their names.

        A copy has all versions of the schema: columns, keys and options, but for those that act outside of its folder.
        Raises UnsupportedFeature for a warehouse of which only a server knows where its files are.
        """
        own = self.users_own()
        if own.warehouse_options.get("metastore") == "rest":
            raise UnsupportedFeature(
                "--chaos with a REST catalog",
                "the server decides where files are, so there is no place for scratch tables beside the real ones",
                "Try a copy of the configuration whose warehouse is a directory",
            )
        real = open_catalog(own.warehouse, own.warehouse_options)
        scratch, names = self.catalog(), []
        for table in expanded(own, real).config.named_tables:
            scratch.create_database(table.name.partition(".")[0], if_not_exists=True)
            if real.table_exists(table.name):
                schemas = real.load(table.name).schemas
                versions = [schemas.get(number) for number in schemas.ids()]
                copies = [replace(one, options=without_outside(one.options)) for one in versions]
                scratch.restore_table(table.name, copies)
                names.append(table.name)
        return names

    def catalog(self, io: FileIO | None = None) -> Catalog:
        return open_catalog(self.warehouse, self._options(self.users_own()), io)

    def table_names(self) -> list[str]:
        """Return the names of all tables of the scratch warehouse, sorted."""
        catalog = self.catalog()
        return [f"{base}.{name}" for base in catalog.list_databases() for name in catalog.list_tables(base)]

    def file_io(self) -> FileIO:
        return open_retrying_file_io(self.warehouse, CatalogOptions.of(self.users_own().warehouse_options).store)

    def _options(self, own: Config) -> RedactedOptions:
        """Keep the options of the store, and the defaults of new tables; a metastore must not hear of the scratch."""
        given = CatalogOptions.of(own.warehouse_options)
        defaults = {f"table-default.{name}": value for name, value in without_outside(given.table_defaults).items()}
        case = {} if given.own.is_case_sensitive else {"case-sensitive": "false"}
        return RedactedOptions({**given.store, **defaults, **case})


def check_scratch(warehouse: str) -> None:
    """Raise BadInput unless this is a scratch warehouse: everything below it will be removed."""
    if not warehouse.rstrip("/").rpartition("/")[2].startswith(PREFIX):
        raise BadInput(f"{warehouse} is no scratch warehouse: its name does not begin with {PREFIX}")
