"""Creates an object only if it does not exist. Commits to an object store depend on this.

One request decides: a put with `If-None-Match: *` (S3, Azure) or `x-goog-if-generation-match: 0` (GCS). Among any
number of writers the store accepts one. Two things could still make the answer wrong:
1. The client repeats a put if the answer was a server error, missing or incomplete. If the first put succeeded
   nevertheless, the second one finds that the name is taken, by ourselves. So each call writes a unique mark to the
   object's metadata, and the mark that is found decides.
2. A store that does not know the condition ignores it and replaces the object. A store that drops metadata loses the
   mark. So before the first call, once for each bucket and process, both are tested with an object of a unique name.
"""

from __future__ import annotations

import errno
import posixpath
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

from tidelake.errors import UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.fileio.store_errors import first_paragraph, retry_incomplete

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# Lower case only: Azure allows nothing else in names of metadata, and S3 and GCS would change upper case.
_MARK: Final = "tidelakepublisher"

_ATTEMPTS: Final = 5


def put_if_absent(store: ObjectStore, key: str, data: bytes, path: str) -> bool:
    """Return True if the object is ours, False if another one exists. After obstore's errors and OSError: unknown."""
    mark = env.new_uuid().hex
    for _ in range(_ATTEMPTS):
        try:
            _put_with_mark(store, key, data, mark)
        except AlreadyExistsError:
            # obstore raises this also for S3's 409: two concurrent puts, or a put during a delete. Then the object may
            # not exist.
            with suppress(FileNotFoundError):
                return _read_mark(store, key) == mark
        else:
            return True
    raise OSError(
        errno.EAGAIN, "the store repeatedly reports both that the object exists and that it does not exist", path
    )


def require_conditional_put(store: ObjectStore, key: str, place: str) -> None:
    """Test point 2 of the module, with a hidden object next to `key`. Raises UnsupportedFeature about `place`."""
    directory, name = posixpath.split(key)
    test_key, mark = posixpath.join(directory, f".{name}.{env.new_uuid().hex}.tmp"), env.new_uuid().hex
    try:
        _put_with_mark(store, test_key, b"", mark)
        _put_with_mark(store, test_key, b"", env.new_uuid().hex)
        fault = "it replaces an object that was to be created only if absent"
    except AlreadyExistsError:
        if _read_mark(store, test_key) == mark:
            return
        fault = "it drops the metadata of an object, so its creator can't be known"
    except BaseError as error:
        # A store answers 501 if it knows the condition, but does not implement it.
        if not isinstance(error, NotSupportedError) and "501 Not Implemented" not in str(error):
            raise
        fault = f"it cannot create an object only if absent ({first_paragraph(error)})"
    finally:
        with suppress(BaseError, OSError):
            retry_incomplete(lambda: obstore.delete(store, test_key))
    raise UnsupportedFeature(
        place,
        f"{fault}; two commits could overwrite one another",
        "Use a store with conditional writes (If-None-Match on PutObject), or a local disk",
    )


def _put_with_mark(store: ObjectStore, key: str, data: bytes, mark: str) -> None:
    retry_incomplete(lambda: obstore.put(store, key, data, mode="create", attributes={_MARK: mark}))


def _read_mark(store: ObjectStore, key: str) -> str | None:
    """Raise FileNotFoundError."""
    return retry_incomplete(lambda: obstore.get(store, key, options={"head": True}).attributes.get(_MARK))
