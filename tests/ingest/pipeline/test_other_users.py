"""A table has one position for all its drivers: pipelines and Spark queries on one table repeat and skip no record,
unless the user accepts it.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.pipeline.two_committers import P0, P1, DriverDied, DriverWorld, Query
from tests.support.faulty_file_io import Call, Fault, FaultyFileIO, ProcessDied
from tests.support.levels import examples
from tidelake.cli.exits import ExitCode, exit_code
from tidelake.errors import CommitConflict, PositionRefused, TidelakeError


@pytest.fixture
def world() -> DriverWorld:
    world = DriverWorld()
    world.append(0, 4)
    world.append(1, 2)
    return world


def test_a_pipeline_is_refused_after_a_spark_query_and_names_its_position(world: DriverWorld) -> None:
    world.spark(Query("q1"))
    with pytest.raises(PositionRefused) as refused:
        world.run("shop")
    assert exit_code(refused.value) is ExitCode.REFUSED
    assert (
        "shop.events: a Spark query, commit user 'spark-q1-shop.events' also writes to the table: according to its "
        "snapshot 1, it has read x.public.events-0 up to 3, this pipeline up to 0, x.public.events-1 up to 2, this "
        "pipeline up to 0. Those records would be duplicated"
    ) in refused.value.found
    assert set(world.offered(refused.value)) == {"--accept-gap", "--rewind-to", "--from-snapshot"}
    world.check()


@pytest.mark.parametrize("way", ["--accept-gap", "--from-snapshot"])
def test_the_commands_in_the_refusal_continue_without_gap_or_duplicates(world: DriverWorld, way: str) -> None:
    world.spark(Query("q1"))
    world.resume("shop", way)
    world.check_all_is_there()
    world.append(0, 2)
    world.run("shop")  # it is decided once
    world.check_all_is_there()


def test_the_third_command_rereads_as_announced(world: DriverWorld) -> None:
    world.spark(Query("q1"))
    assert world.resume("shop", "--rewind-to").rows == 6
    assert world.run("shop").records == 0


@pytest.mark.parametrize("way", ["--accept-gap", "--from-snapshot"])
def test_a_pipeline_is_refused_after_a_query_continued_its_table(world: DriverWorld, way: str) -> None:
    world.run("shop")
    query = Query("q1")
    world.start_at_the_table(query)
    world.append(0, 3)
    world.spark(query)
    with pytest.raises(PositionRefused, match=r"it has read x\.public\.events-0 up to 7, this pipeline up to 4"):
        world.run("shop")
    world.append(1)
    world.resume("shop", way)
    world.check_all_is_there()


def test_a_spark_query_is_refused_after_a_pipeline(world: DriverWorld) -> None:
    world.run("shop")
    with pytest.raises(PositionRefused, match="already has the records up to 4") as refused:
        world.spark(Query("q1"))
    assert exit_code(refused.value) is ExitCode.REFUSED
    assert "`tidelake ingest run`" in str(refused.value)
    world.append(0, 2)
    query = Query("q2")
    world.start_at_the_table(query)
    world.spark(query)
    world.check_all_is_there()


def test_a_query_is_refused_after_a_pipeline_continued_its_table(world: DriverWorld) -> None:
    query = Query("q1")
    world.spark(query)
    world.resume("shop")
    with pytest.raises(PositionRefused, match="already"):
        world.spark(query)
    world.check_all_is_there()


def test_a_renamed_pipeline_does_not_reread_everything(world: DriverWorld) -> None:
    world.run("shop")
    with pytest.raises(PositionRefused, match="pipeline 'shop' also writes to the table"):
        world.run("store")
    world.append(1, 2)
    world.resume("store", "--from-snapshot")
    world.check_all_is_there()
    with pytest.raises(PositionRefused, match="pipeline 'store' also writes to the table"):
        world.run("shop")


def test_pipelines_configured_to_share_a_table_are_accepted(world: DriverWorld) -> None:
    world.run("shop")
    assert world.run("store", shared_with=["shop"]).rows == 6


@pytest.mark.parametrize("is_shop_first", [True, False])
def test_a_query_with_the_pipelines_name_is_checked_like_any_other(world: DriverWorld, is_shop_first: bool) -> None:
    query = Query("q1", commit_user="shop")
    if is_shop_first:
        world.run("shop")
        with pytest.raises(PositionRefused):
            world.spark(query)
    else:
        world.spark(query)
        world.run("shop")  # the position is the one of its own name
        with pytest.raises(PositionRefused, match="not a Spark batch"):
            world.spark(query)
    world.check_all_is_there()


def test_a_query_commit_during_a_pipeline_run_stops_it_before_duplicates(world: DriverWorld) -> None:
    io, query = FaultyFileIO(world.store), Query("q1")

    def before_the_second_snapshot(call: Call) -> Fault | None:
        if call.name == "create_if_absent" and call.file_name == "snapshot-2" and not query.batches:
            world.spark(query)
        return None

    io.fault = before_the_second_snapshot
    with pytest.raises(PositionRefused, match="also writes to the table"):
        world.run("shop", io=io)
    assert query.batches == 1
    world.check()
    world.resume("shop")
    world.check_all_is_there()


def test_a_pipeline_commit_during_a_batch_stops_the_batch(world: DriverWorld) -> None:
    query = Query("q1")
    with pytest.raises(CommitConflict, match="moved the table's position"):
        world.spark(query, before_publish=lambda: world.run("shop"))
    with pytest.raises(PositionRefused):
        world.spark(query)
    world.check_all_is_there()


def test_positions_of_all_other_users_are_checked(world: DriverWorld) -> None:
    """The newest snapshot is of another pipeline and has no position of this topic. The snapshot of the query before it
    has one.
    """
    world.spark(Query("q1"))
    world.append(0)
    world.resume("shop")
    assert world.ends == {P0: 5, P1: 2}
    with pytest.raises(PositionRefused, match="already"):
        world.spark(Query("q2"))
    second = Query("q3", read={P0: 5, P1: 2})
    world.append(1)
    world.spark(second)
    world.check_all_is_there()
    assert world.ends == {P0: 5, P1: 3}


# ---------------------------------------------------------------- random histories

WAYS = st.sampled_from(["--accept-gap", "--from-snapshot", None, None])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1), st.integers(1, 4)),
        # name, command if it is refused, call at which the process dies
        st.tuples(st.just("run"), st.sampled_from(["shop", "store"]), WAYS, st.none() | st.integers(0, 80)),
        # query, whether its driver dies after the commit
        st.tuples(st.just("spark"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("start at the table"), st.integers(0, 2)),
        # a pipeline runs, and a query commits before its n-th snapshot
        st.tuples(st.just("both"), st.sampled_from(["shop", "store"]), st.integers(0, 2), st.integers(0, 3)),
    ),
    min_size=4,
    max_size=9,
)


def _histories(steps: list[tuple[object, ...]]) -> None:
    world = DriverWorld()
    world.append(0, 3)
    world.append(1, 2)
    generation = 0
    queries = [Query("q0"), Query("q1"), Query("q2", commit_user="shop")]
    for step in steps:
        match step:
            case ("append", int(partition), int(count)):
                world.append(partition, count)
            case ("run", str(name), way, dies_at):
                io = FaultyFileIO(world.store)
                if isinstance(dies_at, int):
                    io.crash_call(dies_at, Fault.AFTER if dies_at % 2 else Fault.BEFORE)
                try:
                    world.run(name, io=io)
                except PositionRefused as refusal:
                    if way is not None:
                        with suppress(TidelakeError):
                            world.run(name, world.offered(refusal)[str(way)])
                except (TidelakeError, OSError, BaseExceptionGroup, ProcessDied):
                    pass
            case ("spark", int(number), bool(dies)):
                with suppress(TidelakeError, DriverDied):
                    world.spark(queries[number], dies=dies)
            case ("start at the table", int(number)):
                generation += 1
                user = queries[number].commit_user and f"shop{generation}"
                queries[number] = Query(f"q{number}.{generation}", commit_user=user)
                world.start_at_the_table(queries[number])
            case ("both", str(name), int(number), int(at)):
                _run_both(world, name, queries[number], at)
        world.check()
    world.resume("shop")
    world.check_all_is_there()


def _run_both(world: DriverWorld, name: str, query: Query, at: int) -> None:
    io, left = FaultyFileIO(world.store), [at]

    def decide(call: Call) -> Fault | None:
        if call.name == "create_if_absent" and call.file_name.startswith("snapshot-"):
            left[0] -= 1
            if left[0] == -1:
                with suppress(TidelakeError):
                    world.spark(query)
        return None

    io.fault = decide
    with suppress(TidelakeError, ExceptionGroup):
        world.run(name, io=io)


@given(STEPS)
@settings(max_examples=examples(40), deadline=None)
def test_each_record_is_written_once_with_alternating_drivers(steps: list[tuple[object, ...]]) -> None:
    _histories(steps)


@pytest.mark.long
@pytest.mark.timeout(1800)
@given(STEPS)
@settings(max_examples=1_500, deadline=None)
def test_each_record_is_written_once_with_alternating_drivers_in_many_histories(
    steps: list[tuple[object, ...]],
) -> None:
    _histories(steps)
