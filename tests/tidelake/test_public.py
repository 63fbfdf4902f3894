"""The names of `import tidelake`, and when they are loaded."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Final

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


def test_an_unknown_name_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_lake'"):
        tidelake.open_lake  # type: ignore[attr-defined]  # noqa: B018


# Of the blocking API alone. `follower` is for callers who wait in their own way, the others are internal.
_ONLY_BLOCKING: Final = {
    "Table": {"context", "follower"},
    "Scan": {"context", "snapshot", "is_of_snapshot_alone"},
}
# A task is stopped by cancelling it.
_ONLY_BLOCKING_PARAMETERS: Final = {"stop", "cancellation"}


@pytest.mark.parametrize("name", ["Catalog", "Table", "Scan", "Writer"])
def test_aio_offers_the_same_calls_as_the_blocking_api(name: str) -> None:
    blocking, waiting = members(getattr(tidelake, name)), members(getattr(aio, name))
    assert waiting.keys() == blocking.keys() - _ONLY_BLOCKING.get(name, set())
    for member, offered in waiting.items():
        given = {k: p for k, p in blocking[member].items() if k not in _ONLY_BLOCKING_PARAMETERS}
        assert offered == given, member


def members(of_class: type) -> dict[str, dict[str, object]]:
    """Public names; of methods, each parameter's kind and default."""
    return {
        name: {k: (p.kind, p.default) for k, p in inspect.signature(member).parameters.items()}
        if inspect.isfunction(member)
        else {}
        for part in of_class.__mro__
        if part.__name__ in (of_class.__name__, "RowChanges")
        for name, member in vars(part).items()
        if not name.startswith("_")
    }
