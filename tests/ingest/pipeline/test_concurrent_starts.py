"""A start beside another start of the same pipeline is never told that the table was rolled back."""

from __future__ import annotations

from tests.crash.pipeline_life import ORDERS, PIPELINE, PipelineWorld
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.errors import RecoveryOutdated, WriterFenced
from tidelake.ingest.tables.table_history import consumer_name


def test_a_process_that_registers_between_two_looks_of_a_start_is_no_rollback() -> None:
    world = PipelineWorld()
    slow = FaultyFileIO(world.store)

    def other_process_runs(call: Call) -> Fault | None:
        """Let a whole run of the pipeline happen just before a file of the pipeline's own position is read."""
        if call.name == "read" and call.file_name == f"consumer-{consumer_name(PIPELINE)}":
            slow.fault = lambda _: None
            world.run(FaultyFileIO(world.store))
        return None

    slow.fault = other_process_runs
    try:
        world.run(slow)
    except (RecoveryOutdated, WriterFenced):
        world.run(FaultyFileIO(world.store))
    assert world.look(deep=False)[ORDERS].rows == world.truth[ORDERS]
