"""Builds and parses all file names of a table.

Source: Java `utils/FileStorePathFactory.java`, `io/DataFilePathFactory.java`, `utils/PartitionPathUtils.java`,
`utils/BranchManager.java`.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.base import env
from tidelake.storage.base.arguments import check_file_name
from tidelake.storage.model.format import (
    BUCKET_DIRECTORY_PREFIX,
    DEFAULT_BRANCH,
    EARLIEST_HINT,
    LATEST_HINT,
    POSTPONE_BUCKET,
)

SCHEMA_PREFIX: Final = "schema-"
SNAPSHOT_PREFIX: Final = "snapshot-"
CHANGELOG_PREFIX: Final = "changelog-"
TAG_PREFIX: Final = "tag-"
BRANCH_PREFIX: Final = "branch-"
BRANCH_CLAIM: Final = "being-made"
CONSUMER_PREFIX: Final = "consumer-"
MANIFEST_PREFIX: Final = "manifest-"
MANIFEST_LIST_PREFIX: Final = "manifest-list-"
INDEX_MANIFEST_PREFIX: Final = "index-manifest-"
INDEX_PREFIX: Final = "index-"
FILE_INDEX_SUFFIX: Final = ".index"

_POSTPONE_DIRECTORY: Final = BUCKET_DIRECTORY_PREFIX + "postpone"


@dataclass(frozen=True)
class TablePaths:
    """The paths of the files of one table, for one branch. Immutable; can be pickled.

    Schemas, snapshots, changelogs, tags and consumers belong to a branch; everything else is below the root.

    location: the table's root, without a trailing slash.
    data_directory: option `data-file.path-directory`.
    """

    location: str
    branch: str = DEFAULT_BRANCH
    data_directory: str | None = None

    def for_branch(self, branch: str) -> TablePaths:
        return replace(self, branch=branch)

    @property
    def _branch_root(self) -> str:
        return self.location if self.branch == DEFAULT_BRANCH else self.branch_root(self.branch)

    # ------------------------------------------------------------ paths of a branch

    @property
    def schema_directory(self) -> str:
        return f"{self._branch_root}/schema"

    def schema(self, schema_id: int) -> str:
        return f"{self.schema_directory}/{SCHEMA_PREFIX}{schema_id}"

    @property
    def snapshot_directory(self) -> str:
        return f"{self._branch_root}/snapshot"

    def snapshot(self, snapshot_id: int) -> str:
        return f"{self.snapshot_directory}/{SNAPSHOT_PREFIX}{snapshot_id}"

    @property
    def latest_hint(self) -> str:
        return f"{self.snapshot_directory}/{LATEST_HINT}"

    @property
    def earliest_hint(self) -> str:
        return f"{self.snapshot_directory}/{EARLIEST_HINT}"

    @property
    def changelog_directory(self) -> str:
        return f"{self._branch_root}/changelog"

    def changelog(self, snapshot_id: int) -> str:
        return f"{self.changelog_directory}/{CHANGELOG_PREFIX}{snapshot_id}"

    @property
    def changelog_latest_hint(self) -> str:
        return f"{self.changelog_directory}/{LATEST_HINT}"

    @property
    def changelog_earliest_hint(self) -> str:
        return f"{self.changelog_directory}/{EARLIEST_HINT}"

    @property
    def tag_directory(self) -> str:
        return f"{self._branch_root}/tag"

    def tag(self, name: str) -> str:
        return f"{self.tag_directory}/{TAG_PREFIX}{name}"

    def tag_success_file(self, name: str) -> str:
        return f"{self.tag_directory}/tag-success-file/{name}_SUCCESS"

    @property
    def consumer_directory(self) -> str:
        return f"{self._branch_root}/consumer"

    def consumer(self, name: str) -> str:
        return f"{self.consumer_directory}/{CONSUMER_PREFIX}{name}"

    # ------------------------------------------------------------ paths of the whole table

    @property
    def branch_directory(self) -> str:
        """The directory of all branches except main."""
        return f"{self.location}/branch"

    def branch_root(self, name: str) -> str:
        """Return the directory of a branch other than main."""
        return f"{self.branch_directory}/{BRANCH_PREFIX}{name}"

    def branch_claim(self, name: str) -> str:
        """Return a file that exists while a branch is created. Java has no such file, and ignores it."""
        return f"{self.branch_root(name)}/{BRANCH_CLAIM}"

    @property
    def manifest_directory(self) -> str:
        return f"{self.location}/manifest"

    def manifest(self, name: str) -> str:
        """Return the path of a manifest, a manifest list or an index manifest."""
        return f"{self.manifest_directory}/{name}"

    @property
    def index_directory(self) -> str:
        return f"{self.location}/index"

    def index(self, name: str) -> str:
        return f"{self.index_directory}/{name}"

    @property
    def statistics_directory(self) -> str:
        return f"{self.location}/statistics"

    def statistics(self, name: str) -> str:
        return f"{self.statistics_directory}/{name}"

    @property
    def moved_rows_directory(self) -> str:
        """The directory for moved rows of pipelines. Paimon does not know it."""
        return f"{self.location}/moved-rows"

    @property
    def data_root(self) -> str:
        """The directory of the partition directories, or of the bucket directories of an unpartitioned table."""
        return f"{self.location}/{self.data_directory.strip('/')}" if self.data_directory else self.location

    def bucket_directory(self, partition_path: str, bucket: int) -> str:
        """partition_path: `k=v/k2=v2` from `partition_path`, or "" for an unpartitioned table."""
        parent = f"{self.data_root}/{partition_path}" if partition_path else self.data_root
        return f"{parent}/{bucket_name(bucket)}"


# ---------------------------------------------------------------- names with a number or a word


def parse_snapshot_id(name: str) -> int | None:
    """Return the number in `snapshot-12`; None for hint files, temporary files and other names."""
    return _number_after(SNAPSHOT_PREFIX, name)


def parse_schema_id(name: str) -> int | None:
    return _number_after(SCHEMA_PREFIX, name)


def parse_changelog_id(name: str) -> int | None:
    return _number_after(CHANGELOG_PREFIX, name)


def parse_tag_name(name: str) -> str | None:
    return _text_after(TAG_PREFIX, name)


def parse_branch_name(name: str) -> str | None:
    return _text_after(BRANCH_PREFIX, name)


def parse_consumer_name(name: str) -> str | None:
    return _text_after(CONSUMER_PREFIX, name)


def _text_after(prefix: str, name: str) -> str | None:
    return name[len(prefix) :] if name.startswith(prefix) and len(name) > len(prefix) else None


def _number_after(prefix: str, name: str) -> int | None:
    digits = _text_after(prefix, name)
    # Leading zeros are rejected: the file of "snapshot-007" would be opened as snapshot-7.
    return int(digits) if digits and re.fullmatch(r"0|[1-9][0-9]*", digits) else None


def check_branch_name(name: str) -> None:
    """Raise BadInput for names that Java refuses (main, blank, only digits), and for invalid directory names."""
    if name == DEFAULT_BRANCH:
        raise BadInput(f"{DEFAULT_BRANCH} is the table itself, not a branch of it; choose another name")
    if _is_blank(name) or name.isdecimal() or "/" in name:
        raise BadInput(f"branch name {name!r} is blank, a bare number or contains a slash; choose another name")
    check_file_name("branch name", name, affix=BRANCH_PREFIX)


def bucket_name(bucket: int) -> str:
    return _POSTPONE_DIRECTORY if bucket == POSTPONE_BUCKET else f"{BUCKET_DIRECTORY_PREFIX}{bucket}"


def parse_bucket(name: str) -> int | None:
    """Return the bucket of a directory name; None if it is no name of a bucket."""
    return POSTPONE_BUCKET if name == _POSTPONE_DIRECTORY else _number_after(BUCKET_DIRECTORY_PREFIX, name)


# ---------------------------------------------------------------- partition directories

_ESCAPED: Final = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^"))}
_ESCAPE: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_NOT_WHITESPACE_IN_JAVA: Final = "\u00a0\u2007\u202f"  # non-breaking spaces


def partition_path(names: Sequence[str], texts: Sequence[str | None], default_name: str) -> str:
    """Return `k=v/k2=v2`, escaped, without a trailing slash; "" without partition columns.

    texts: texts of the values, from `partition_text.partition_texts`. None, "" and blank texts all become default_name
        (`partition.default-name`). So a path does not determine the value: read it from the manifest.
    """
    return "/".join(
        partition_directory_name(name, default_name if text is None or _is_blank(text) else text)
        for name, text in zip(names, texts, strict=True)
    )


def partition_directory_name(name: str, text: str) -> str:
    """Return `k=v`, escaped."""
    return f"{escape_partition_text(name)}={escape_partition_text(text)}"


def parse_partition_path(path: str) -> dict[str, str]:
    """Return name -> text, both unescaped. Raises BadInput if a part of the path is not `name=text`."""
    parts = [part.partition("=") for part in path.split("/")] if path else []
    if any(not name or not equals for name, equals, _ in parts):
        raise BadInput(f"{path!r} is not a partition path such as 'dt=2024-05-14/hour=7'")
    return {unescape_partition_text(name): unescape_partition_text(text) for name, _, text in parts}


def escape_partition_text(text: str) -> str:
    """Return the text as it is written in directory names."""
    return text.translate(_ESCAPED)


def unescape_partition_text(text: str) -> str:
    return _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)


def _is_blank(text: str) -> bool:
    """Return whether Java's `Character.isWhitespace` holds for each character (Python's `isspace` differs in four)."""
    return all(
        character in "\t\n\v\f\r\x1c\x1d\x1e\x1f"
        or (unicodedata.category(character) in ("Zs", "Zl", "Zp") and character not in _NOT_WHITESPACE_IN_JAVA)
        for character in text
    )


# ---------------------------------------------------------------- file names

# Codecs whose extension differs from their name, and `none`, which has no extension (Java: HadoopCompressionType).
_COMPRESSION_EXTENSION: Final = {
    "none": "",
    "gzip": "gz",
    "bzip2": "bz2",
    "zstd": "zst",
}
_COMPRESSED_FILE_EXTENSIONS: Final = frozenset({"gz", "bz2", "deflate", "snappy", "lz4", "zst"})
_TEXT_FORMATS: Final = frozenset({"json", "csv"})


def file_extension(file_format: str, compression: str, include_compression: bool = False) -> str:
    """Return `.parquet`, or `.zst.parquet` with include_compression (option `file.suffix.include.compression`).

    compression: the codec as options name it. Text formats always have it as the last part: `.json.gz`.
    """
    codec = _COMPRESSION_EXTENSION.get(compression.lower(), compression)
    if codec and file_format.lower() in _TEXT_FORMATS:
        return f".{file_format}.{codec}"
    if codec and include_compression:
        return f".{codec}.{file_format}"
    return f".{file_format}"


def format_of(file_name: str) -> str:
    """Return the format in a data file's name. It is decisive, not the table's options.

    Raises BadInput if the name has no extension.
    """
    extensions = file_name.split(".")[1:]
    if extensions and extensions[-1].lower() in _COMPRESSED_FILE_EXTENSIONS:
        extensions.pop()
    if not extensions:
        raise BadInput(f"data file {file_name!r} has no extension that names its format")
    return extensions[-1]


def file_index_name(data_file_name: str) -> str:
    """Return the name of the index file next to a data file."""
    return data_file_name + FILE_INDEX_SUFFIX


def is_file_index_name(name: str) -> bool:
    return name.endswith(FILE_INDEX_SUFFIX)


def next_file_index_name(data_file_name: str, present: str) -> str:
    """Return the name of the index that replaces `present`: `….index`, then `…-1.index`, `…-2.index`."""
    stem = present.removesuffix(FILE_INDEX_SUFFIX).removeprefix(data_file_name)
    number = int(stem[1:]) if stem[:1] == "-" and stem[1:].isdecimal() else 0
    return f"{data_file_name}-{number + 1}{FILE_INDEX_SUFFIX}"


class DataFileNames:
    """Creates names for the data files, or the changelog files, of one writer: `data-<uuid>-0.parquet`, … Thread-safe.

    prefix: option `data-file.prefix` or `changelog-file.prefix`.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._numbers = itertools.count()

    @cached_property
    def _stem(self) -> str:
        """Computed on first use: most writers of a table with thousands of buckets never need it."""
        return f"{self._prefix}{env.new_uuid()}"

    def next(self, extension: str) -> str:
        """extension: from `file_extension`."""
        return f"{self._stem}-{next(self._numbers)}{extension}"


class MetadataFileNames:
    """Creates names for the files that one writer creates below `manifest/`. Thread-safe."""

    def __init__(self) -> None:
        self._uuid = env.new_uuid()
        self._numbers = itertools.count()

    def manifest(self) -> str:
        return self._next(MANIFEST_PREFIX)

    def manifest_list(self) -> str:
        return self._next(MANIFEST_LIST_PREFIX)

    def index_manifest(self) -> str:
        return self._next(INDEX_MANIFEST_PREFIX)

    def _next(self, prefix: str) -> str:
        return f"{prefix}{self._uuid}-{next(self._numbers)}"


class IndexFileNames:
    """Creates names for the index files of one writer. Thread-safe."""

    def __init__(self) -> None:
        self._uuid = env.new_uuid()
        self._numbers = itertools.count()

    def next(self) -> str:
        return f"{INDEX_PREFIX}{self._uuid}-{next(self._numbers)}"
