"""Aggregate functions: reduce the values of one column to one value for each group of rows with equal keys."""

from tidelake.storage.merge.aggregators.base import Aggregator, Step, Steps
from tidelake.storage.merge.aggregators.registry import aggregator_of

__all__ = ["Aggregator", "Step", "Steps", "aggregator_of"]
