"""A real PostgreSQL server on this machine, in its own folder. The end of the session removes it."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

_UNPRIVILEGED = "nobody"  # PostgreSQL refuses to run as root


class PostgresqlServer:
    """`user` may do all, without a password."""

    user = "tests"

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._owner = None if os.geteuid() else pwd.getpwnam(_UNPRIVILEGED)
        if self._owner is not None:
            os.chown(folder, self._owner.pw_uid, self._owner.pw_gid)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._run(
            "initdb", "-D", self._data, "-U", self.user, "-A", "trust", "--no-sync", "-E", "UTF8", "--locale", "C"
        )
        settings = f"-p {self.port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off -c wal_level=logical"
        self._run("pg_ctl", "-D", self._data, "-w", "-l", folder / "log", "-o", settings, "start")

    def new_database(self) -> str:
        """A fresh, empty database; its address as Java spells it."""
        name = f"lake_{uuid4().hex[:12]}"
        self._run(
            "psql",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            self.user,
            "-c",
            f"CREATE DATABASE {name}",
            "postgres",
        )
        return f"jdbc:postgresql://127.0.0.1:{self.port}/{name}"

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str | Path) -> None:
        found = shutil.which(program)
        assert found is not None, f"{program} is not installed; it is in Debian's package postgresql"
        user, group = (None, None) if self._owner is None else (self._owner.pw_uid, self._owner.pw_gid)
        run = subprocess.run(
            [found, *arguments], capture_output=True, text=True, check=False, cwd="/", user=user, group=group
        )
        assert run.returncode == 0, f"{program}: {run.stdout}{run.stderr}"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    with tempfile.TemporaryDirectory() as folder:  # not pytest's own: those below root's are closed to others
        os.chmod(folder, 0o755)
        server = PostgresqlServer(Path(folder))
        yield server
        server.stop()
