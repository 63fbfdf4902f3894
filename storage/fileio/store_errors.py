"""What an object store said, as the errors that callers know."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from storage.backoff import ExponentialBackoff
from storage.errors import AccessDenied, BadInput

# S3 and STS say so with a 400, which obstore takes for any other failure.
_EXPIRED: Final = ("ExpiredToken", "TokenRefreshRequired", "RequestExpired")

_TORN_ATTEMPTS: Final = 4
_TORN_BACKOFF: Final = ExponentialBackoff(first_ms=100, longest_ms=800, jitter=(0.0, 1.0))

T = TypeVar("T")


@contextmanager
def as_os_errors(path: str) -> Iterator[None]:
    """FileNotFoundError, AccessDenied, else OSError, each with the path and the words of the store.

    BadInput for a name that no store takes. No module outside this package imports obstore.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, first_paragraph(error), path) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        said = first_paragraph(error)
        raise AccessDenied(errno.EACCES, f"{said}. Check the credentials, and what they may do there", path) from None
    except BaseError as error:
        said = first_paragraph(error)
        if any(code in said for code in _EXPIRED):
            message = f"the store says that the credentials have expired; renew them and start again ({said})"
            raise AccessDenied(errno.EACCES, message, path) from None
        raise OSError(errno.EIO, said, path) from None
    except ValueError as error:
        raise BadInput(f"{path!r}: {first_paragraph(error)}") from None


def retry_incomplete(ask: Callable[[], T]) -> T:
    """What `ask` gives; it is called again when the answer broke off, a few times, so it must be safe to repeat.

    obstore repeats requests that get no answer or a server's error (with jitter, see `stores`), and goes on where the
    bytes of an object broke off; but not where a list, or what the server said of a failure, did.
    """
    for attempt in range(_TORN_ATTEMPTS):
        try:
            return ask()
        except BaseError as error:
            if "body error" not in str(error) or attempt == _TORN_ATTEMPTS - 1:
                raise
            time.sleep(_TORN_BACKOFF.wait_ms(attempt) / 1000)
    raise AssertionError("unreachable")


def first_paragraph(error: Exception) -> str:
    """What obstore says to people; below it comes the same in the form of a debugger."""
    return str(error).partition("\n\n")[0].strip()
