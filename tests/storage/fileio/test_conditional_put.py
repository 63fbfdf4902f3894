"""The answers of create_if_absent when the store or the network fails."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.support.scripted_s3 import OTHERS_DATA, Fault, scripted_s3
from tidelake.errors import UnsupportedFeature
from tidelake.storage.fileio import object_store, open_file_io, stores

PATH = "s3://bucket/t/snapshot/snapshot-7"
KEY = "t/snapshot/snapshot-7"
MINE = b"mine"


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backoff = {"init_backoff": timedelta(microseconds=1), "max_backoff": timedelta(microseconds=2), "base": 2}
    monkeypatch.setattr(stores, "RETRY", {"max_retries": 3, "backoff": backoff})


@dataclass(frozen=True)
class Case:
    id: str
    faults: tuple[Fault, ...]
    created: bool
    holds: bytes = MINE


CASES = [
    Case("healthy", (), created=True),
    Case("landed, and reported as a server error", (Fault.LANDS_AND_500,), created=True),
    Case("landed, and the answer got lost", (Fault.LANDS_AND_CUT,), created=True),
    Case("refused as busy, then done", (Fault.BUSY, Fault.BUSY), created=True),
    Case("conflict with a put that came to nothing", (Fault.CONFLICT,), created=True),
    Case("busy, then landed and reported as an error", (Fault.BUSY, Fault.LANDS_AND_500), created=True),
    Case("lost during a server error", (Fault.LOST_TO_OTHER,), created=False, holds=OTHERS_DATA),
    Case("conflict, then lost", (Fault.CONFLICT, Fault.LOST_TO_OTHER), created=False, holds=OTHERS_DATA),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_conditional_put_reports_whose_object_exists(case: Case) -> None:
    with scripted_s3() as server:
        server.faults.extend(case.faults)
        assert open_file_io(PATH, server.options).create_if_absent(PATH, MINE) is case.created
        assert server.objects[KEY][0] == case.holds
        assert not server.faults


def test_equal_bytes_of_another_writer_are_not_ours() -> None:
    with scripted_s3() as server:
        server.objects[KEY] = (MINE, {})
        assert not open_file_io(PATH, server.options).create_if_absent(PATH, MINE)


@pytest.mark.parametrize(
    ("faults", "landed"),
    [
        pytest.param([Fault.BUSY] * 30, False, id="busy for longer than we ask"),
        pytest.param(
            [Fault.LANDS_AND_500, *[Fault.BUSY] * 30], True, id="landed, and then busy for longer than we ask"
        ),
        pytest.param([Fault.CONFLICT] * 30, False, id="conflict without end"),
    ],
)
def test_an_unknown_outcome_is_an_os_error_that_names_the_path(faults: list[Fault], landed: bool) -> None:
    with scripted_s3() as server:
        server.faults.extend(faults)
        with pytest.raises(OSError, match=PATH):
            open_file_io(PATH, server.options).create_if_absent(PATH, MINE)
        assert (KEY in server.objects) is landed


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        pytest.param("ignores_conditions", "it replaces an object", id="ignores the condition"),
        pytest.param("lacks_conditions", "cannot create an object only if absent", id="says 501"),
        pytest.param("drops_metadata", "drops the metadata", id="drops metadata"),
    ],
)
def test_a_store_without_conditional_put_is_refused_before_anything_is_published(flag: str, reason: str) -> None:
    with scripted_s3(**{flag: True}) as server:
        io = open_file_io(PATH, server.options)
        for _ in range(2):
            with pytest.raises(UnsupportedFeature, match=reason):
                io.create_if_absent(PATH, MINE)
        assert server.objects == {}


def test_a_store_is_probed_once_and_the_probe_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(object_store, "_CHECKED_STORES", set())
    caplog.set_level(logging.INFO)
    with scripted_s3() as server:
        with ThreadPoolExecutor(3) as threads:  # several writers of one process begin at once
            io = [open_file_io(PATH, server.options) for _ in range(3)]
            assert all(threads.map(lambda n: io[n].create_if_absent(f"{PATH}{n}", MINE), range(3)))
        assert caplog.messages == ["tried: the store creates an object only if absent store='s3://bucket'"]
        puts = [request for request in server.requests if request.startswith("PUT")]
        assert [put.endswith(".tmp") for put in puts] == [True, True, False, False, False]
        assert set(server.objects) == {f"{KEY}0", f"{KEY}1", f"{KEY}2"}


def test_a_reader_does_not_probe_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_CHECKED_STORES", set())
    with scripted_s3() as server:
        server.objects[KEY] = (MINE, {})
        io = open_file_io(PATH, server.options)
        assert io.exists(PATH)
        assert io.read(PATH) == MINE
        assert not [request for request in server.requests if not request.startswith(("GET", "HEAD"))]
