"""Turns errors of the object-store client into errors that callers know."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from tidelake.errors import AccessDenied, BadInput
from tidelake.storage.base import env
from tidelake.storage.base.backoff import ExponentialBackoff

# S3 and STS report these with status 400, which obstore treats like any other failure.
_EXPIRED: Final = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired")

_TORN_ATTEMPTS: Final = 4
_TORN_BACKOFF: Final = ExponentialBackoff(first_ms=100, longest_ms=800, jitter=(0.0, 1.0))

T = TypeVar("T")


@contextmanager
def as_os_errors(path: str) -> Iterator[None]:
    """Raise FileNotFoundError, AccessDenied or another OSError, with the path and the store's message.

    Raises BadInput for a name that is invalid in all stores. No module outside this package imports obstore.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, first_paragraph(error), path) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        detail = first_paragraph(error)
        raise AccessDenied(errno.EACCES, f"{detail}. Check the credentials and their permissions", path) from None
    except BaseError as error:
        detail = first_paragraph(error)
        if any(code in detail for code in _EXPIRED):
            message = f"the credentials have expired; renew them and start again ({detail})"
            raise AccessDenied(errno.EACCES, message, path) from None
        raise OSError(errno.EIO, detail, path) from None
    except ValueError as error:
        raise BadInput(f"{path!r}: {first_paragraph(error)}") from None


def retry_incomplete(ask: Callable[[], T]) -> T:
    """Return the result of `ask`. If the answer is incomplete, it is called again, a few times. It must be repeatable.

    obstore repeats requests without an answer or with a server error (with jitter, see `stores`), and continues an
    object's content that was cut off. It does not repeat an incomplete listing or error message.
    """
    for attempt in range(_TORN_ATTEMPTS):
        try:
            return ask()
        except BaseError as error:
            if "body error" not in str(error) or attempt == _TORN_ATTEMPTS - 1:
                raise
            env.sleep(_TORN_BACKOFF.wait_ms(attempt) / 1000)
    raise AssertionError("unreachable")


def first_paragraph(error: Exception) -> str:
    """Return obstore's message for people, without the debugging output after it."""
    return str(error).partition("\n\n")[0].strip()
