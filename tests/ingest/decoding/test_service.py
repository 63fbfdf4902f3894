"""`tidelake ingest run` with decoding processes: how it ends, however it is told to."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ingest.decoding.pools import PATIENCE_S, decoding_processes, wait_for_end
from tidelake.ingest.decoding.shared_slots import SharedSlots


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_no_process_is_left(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    configuration = {
        "warehouse": str(tmp_path / "lake"),
        "source": {"type": "change-log-folder", "path": str(tmp_path / "log"), "decode_processes": 2},
        "tables": [{"name": "shop.orders"}],
    }
    (tmp_path / "p.json").write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "tidelake", "ingest", "run", str(tmp_path / "p.json")]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as pipeline:
        deadline = time.monotonic() + PATIENCE_S
        while len(pids := decoding_processes(f"test_no_process_is_left.{number.name}")) < 2:
            assert time.monotonic() < deadline
            assert pipeline.poll() is None
            time.sleep(0.01)
        os.killpg(pipeline.pid, number)  # as a terminal does
        code = pipeline.wait(PATIENCE_S)
        assert pipeline.stderr is not None
        said = pipeline.stderr.read().decode()
    assert code == (-number if number is signal.SIGKILL else 0), said
    for pid in pids:
        wait_for_end(pid)
    assert "a decoding process ended" not in said
    assert "Traceback" not in said


def test_a_process_whose_pipeline_ended_before_the_setup_ends_without_a_word() -> None:
    here, there = socket.socketpair()
    slots = SharedSlots.new()
    here.close()
    with there:
        ended = subprocess.run(
            [sys.executable, "-m", "tidelake.ingest.decoding.decoder_program", str(there.fileno()), str(slots.fd)],
            pass_fds=(there.fileno(), slots.fd),
            check=False,
            capture_output=True,
            timeout=PATIENCE_S,
        )
    slots.close()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
