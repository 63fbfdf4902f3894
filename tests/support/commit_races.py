"""Other writers that commit at the worst moment: after a commit was prepared, and before its snapshot is published."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelake.storage.commit.commit_request import CommitRequest, CommitResult
from tidelake.storage.commit.publisher import Publisher


def before_publishing(monkeypatch: pytest.MonkeyPatch, *happen: Callable[[], Any]) -> None:
    """Runs these functions, in order, each before one of the next snapshots is published. Snapshots that the functions
    publish themselves don't count.
    """
    publish, rest = Publisher.publish, list(happen)
    is_happening = False

    def publish_after(publisher: Publisher, request: CommitRequest, then: CommitRequest | None = None) -> CommitResult:
        nonlocal is_happening
        if rest and not is_happening:
            is_happening = True
            try:
                rest.pop(0)()
            finally:
                is_happening = False
        return publish(publisher, request, None if rest else then)  # what is left happens before the next snapshot

    monkeypatch.setattr(Publisher, "publish", publish_after)
