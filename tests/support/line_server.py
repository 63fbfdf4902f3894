"""A child process that answers requests line by line, used for the Java oracle and for pypaimon.

A request is one line of JSON. The answer is lines of JSON, then `.ok`, or `.failed ` and {code, message}.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import IO, Any

Json = Any


class Refused(Exception):
    """The other implementation answered with an error. `code` is its kind, as the child names it."""

    def __init__(self, code: str | int, message: str) -> None:
        super().__init__(message)
        self.code = code


class LineServer:
    """Starts with the first request and again after a crash. Requests of several threads wait for each other."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
        self._command = [str(part) for part in command]
        self._environment = {**os.environ, **(environment or {})}
        self._lock = Lock()
        self._child: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    def ask(self, request: Json) -> list[Json]:
        """The lines of the answer. Raises Refused, or RuntimeError with the log's end when the child died."""
        with self._lock:
            try:
                return self._ask(request)
            except Refused:
                raise
            except BaseException:
                self._end()  # an answer half read would be taken for the next one's
                raise

    def _ask(self, request: Json) -> list[Json]:
        child = self._running()
        assert child.stdin is not None
        assert child.stdout is not None
        answer: list[Json] = []
        try:
            child.stdin.write(json.dumps(request) + "\n")
            child.stdin.flush()
            for line in child.stdout:
                if line.startswith(".failed "):
                    failure = json.loads(line.removeprefix(".failed "))
                    raise Refused(failure["code"], failure["message"])
                if line.startswith(".ok"):
                    return answer
                answer.append(json.loads(line))
        except BrokenPipeError:
            pass
        raise RuntimeError(f"{' '.join(self._command)} ended with {child.wait()}:\n{self._log_end()}")

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self._end()
            self._log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # closed by _end
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=self._environment,
                encoding="utf-8",
                # answers hold U+2028 and the like; only \n ends a line
            )
        return self._child

    def _log_end(self) -> str:
        assert self._log is not None
        self._log.seek(0)
        return self._log.read()[-4000:]

    def _end(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
            self._child = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def close(self) -> None:
        with self._lock:
            self._end()
