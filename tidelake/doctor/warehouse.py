"""Checks of the warehouse: readable, writable, atomic, and whether its clock is ours.

One object with a unique name is written and removed. Everything else only reads.
"""

from __future__ import annotations

import os
from typing import Final

from tidelake.doctor.checks import Finding, Findings, counted, failed, ok, warning
from tidelake.ingest.pipeline.freshness_plan import plan_freshness
from tidelake.ingest.settings import Config
from tidelake.storage.base import env
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.fileio import FileIO, open_file_io
from tidelake.storage.fileio.location import LOCAL_SCHEME, local_path, scheme_of

PROBE_PREFIX: Final = ".tidelake-doctor-"
CLOCK_DIFFERENCE_MAX_MS: Final = 5_000
_WRITE_REMEDY: Final = "Allow this user to list, write and delete below `warehouse`"


def check_catalog(config: Config) -> Findings:
    """Read the list of databases."""
    databases = open_catalog(config.warehouse, config.warehouse_options).list_databases()
    return [ok(f"{config.warehouse} is readable: {counted(len(databases), 'database')}")]


def check_store(config: Config, io: FileIO | None = None) -> Findings:
    """Write an object below the warehouse, once more if absent, compare its time with ours, and remove it.

    io: replaces the store of the configuration
    """
    if config.warehouse_options.get("metastore") == "rest":
        return [ok("a REST server keeps the files: only it knows where, so nothing was written")]
    store, directory = io or open_file_io(config.warehouse, config.warehouse_options), _existing(config.warehouse)
    name = f"{PROBE_PREFIX}{env.new_uuid().hex}.tmp"
    path, before_ms = f"{directory.rstrip('/')}/{name}", epoch_ms()
    try:
        created, again = store.create_if_absent(path, b"tidelake"), store.create_if_absent(path, b"another")
        after_ms, content = epoch_ms(), store.read(path)
        modified_ms = next((file.modified_ms for file in store.list_directory(directory) if file.name == name), None)
    finally:
        store.delete(path)
    if not created or again or content != b"tidelake":
        return [
            failed(
                "the store replaced an object that was to be created only if absent, so commits could be lost",
                "Use a store with conditional writes (`tidelake help stores`)",
            )
        ]
    findings = [ok("objects are created only if absent, and removed")]
    if modified_ms is None:
        return [*findings, failed("a new object is not in the list of its directory", _WRITE_REMEDY)]
    return [*findings, _clock(modified_ms, before_ms, after_ms)]


def check_freshness(config: Config, io: FileIO | None = None) -> Findings:
    """Compare the target of freshness with how long a request to the store takes.

    io: replaces the store of the configuration
    """
    planned = plan_freshness(config, io)
    assert planned is not None
    if planned.problem is not None:
        return [warning(planned.problem, f"Set `freshness.target_ms` to {planned.least_ms:,} or more")]
    if planned.least_ms is None:
        return [ok("a REST server keeps the files, so it is unknown which target its store allows")]
    return [ok(f"the store allows the target of {planned.target_ms / 1000:g} s: {planned.least_ms:,} ms at best")]


def _clock(modified_ms: int, before_ms: int, after_ms: int) -> Finding:
    """Compare the time of a file with ours. Stores may round it to seconds."""
    ahead_ms = max(0, modified_ms - after_ms) or min(0, modified_ms - before_ms)
    if abs(ahead_ms) <= CLOCK_DIFFERENCE_MAX_MS:
        return ok("its clock and that of this machine agree")
    return warning(
        f"its clock is {abs(ahead_ms) / 1000:,.0f} s {'ahead of' if ahead_ms > 0 else 'behind'} this machine's, so the "
        "age of files is wrong by that much",
        "Correct the clock of this machine or of the store (NTP). Until then remove no orphan files",
    )


def _existing(warehouse: str) -> str:
    """Return the directory to write to: the warehouse, or on a disk its nearest directory that exists."""
    if scheme_of(warehouse) != LOCAL_SCHEME:
        return warehouse
    place = os.path.abspath(local_path(warehouse))
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    return place
