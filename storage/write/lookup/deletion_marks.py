"""Marks rows of higher levels in deletion vectors, if a compaction's lookups find newer rows of their keys.

A row that is in the deletion vector already does not count as found, because the lookup file may be older than the
delete. (Java does not check this, so that a deleted row may come back.)

Source: Java `mergetree/compact/LookupChangelogMergeFunctionWrapper.java` (`notifyNewDeletion`),
`mergetree/lookup/PersistPositionProcessor.java`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile
from tidelake.storage.write.deletion_vector_maintainer import DeletionVectorMaintainer, IndexChange


class DeletionMarks:
    """The deletion marks of one compaction.

    maintainer: the deletion vectors of the bucket at the start of the compaction.
    """

    def __init__(self, maintainer: DeletionVectorMaintainer) -> None:
        self._maintainer = maintainer
        self._deleted: dict[str, NDArray[np.int64]] = {}
        self._marked: dict[str, list[NDArray[np.int64]]] = defaultdict(list)

    @property
    def deletion_files(self) -> Mapping[str, DeletionFile]:
        """Data file -> its deletion vector before the compaction."""
        return self._maintainer.deletion_files

    def mark(self, data_file: str, positions: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Mark rows as deleted, because newer rows of their keys are written to a lower level.

        positions (n,): the positions of the rows in the data file.

        Returns (n,): which rows were not deleted before.
        """
        if data_file not in self._deleted:
            found = self._maintainer.positions(data_file)
            self._deleted[data_file] = np.zeros(0, np.int64) if found is None else found
        is_live: NDArray[np.bool_] = ~np.isin(positions, self._deleted[data_file])
        if is_live.any():
            self._marked[data_file].append(positions[is_live].astype(np.int64))
        return is_live

    def write(self, rewritten: Iterable[str]) -> IndexChange | None:
        """Write the bucket's vectors after the compaction. Returns None if they don't change.

        After an exception no new file remains.

        rewritten: the data files that the compaction removes. Their vectors are removed, too.
        """
        for data_file in rewritten:
            self._maintainer.remove(data_file)
        for data_file, parts in self._marked.items():
            self._maintainer.delete(data_file, np.concatenate(parts))
        return self._maintainer.write()
