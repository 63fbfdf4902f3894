"""How the rows of one key become one: a module for each merge engine."""

from storage.merge.merge_functions.base import MergeFunction
from storage.merge.merge_functions.deduplicate import Deduplicate

__all__ = ["Deduplicate", "MergeFunction"]
