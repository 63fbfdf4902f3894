"""What `import tidelake` gives, and when."""

from __future__ import annotations

import subprocess
import sys

import pytest

import tidelake
from tidelake import aio, public


def test_importing_costs_nothing_until_a_name_is_used() -> None:
    program = "import sys, tidelake; assert 'pyarrow' not in sys.modules; tidelake.col; assert 'pyarrow' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_is_there() -> None:
    assert {name: getattr(tidelake, name) for name in public.__all__} == {n: getattr(public, n) for n in public.__all__}
    assert set(public.__all__) <= set(dir(tidelake))
    assert tidelake.aio is aio


def test_a_name_that_is_none_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_lake'"):
        tidelake.open_lake  # type: ignore[attr-defined]  # noqa: B018


def test_aio_offers_what_the_blocking_api_does() -> None:
    for name in ("Catalog", "Table", "Scan", "Writer"):
        blocking = {member for member in vars(getattr(tidelake, name)) if not member.startswith("_")}
        waiting = {member for member in vars(getattr(aio, name)) if not member.startswith("_")}
        assert waiting <= blocking, name
