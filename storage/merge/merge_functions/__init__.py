"""Merge functions, which merge the rows of one key into one row: a module for each merge engine."""

from tidelake.storage.merge.merge_functions.deduplicate import Deduplicate
from tidelake.storage.merge.merge_functions.factory import merge_engine_of, merge_function_of
from tidelake.storage.merge.merge_functions.merge_function import MergeFunction
from tidelake.storage.merge.merge_functions.row_checks import check_no_nulls, check_remaining_retracts, check_row_kinds

__all__ = [
    "Deduplicate",
    "MergeFunction",
    "check_no_nulls",
    "check_remaining_retracts",
    "check_row_kinds",
    "merge_engine_of",
    "merge_function_of",
]
