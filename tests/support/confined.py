"""Programs on a small disk, and without write permission, enforced by the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[2]
_IGNORED_MODES: Final = "-dac_override,-dac_read_search,-fowner"  # capabilities that let root pass by a file's mode


def on_small_disk(folder: Path, size_bytes: int, module: str, *arguments: str) -> str:
    """Standard output of `python -m module FOLDER arguments…`, for which `folder` is a file system of this size.

    It is mounted only for that program, and removed with it. Needs root, or a kernel that lets users mount for
    themselves; raises AssertionError, saying so, without either.
    """
    private = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    mount = ["sh", "-ec", f'mount -t tmpfs -o size={size_bytes} none "$1"; shift; exec "$@"', "sh", str(folder)]
    return _run([*private, *mount], [module, str(folder), *arguments])


def without_right_to_write(folder: Path, module: str, *arguments: str) -> str:
    """Standard output of `python -m module FOLDER arguments…`; nothing in or below `folder` can be changed by it."""
    return _without(0o222, folder, module, *arguments)


def without_right_to_read(folder: Path, module: str, *arguments: str) -> str:
    """The same, where no file below `folder` can be read; directories can be listed."""
    return _without(0o444, folder, module, *arguments, only_files=True)


def _without(bits: int, folder: Path, module: str, *arguments: str, only_files: bool = False) -> str:
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path, mode in modes.items():
        if path.is_file() or not only_files:
            path.chmod(mode & ~bits)
    obeying = ["setpriv", f"--bounding-set={_IGNORED_MODES}"] if os.geteuid() == 0 else []
    try:
        return _run(obeying, [module, str(folder), *arguments])
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def _run(confinement: Sequence[str], program: Sequence[str]) -> str:
    command = [*confinement, sys.executable, "-m", *program]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done.stdout
