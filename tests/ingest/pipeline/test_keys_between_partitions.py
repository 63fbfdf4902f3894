"""Pipelines into tables whose primary key leaves out a partition column: rows move between partitions."""

from __future__ import annotations

import asyncio

from tests.ingest.pipeline.test_lower_case import SpellingWorld


async def test_a_row_whose_partition_column_changes_leaves_its_old_partition_over_restarts() -> None:
    world = SpellingWorld("{name: ods.orders, match: orders, partition_by: [day], options: {bucket: -1}}")
    world.add("orders", {"id": 1, "day": "mon"}, key="id")
    world.add("orders", {"id": 2, "day": "mon"}, key="id")
    await world.run()
    world.add("orders", {"id": 1, "day": "tue"}, "u", key="id")
    world.add("orders", {"id": 2, "day": "mon"}, "d", key="id")
    world.add("orders", {"id": 3, "day": "tue"}, key="id")
    await world.run()
    world.add("orders", {"id": 3, "day": "mon"}, "u", key="id")
    await world.run()
    assert await asyncio.to_thread(world.rows, "orders") == [{"id": "1", "day": "tue"}, {"id": "3", "day": "mon"}]
