"""The files of a table's Iceberg metadata: which of them nothing names any more, and what is lost.

Crashes leave metadata files, manifest lists and manifests that nothing names; Puffin files stay when their vectors are
gone. The newest metadata file, those before it that the options keep, and all that they name are live.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelake.errors import CorruptFile
from tidelake.storage.commit.iceberg.manifest_files import Content, IcebergManifests, is_live
from tidelake.storage.commit.iceberg.metadata_directory import MetadataDirectory, metadata_directory
from tidelake.storage.fileio.base import FileStatus
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.iceberg.table_metadata import IcebergMetadata
from tidelake.storage.model.metadata_cache import MetadataCache
from tidelake.storage.model.table import TableContext

_VERSION: Final = re.compile(r"v(\d+)\.metadata\.json")
_NAMED: Final = re.compile(r"v\d+\.metadata\.json|.*\.avro|.*\.puffin")  # others are of no release: left alone
_PUFFIN: Final = ".puffin"


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """What the directory of the metadata has.

    unnamed: files that no live metadata names, with their paths. Empty if not all of the metadata can be read
    problem: the path of a file that the newest metadata names and that is lost or incomplete, and what is wrong
    """

    unnamed: tuple[tuple[str, FileStatus], ...] = ()
    problem: tuple[str, str] | None = None


def iceberg_files(context: TableContext, is_referenced: Callable[[str], bool]) -> IcebergFiles:
    """Return the files of a table's Iceberg metadata. Nothing, if the table has none.

    is_referenced: whether a state of the table names this index file; its Puffin file may be named again
    """
    if not context.options.iceberg_enabled or context.branch != DEFAULT_BRANCH:
        return IcebergFiles()
    context = context.with_cache(MetadataCache())  # a fresh cache: it must see which files exist
    directory = MetadataDirectory(context.io, metadata_directory(context))
    listed = [status for status in context.io.list_directory(directory.path) if not status.is_directory]
    versions = sorted(int(match[1]) for status in listed if (match := _VERSION.fullmatch(status.name)))
    if not versions:
        return IcebergFiles()
    newest = directory.find(versions[-1])
    manifests = IcebergManifests(context, directory.path)
    try:
        if newest is None:
            raise CorruptFile(directory.metadata_path(versions[-1]), "Iceberg metadata", "another JSON")
        named = _names(context, manifests, newest)
    except CorruptFile as error:
        return IcebergFiles(problem=(error.path, f"expected {error.expected}, found {error.found}"))
    options = context.options
    is_kept = versions
    if options.iceberg_deletes_old_metadata:
        is_kept = [version for version in versions if version >= versions[-1] - options.iceberg_previous_versions_max]
    for version in is_kept:
        named.add(directory.metadata_path(version).rpartition("/")[2])
        older = directory.find(version)
        if older is not None and older is not newest:
            named |= _names_of_older(context, manifests, older)
    unnamed = [
        (f"{directory.path}/{status.name}", status)
        for status in listed
        if status.name not in named
        and _NAMED.fullmatch(status.name)
        and not (status.name.endswith(_PUFFIN) and is_referenced(status.name.removesuffix(_PUFFIN)))
    ]
    return IcebergFiles(tuple(unnamed))


def _names(context: TableContext, manifests: IcebergManifests, metadata: IcebergMetadata) -> set[str]:
    """Return the names of all files that metadata names. Raises CorruptFile for one that is lost or incomplete."""
    names: set[str] = set()
    for snapshot in metadata.snapshots:
        names.add(_name(snapshot.manifest_list))
        for meta in manifests.read_list(snapshot.manifest_list):
            if _name(meta["manifest_path"]) in names:
                continue
            names.add(_name(meta["manifest_path"]))
            if meta["content"] == Content.DELETES:
                entries = manifests.read(meta)
                names |= {_name(entry["data_file"]["file_path"]) for entry in entries if is_live(entry)}
            elif not context.io.exists(meta["manifest_path"]):
                raise CorruptFile(meta["manifest_path"], "a file that Iceberg metadata references", "no file")
    return names


def _names_of_older(context: TableContext, manifests: IcebergManifests, metadata: IcebergMetadata) -> set[str]:
    """Return the names of the files that older metadata names, and that its expiry has left."""
    names: set[str] = set()
    for snapshot in metadata.snapshots:
        names.add(_name(snapshot.manifest_list))
        try:
            metas = manifests.read_list(snapshot.manifest_list)
        except CorruptFile:  # it expired
            continue
        names |= {_name(meta["manifest_path"]) for meta in metas}
    return names


def _name(path: str) -> str:
    return path.rpartition("/")[2]
