"""Which function folds a column."""

from __future__ import annotations

from storage.aggregate_functions import AggregateFunction, ColumnAggregation
from storage.merge.aggregators.base import Aggregator, IgnoringRetracts, RowByRow, WithoutRetract
from storage.merge.aggregators.bitmaps import UnitedBitmap32
from storage.merge.aggregators.bitmaps_64 import UnitedBitmap64
from storage.merge.aggregators.collect import Collect
from storage.merge.aggregators.extremes import Extreme
from storage.merge.aggregators.maps import MergeMap, MergeMapWithKeyTime
from storage.merge.aggregators.nested_rows import NestedPartialUpdate, NestedUpdate
from storage.merge.aggregators.picks import FirstNonNullValue, FirstValue, LastNonNullValue, LastValue, PrimaryKey
from storage.merge.aggregators.products import Product
from storage.merge.aggregators.sketches import UnitedSketch
from storage.merge.aggregators.sums import Sum
from storage.merge.aggregators.texts import ListAgg
from storage.merge.aggregators.unions import Union

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
    """The function for a column."""
    function = _bare(aggregation)
    if aggregation.ignore_retract:
        return IgnoringRetracts(function)
    return function if aggregation.function in _RETRACTABLE else WithoutRetract(function, aggregation)


def _bare(aggregation: ColumnAggregation) -> Aggregator:
    match aggregation.function:
        case AggregateFunction.SUM:
            return Sum(aggregation)
        case AggregateFunction.PRODUCT:
            return Product(aggregation)
        case AggregateFunction.MAX | AggregateFunction.BOOL_OR:
            return Extreme(greatest=True)
        case AggregateFunction.MIN | AggregateFunction.BOOL_AND:
            return Extreme(greatest=False)
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
            return RowByRow(Union(aggregation, UnitedSketch.of_theta))
        case AggregateFunction.HLL_SKETCH:
            return RowByRow(Union(aggregation, UnitedSketch.of_hll))
        case AggregateFunction.RBM32:
            return RowByRow(Union(aggregation, UnitedBitmap32.of))
        case AggregateFunction.RBM64:
            return RowByRow(Union(aggregation, UnitedBitmap64.of))
        case AggregateFunction.PRIMARY_KEY:
            return PrimaryKey()
