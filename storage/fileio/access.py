"""Turns permission errors of the operating system into errors that name the remedy."""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from types import TracebackType
from typing import Final

from tidelake.errors import AccessDenied


class Access(StrEnum):
    """How a file is to be accessed."""

    READ = "read"
    WRITE = "write"


_PERMISSION_ERRORS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def access(wanted: Access, path: str, otherwise: str = "") -> AccessErrors:
    """Return a context manager that raises AccessDenied if the operating system denies access. Other errors pass.

    otherwise: an alternative to granting access, as the end of a sentence: `, or set …`.
    """
    return AccessErrors(wanted, path, otherwise)


class AccessErrors:
    """See `access`. Not a generator: a commit enters dozens of them, and each would take three times as long."""

    __slots__ = ("_otherwise", "_path", "_wanted")

    def __init__(self, wanted: Access, path: str, otherwise: str = "") -> None:
        self._wanted = wanted
        self._path = path
        self._otherwise = otherwise

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError) and error.errno in _PERMISSION_ERRORS and not isinstance(error, AccessDenied):
            raise AccessDenied(error.errno, _reason(self._wanted, error.errno, self._otherwise), self._path) from error


def _reason(wanted: Access, code: int, otherwise: str) -> str:
    what = f"{os.strerror(code)}, trying to {wanted}"
    if code == errno.EROFS:
        return f"{what}. Mount the file system writable, or use another location{otherwise}"
    where = "it and search its directories" if wanted is Access.READ else "it and to its directory"
    to = "" if wanted is Access.READ else " to"
    return f"{what}. Let user id {os.geteuid()} {wanted}{to} {where}{otherwise}"
