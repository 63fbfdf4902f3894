"""Options of `format("tidelake-changelog-folder")`.

path                  the folder, as every executor sees it
headers               names of record headers for column `headers`, separated by commas
startingOffsets       {"topic": {"0": 23}}: records of a partition before its offset are left out
maxFilesPerTrigger    the number of files of which a batch of a stream reads a part
maxBytesPerTrigger    the bytes of a batch, as stored in the folder; a line or a compressed file is read as a whole
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput
from tidelake.spark.changelog_folder.folder_files import FolderBatchLimits
from tidelake.spark.option_values import split_names, value_of, whole_number
from tidelake.storage.model.messages import did_you_mean

FORMAT: Final = "tidelake-changelog-folder"
_NAMES: Final = ("path", "headers", "startingOffsets", "maxFilesPerTrigger", "maxBytesPerTrigger")


@dataclass(frozen=True, slots=True)
class FolderReadOptions:
    folder: Path
    kept_headers: frozenset[str]
    starts: Mapping[TopicPartition, int]
    limits: FolderBatchLimits

    @classmethod
    def of(cls, options: Mapping[str, str]) -> FolderReadOptions:
        """Parse options.

        options: the case of names is ignored

        Raises BadInput.
        """
        given = {name.lower(): text for name, text in options.items()}
        known = {name.lower(): name for name in _NAMES}
        for name in given:
            if name not in known:
                hint = did_you_mean(name, _NAMES) or f"; the options are {', '.join(_NAMES)}"
                raise BadInput(f"{FORMAT} has no option {name}{hint}")
        if not given.get("path"):
            raise BadInput(f"{FORMAT} needs the option path, or load(path): a folder of change logs")
        numbers = {known[name]: text for name, text in given.items()}
        names = split_names(given.get("headers", ""))
        limits = FolderBatchLimits(
            value_of(numbers, "maxFilesPerTrigger", whole_number, None),
            value_of(numbers, "maxBytesPerTrigger", whole_number, None),
        )
        starts = value_of(numbers, "startingOffsets", _offsets, {})
        return cls(_folder(given["path"]), names, starts, limits)


def _offsets(text: str) -> dict[TopicPartition, int]:
    try:
        members = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.MsgspecError:
        raise ValueError('expected JSON such as {"topic": {"0": 23}}') from None
    return {TopicPartition(topic, number): at for topic, ends in members.items() for number, at in ends.items()}


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme not in ("", "file"):
        raise BadInput(f"{FORMAT} reads folders of a file system, not {text}. Mount the folder on every executor")
    return Path(unquote(parts.path) if parts.scheme else text).absolute()
