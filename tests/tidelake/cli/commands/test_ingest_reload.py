"""`tidelake ingest reload`: answers and exit codes. `tests/integration/test_reloaded_service.py` has the process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.support.command_line import Call
from tests.tidelake.cli.commands.test_ingest_plan import write_config
from tidelake.ingest.config.config import ConfigFile
from tidelake.ingest.pipeline.reload_requests import ReloadAnswer, ReloadRequest, ReloadRequests
from tidelake.storage.fileio import open_file_io


def requests_of(tmp_path: Path) -> ReloadRequests:
    return ReloadRequests(open_file_io(f"{tmp_path}/lake", {}), f"{tmp_path}/lake", "shop")


class Answering:
    """Answers the first request, as a running pipeline does, while the block runs."""

    def __init__(self, requests: ReloadRequests, answer: ReloadAnswer) -> None:
        self.requests, self.answer = requests, answer
        self.taken: list[ReloadRequest] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        until = time.monotonic() + 30
        while not self.taken and time.monotonic() < until:
            self.taken = self.requests.take()
            time.sleep(0.01)
        for request in self.taken:
            self.requests.answer(request, self.answer)

    def __enter__(self) -> Answering:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


CHANGES = {"added": ["shop.b"], "removed": [], "changed": {}, "settings": ["errors.tolerance"]}
ANSWERS = {
    "taken": (
        ReloadAnswer("taken", lines=["added: shop.b", "changed: errors.tolerance"], changes=CHANGES),
        0,
        "added: shop.b\nchanged: errors.tolerance",
    ),
    "unchanged": (ReloadAnswer("unchanged"), 0, "shop runs with this configuration already"),
    "refused": (ReloadAnswer("refused", "a running pipeline can't take a change of `warehouse`"), 3, "`warehouse`"),
    "failed": (ReloadAnswer("failed", "shop.b can't be created"), 1, "shop.b can't be created"),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_the_answer_of_the_pipeline_is_shown_and_gives_the_exit_code(call: Call, tmp_path: Path, case: str) -> None:
    answer, code, text = ANSWERS[case]
    path, requests = write_config(tmp_path, "{name: shop.a}"), requests_of(tmp_path)
    with Answering(requests, answer) as pipeline:
        said = call("ingest", "reload", path)
    assert (said.code, text in said.err) == (code, True)
    assert [request.digest for request in pipeline.taken] == [ConfigFile(path).digest()]
    assert list((tmp_path / "lake" / "shop.reload").iterdir()) == []


def test_programs_get_the_changes(call: Call, tmp_path: Path) -> None:
    path, requests = write_config(tmp_path, "{name: shop.a}"), requests_of(tmp_path)
    with Answering(requests, ANSWERS["taken"][0]):
        assert call("ingest", "reload", path, "--json").document == {"outcome": "taken", **CHANGES}


def test_an_invalid_file_is_refused_before_anything_is_asked(call: Call, tmp_path: Path) -> None:
    said = call("ingest", "reload", write_config(tmp_path, "{name: shop.a, fliter: x}"))
    assert (said.code, "no setting `fliter`" in said.err) == (1, True)
    assert not (tmp_path / "lake").exists()


def test_a_pipeline_that_does_not_answer_is_reported_and_the_request_withdrawn(call: Call, tmp_path: Path) -> None:
    said = call("ingest", "reload", write_config(tmp_path, "{name: shop.a}"), "--timeout", "0.1")
    assert said.code == 1
    assert "no process of shop has answered within 0.1 s, so the request is withdrawn" in said.err
    assert requests_of(tmp_path).take() == []


def test_a_pipeline_that_has_begun_and_does_not_answer_is_told_apart(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReloadRequests, "withdraw", lambda *_: False)
    said = call("ingest", "reload", write_config(tmp_path, "{name: shop.a}"), "--timeout", "0.1")
    assert (said.code, "shop has begun to take the changes" in said.err) == (1, True)
