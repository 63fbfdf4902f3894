"""Reads, writes and deletes when the store or the network has problems: throttling, truncated answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from random import Random

import pytest
from obstore.exceptions import GenericError

from tests.support.s3_server import S3Server
from tests.support.scripted_s3 import Reading, ScriptedS3, scripted_s3
from tests.support.unreliable_s3 import Mishap, UnreliableS3
from tidelake.storage.base import env
from tidelake.storage.fileio import FileIO, open_file_io, store_errors, stores

PATH = "s3://bucket/t/manifest/manifest-1"
KEY = "t/manifest/manifest-1"
DATA = Random(7).randbytes(200_000)


@pytest.fixture(autouse=True)
def retries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backoff = {"init_backoff": timedelta(microseconds=1), "max_backoff": timedelta(microseconds=2), "base": 2}
    monkeypatch.setattr(stores, "RETRY", {"max_retries": 4, "backoff": backoff})


def file_of(server: ScriptedS3) -> FileIO:
    server.objects[KEY] = (DATA, {})
    return open_file_io(PATH, server.options)


@pytest.mark.parametrize(
    "readings",
    [
        pytest.param([Reading.BUSY, Reading.BUSY], id="throttled"),
        pytest.param([Reading.CUT], id="half of it came"),
        pytest.param([Reading.CUT, Reading.CUT, Reading.CUT], id="half of it came, of the rest half, and so on"),
        pytest.param([Reading.CUT, Reading.BUSY, Reading.CUT], id="half of it came, then throttled"),
    ],
)
def test_a_read_continues_until_it_is_complete(readings: list[Reading]) -> None:
    with scripted_s3() as server:
        io = file_of(server)
        server.readings.extend(readings)
        assert io.read(PATH) == DATA
        assert not server.readings


@pytest.mark.parametrize("reading", [Reading.CUT, Reading.BUSY], ids=lambda reading: reading.name.lower())
def test_an_incomplete_read_raises_and_is_never_short(reading: Reading) -> None:
    with scripted_s3() as server:
        io = file_of(server)
        server.readings.extend([reading] * 100)
        with pytest.raises(OSError, match=PATH):
            io.read(PATH)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda io: io.read(PATH), id="read"),
        pytest.param(lambda io: io.open_input(PATH), id="open"),
        pytest.param(lambda io: io.open_input(f"{PATH}.index"), id="open an index"),
    ],
)
def test_an_answer_about_a_missing_file_that_broke_off_is_asked_for_again(call: Callable[[FileIO], object]) -> None:
    with scripted_s3() as server:
        server.readings.extend([Reading.CUT, Reading.CUT])
        with pytest.raises(FileNotFoundError):
            call(open_file_io(PATH, server.options))
        assert not server.readings


def test_expired_credentials_raise_a_specific_error() -> None:
    with scripted_s3() as server:
        io = file_of(server)
        server.readings.extend([Reading.EXPIRED] * 100)
        with pytest.raises(PermissionError, match="the credentials have expired; renew them and start again") as caught:
            io.read(PATH)
        assert caught.value.filename == PATH
        assert len(server.requests) == 1, "asking again with the same credentials is of no use"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda io: io.write(PATH, b"1"), id="write"),
        pytest.param(lambda io: io.create_if_absent(f"{PATH}-new", b"1"), id="create"),
        pytest.param(lambda io: io.delete(PATH), id="delete"),
        pytest.param(lambda io: io.size_bytes(PATH), id="head"),
    ],
)
def test_throttled_requests_are_retried(call: Callable[[FileIO], object]) -> None:
    with scripted_s3() as server:
        io = file_of(server)
        server.busy = 3
        call(io)
        assert server.busy < 0


@pytest.mark.parametrize(
    ("reported", "asked"),
    [
        pytest.param(
            "HTTP error: request or response body error", 4, id="it broke off: asked for again, up to a limit"
        ),
        pytest.param("503 Service Unavailable, after 8 retries", 1, id="obstore asked often enough itself"),
    ],
)
def test_the_right_errors_are_retried(monkeypatch: pytest.MonkeyPatch, reported: str, asked: int) -> None:
    waits: list[float] = []
    monkeypatch.setattr(env, "sleep", waits.append)

    def fail() -> None:
        waits.append(-1)
        raise GenericError(reported)

    with pytest.raises(GenericError):
        store_errors.retry_incomplete(fail)
    assert waits.count(-1) == asked
    assert len(set(waits)) == asked, "never the same wait twice: there is chance in it"


def test_a_complete_response_ends_the_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(env, "sleep", lambda _: None)
    answers: Iterator[GenericError | str] = iter([GenericError("body error"), "listed", "again"])

    def ask() -> str:
        answer = next(answers)
        if isinstance(answer, GenericError):
            raise answer
        return answer

    assert store_errors.retry_incomplete(ask) == "listed"
    assert next(answers) == "again"


# ---------------------------------------------------------------- all at once


def test_over_an_unreliable_network_every_call_succeeds_correctly_or_fails(
    s3_server: S3Server, unreliable_s3: UnreliableS3
) -> None:
    """Far worse odds than a bad day has."""
    unreliable_s3.odds = {mishap: 0.08 for mishap in Mishap if mishap is not Mishap.NONE}
    root = f"s3://{s3_server.new_bucket()}/t"
    near, far = open_file_io(root, s3_server.options), open_file_io(root, unreliable_s3.options)
    created = 0
    for number in range(40):
        path, data = f"{root}/f-{number}", Random(number).randbytes(3_000)
        try:
            assert far.create_if_absent(path, data), f"{path}: nobody else is there"
            created += 1
        except OSError:
            continue
        assert near.read(path) == data
        assert far.read(path) == data
        assert not far.create_if_absent(path, b"other")
        with far.open_output(f"{path}-out") as output:
            output.stream.write(data)
        assert near.read(f"{path}-out") == data
    assert created > 30
    far.delete_all([f"{root}/f-{number}" for number in range(40)])
    assert len(unreliable_s3.mishaps) == len(Mishap)
