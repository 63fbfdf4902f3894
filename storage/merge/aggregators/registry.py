"""Creates the aggregate function of a column."""

from __future__ import annotations

from tidelake.storage.merge.aggregate_functions import AggregateFunction, ColumnAggregation
from tidelake.storage.merge.aggregators.base import Aggregator, IgnoreRetract, RowByRow, WithoutRetract
from tidelake.storage.merge.aggregators.collect import Collect
from tidelake.storage.merge.aggregators.first_last import (
    FirstNonNullValue,
    FirstValue,
    LastNonNullValue,
    LastValue,
    PrimaryKey,
)
from tidelake.storage.merge.aggregators.listagg import ListAgg
from tidelake.storage.merge.aggregators.merge_map import MergeMap, MergeMapWithKeyTime
from tidelake.storage.merge.aggregators.min_max import MinMaxAggregator
from tidelake.storage.merge.aggregators.nested_update import NestedPartialUpdate, NestedUpdate
from tidelake.storage.merge.aggregators.product import Product
from tidelake.storage.merge.aggregators.sketches import SketchUnion, UnionAggregator
from tidelake.storage.merge.aggregators.sum import Sum
from tidelake.storage.merge.values.roaring32 import RoaringUnion32
from tidelake.storage.merge.values.roaring64 import RoaringUnion64

_RETRACTABLE = frozenset(
    {
        AggregateFunction.SUM,
        AggregateFunction.PRODUCT,
        AggregateFunction.LAST_VALUE,
        AggregateFunction.LAST_NON_NULL_VALUE,
        AggregateFunction.COLLECT,
        AggregateFunction.MERGE_MAP,
        AggregateFunction.NESTED_UPDATE,
        AggregateFunction.PRIMARY_KEY,
    }
)


def aggregator_of(aggregation: ColumnAggregation) -> Aggregator:
    """Returns the aggregate function for a column."""
    function = _without_wrappers(aggregation)
    if aggregation.ignore_retract:
        return IgnoreRetract(function)
    return function if aggregation.function in _RETRACTABLE else WithoutRetract(function, aggregation)


def _without_wrappers(aggregation: ColumnAggregation) -> Aggregator:
    match aggregation.function:
        case AggregateFunction.SUM:
            return Sum(aggregation)
        case AggregateFunction.PRODUCT:
            return Product(aggregation)
        case AggregateFunction.MAX | AggregateFunction.BOOL_OR:
            return MinMaxAggregator(greatest=True)
        case AggregateFunction.MIN | AggregateFunction.BOOL_AND:
            return MinMaxAggregator(greatest=False)
        case AggregateFunction.LAST_VALUE:
            return LastValue()
        case AggregateFunction.LAST_NON_NULL_VALUE:
            return LastNonNullValue()
        case AggregateFunction.FIRST_VALUE:
            return FirstValue()
        case AggregateFunction.FIRST_NON_NULL_VALUE:
            return FirstNonNullValue()
        case AggregateFunction.LISTAGG:
            return RowByRow(ListAgg(aggregation))
        case AggregateFunction.COLLECT:
            return RowByRow(Collect(aggregation))
        case AggregateFunction.MERGE_MAP:
            return RowByRow(MergeMap())
        case AggregateFunction.MERGE_MAP_WITH_KEYTIME:
            return RowByRow(MergeMapWithKeyTime(aggregation))
        case AggregateFunction.NESTED_UPDATE:
            return RowByRow(NestedUpdate(aggregation))
        case AggregateFunction.NESTED_PARTIAL_UPDATE:
            return RowByRow(NestedPartialUpdate(aggregation))
        case AggregateFunction.THETA_SKETCH:
            return RowByRow(UnionAggregator(aggregation, SketchUnion.of_theta))
        case AggregateFunction.HLL_SKETCH:
            return RowByRow(UnionAggregator(aggregation, SketchUnion.of_hll))
        case AggregateFunction.RBM32:
            return RowByRow(UnionAggregator(aggregation, RoaringUnion32.of))
        case AggregateFunction.RBM64:
            return RowByRow(UnionAggregator(aggregation, RoaringUnion64.of))
        case AggregateFunction.PRIMARY_KEY:
            return PrimaryKey()
