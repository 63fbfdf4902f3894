"""What the operating system says when it doesn't let us at a file, in words that name the remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from storage.errors import AccessDenied


class Access(StrEnum):
    """What a file is wanted for."""

    READ = "read"
    WRITE = "write"


_DENIED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


@contextmanager
def access(wanted: Access, path: str, otherwise: str = "") -> Iterator[None]:
    """Raises AccessDenied where the operating system refuses; every other error passes.

    otherwise: what can be done besides giving the right, as the end of a sentence: `, or set …`.
    """
    try:
        yield
    except AccessDenied:
        raise
    except OSError as error:
        if error.errno not in _DENIED:
            raise
        raise AccessDenied(error.errno, _reason(wanted, error.errno, otherwise), path) from error


def _reason(wanted: Access, code: int, otherwise: str) -> str:
    what = f"{os.strerror(code)}, trying to {wanted}"
    if code == errno.EROFS:
        return f"{what}. Mount it to be written to, or use another place{otherwise}"
    where = "it and search its directories" if wanted is Access.READ else "it and to its directory"
    to = "" if wanted is Access.READ else " to"
    return f"{what}. Let user id {os.geteuid()} {wanted}{to} {where}{otherwise}"
