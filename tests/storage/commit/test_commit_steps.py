"""Work that lost a race is repeated."""

from __future__ import annotations

import pytest

from tidelake.errors import BadInput, CommitConflict, SnapshotExpired, TidelakeError
from tidelake.storage.commit.commit_steps import retry_on_conflict


class Work:
    """Raises these errors, one a call, then is done."""

    def __init__(self, *errors: TidelakeError) -> None:
        self._errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self._errors:
            raise self._errors.pop(0)
        return "done"


def test_work_is_repeated_until_no_conflict_occurs() -> None:
    work = Work(CommitConflict("a"), SnapshotExpired("shop.orders", 1, "gone"))
    assert retry_on_conflict(3, work) == "done"
    assert work.calls == 3


def test_the_last_conflict_is_raised() -> None:
    work = Work(CommitConflict("a"), CommitConflict("b"), CommitConflict("c"))
    with pytest.raises(CommitConflict, match="b"):
        retry_on_conflict(2, work)
    assert work.calls == 2


def test_any_other_error_is_raised_at_once() -> None:
    work = Work(BadInput("no"))
    with pytest.raises(BadInput, match="no"):
        retry_on_conflict(3, work)
    assert work.calls == 1
