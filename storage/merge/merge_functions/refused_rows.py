"""Deletes that a merge engine can't take are refused when they are written.

Java lets them in, and a lone one of its key even into a file; from the next row of the key on, nobody can merge or read
the bucket any more.

Source: Java `mergetree/compact/*MergeFunction.java`; merge-engines notes 1.1 and 7.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from storage.errors import BadInput
from storage.format import RowKind
from storage.merge.aggregators.base import WithoutRetract
from storage.merge.merge_functions.aggregation import Aggregation
from storage.merge.merge_functions.base import MergeFunction, is_retract
from storage.merge.merge_functions.first_row import NO_RETRACTS as NOT_IN_FIRST_ROW
from storage.merge.merge_functions.first_row import FirstRow
from storage.merge.merge_functions.newest_levels import NewestLevels
from storage.merge.merge_functions.partial_update import NO_RETRACTS as NOT_IN_PARTIAL_UPDATE
from storage.merge.merge_functions.partial_update import PartialUpdate


def check_kinds(function: MergeFunction, kinds: NDArray[np.int8], table_name: str) -> None:
    """kinds (n,): of rows about to be written. Raises BadInput for those that no merge will take, naming the remedy."""
    retracts = kinds[is_retract(kinds)]
    if not len(retracts):
        return
    match function.engine if isinstance(function, NewestLevels) else function:
        case FirstRow(ignore_delete=False):
            raise BadInput(f"{table_name}: {NOT_IN_FIRST_ROW}")
        case PartialUpdate(options=options) if not options.takes_deletes:
            raise BadInput(f"{table_name}: {NOT_IN_PARTIAL_UPDATE}")
        case Aggregation(columns=columns, remove_on_delete=removes):
            taken_back = retracts[retracts != RowKind.DELETE] if removes else retracts
            for name, (aggregation, aggregator) in columns.items():
                if len(taken_back) and isinstance(aggregator, WithoutRetract):
                    raise BadInput(
                        f"{table_name}: row kind {RowKind(int(taken_back[0])).symbol} takes values back, which "
                        f"aggregate function {aggregation.function} of column {name!r} can't. Set one of the options "
                        f"'fields.{name}.ignore-retract' = 'true', 'aggregation.remove-record-on-delete' = 'true' (-D "
                        "removes the record), 'ignore-delete' = 'true' (-D and -U are dropped)"
                    )
        case _:
            pass
