"""The order of the files of a postpone bucket, whose rows are not sorted and have no sequence numbers.

Source: Java `flink/postpone/PostponeBucketCompactSplitSource.java`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tidelake.storage.files.data_file import DataFileMeta

_NUMBER: Final = re.compile(r"-(\d+)\.[^-]*$")


def in_order_of_writing(files: Iterable[DataFileMeta]) -> list[DataFileMeta]:
    """Sort files by time.

    Files of the same time are sorted by their number within their writer, then keep their order.
    """

    def order(file: DataFileMeta) -> tuple[int, int]:
        number = _NUMBER.search(file.file_name)
        return file.creation_time_ms or 0, int(number[1]) if number else 0

    return sorted(files, key=order)
