"""Texts for users, kept in a file to be reviewed as text.

A file holds named texts, each below a line `==== name`. TIDELAKE_WRITE_GOLDEN_TEXT=1 writes what is said now instead of
comparing: read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

_WRITE = "TIDELAKE_WRITE_GOLDEN_TEXT"


def matches_golden_text(path: Path, name: str, text: str) -> None:
    """Fails when the text of that name is another one, or not there."""
    texts = _read(path)
    if os.environ.get(_WRITE):
        texts[name] = text
        path.write_text("".join(f"==== {key}\n\n{value.strip()}\n\n" for key, value in sorted(texts.items())))
    assert texts.get(name, "").strip() == text.strip(), f"{path.name}, {name}: if this is meant, set {_WRITE}=1"


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    parts = re.split(r"^==== (.*)$", path.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
