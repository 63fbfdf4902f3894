"""How the rows of one key become one: a module for each merge engine."""

from storage.merge.merge_functions.base import MergeFunction
from storage.merge.merge_functions.deduplicate import Deduplicate
from storage.merge.merge_functions.of_table import merge_function_of
from storage.merge.merge_functions.refused_rows import check_kinds, check_left_over, check_no_nulls

__all__ = ["Deduplicate", "MergeFunction", "check_kinds", "check_left_over", "check_no_nulls", "merge_function_of"]
