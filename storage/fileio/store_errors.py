"""What an object store said, as the errors that callers know."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from storage.errors import BadInput


@contextmanager
def told_as_os_errors(path: str) -> Iterator[None]:
    """FileNotFoundError, PermissionError, else OSError, each with the path and the words of the store.

    BadInput for a name that no store takes. Nobody outside this package knows obstore.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, first_paragraph(error), path) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, first_paragraph(error), path) from None
    except BaseError as error:
        raise OSError(errno.EIO, first_paragraph(error), path) from None
    except ValueError as error:
        raise BadInput(f"{path!r}: {first_paragraph(error)}") from None


def first_paragraph(error: Exception) -> str:
    """What obstore says to people; below it comes the same in the form of a debugger."""
    return str(error).partition("\n\n")[0].strip()
