"""The costs of a driver come from its real steps, and the computed costs are proportional to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.spark_costs import (
    CAPABILITIES,
    COMMIT,
    PLAN,
    UNPACK,
    Costs,
    Shape,
    chunks_of,
    computed,
    measured,
    tables,
)

SHAPE = Shape(buckets=6, map_tasks=2, write_tasks=2, levels=2)


def test_every_step_of_the_driver_is_measured_and_reported() -> None:
    costs = measured(SHAPE)
    assert costs.cpu_s.keys() == {CAPABILITIES, PLAN, UNPACK, COMMIT}
    assert min(costs.facts_bytes, costs.plan_bytes, costs.message_bytes, costs.metadata_bytes) > 0
    assert len(list(tables(costs, costs))) > len(costs.cpu_s)


def test_the_cost_of_a_larger_batch_is_extrapolated_per_step() -> None:
    small = Costs(SHAPE, {CAPABILITIES: 1.0, PLAN: 1.0, UNPACK: 1.0, COMMIT: 1.0}, 100, 100, 100, 1, 100)
    large = computed(small, replace(SHAPE, buckets=12, map_tasks=6))
    assert large.cpu_s == pytest.approx({CAPABILITIES: 6.0, PLAN: 2.0, UNPACK: 2.0, COMMIT: 2.0})
    assert (large.facts_bytes, large.plan_bytes, large.message_bytes, large.metadata_bytes) == (600, 200, 200, 200)


def test_a_map_task_makes_one_chunk_per_shuffle_partition_and_16_mib() -> None:
    shape = Shape(buckets=10, map_tasks=4, write_tasks=4)
    assert chunks_of(shape, 4 << 20) == (40, (4 << 20) // 40)
    assert chunks_of(shape, 4 * (17 << 20))[0] == 80
