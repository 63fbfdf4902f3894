"""The names of `import tidelake`, and when they are loaded."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidelake
from tidelake import TidelakeError, aio, errors, public


def test_importing_costs_nothing_until_a_name_is_used() -> None:
    program = "import sys, tidelake; assert 'pyarrow' not in sys.modules; tidelake.col; assert 'pyarrow' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_opening_and_reading_a_table_imports_no_package_that_only_other_calls_need(tmp_path: Path) -> None:
    tidelake.open_catalog(str(tmp_path)).create_database("db")
    tidelake.open_catalog(str(tmp_path)).create_table("db.t", pa.schema([("v", pa.int64())]))
    program = (
        f"import sys, tidelake; tidelake.open_catalog({str(tmp_path)!r}).table('db.t').scan().to_arrow();"
        "print({'sqlglot', 'duckdb', 'polars', 'pyspark', 'ray', 'torch', 'aiokafka', 'yaml'} & sys.modules.keys())"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert printed == "set()\n"


def test_every_public_name_is_there() -> None:
    assert {name: getattr(tidelake, name) for name in public.__all__} == {n: getattr(public, n) for n in public.__all__}
    assert set(public.__all__) <= set(dir(tidelake))
    assert tidelake.aio is aio


def test_an_unknown_name_raises_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'open_lake'"):
        tidelake.open_lake  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.exhaustive(kept=2)
@pytest.mark.parametrize("name", ["aio", "arguments", "conditions", "duckdb", "errors", "results", "schema"])
def test_a_public_module_needs_no_import_of_its_own(name: str) -> None:
    program = f"import sys, tidelake; assert tidelake.{name} is sys.modules['tidelake.{name}']"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert name in dir(tidelake)


# ---------------------------------------------------------------- homes

# What the public calls offer, but not to users: their documentation says so.
_INTERNAL: Final = {"tidelake.storage.model.table.TableContext", "tidelake.storage.files.stats_collection.ColumnBounds"}


def test_every_type_that_users_meet_has_a_public_home() -> None:
    """A home is a module right below `tidelake`, which tracebacks, pickles and `help` name."""
    met = types_met()
    assert len(met) > 60
    homeless = {
        f"{kind.__module__}.{kind.__qualname__}" for kind in met if not re.fullmatch(r"tidelake\.\w+", kind.__module__)
    }
    assert homeless - _INTERNAL == set()
    for kind in met:
        if kind.__module__.startswith("tidelake.") and kind.__module__.count(".") == 1:
            assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind
            assert pickle.loads(pickle.dumps(kind)) is kind


OPTIONAL: Final = {  # imported only when a call needs them; Ray and PyTorch are not even installed
    "duckdb": duckdb,
    "pd": pd,
    "pl": pl,
    "ray": SimpleNamespace(data=SimpleNamespace(Dataset=object)),
    "IterableDataset": Iterator,
}


def types_met() -> set[Any]:
    """The public names, the types of all arguments and results of their methods, and all errors."""
    members = [getattr(tidelake, name) for name in public.__all__ if name != "__version__"]
    members += [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BaseException)]
    met: set[Any] = set(members)
    for member in members:
        calls = [member] if not isinstance(member, type) else [one for _, one in inspect.getmembers(member)]
        for call in calls:
            function = call.fget if isinstance(call, property) else call
            if inspect.isfunction(function) and not function.__name__.startswith("_"):
                for hint in typing.get_type_hints(function, localns=OPTIONAL).values():
                    met |= set(types_in(hint))
    return {one for one in met if one.__module__.startswith("tidelake")}


def types_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not typing.get_args(hint):
        yield hint
    for inner in typing.get_args(hint):
        for one in inner if isinstance(inner, list) else [inner]:
            yield from types_in(one)


def error_types(of: type[TidelakeError] = TidelakeError) -> set[type[TidelakeError]]:
    return {of}.union(*map(error_types, of.__subclasses__()))


def test_every_error_is_defined_in_tidelake_errors() -> None:
    """All but those of the command line, which nobody catches."""
    for module in pkgutil.walk_packages(tidelake.__path__, "tidelake."):
        if "spark" not in module.name and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found = {kind for kind in error_types() if not kind.__name__.startswith("_")}
    assert {kind for kind in found if not kind.__module__.startswith(("tidelake.cli.", "tests."))} == {
        one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, TidelakeError)
    }


@dataclass(frozen=True)
class Records:
    topic: str = "shop"
    partition: int = 3
    offsets: Sequence[int] = (40, 41)


ERRORS: Final[list[TidelakeError]] = [
    errors.TidelakeError("a message"),
    errors.BadInput("a message"),
    errors.UnsupportedFeature("an option", "a reason", "A remedy"),
    errors.CorruptFile("/t/f", "one thing", "another", 7),
    errors.AccessDenied(13, "Permission denied", "/t/f"),
    errors.SnapshotExpired("db.t", 7, "snapshots 8 to 9"),
    errors.CommitConflict("a message"),
    errors.StaleSequenceNumbers("a message"),
    errors.HistoryExpired("a message"),
    errors.RecoveryOutdated("a message"),
    errors.BatchOutdated("a message"),
    errors.CommitOutcomeUnknown("a message"),
    errors.WriterFenced("a message"),
    errors.ReloadRefused("a message"),
    errors.PositionRefused("a problem", ["one way", "another"]),
    errors.ConfigError("a message"),
    errors.SourceUnavailable("a message"),
    errors.RegistryUnavailable("a message"),
    errors.RecordRefused("a message", ("a", "failure")),
    errors.TableNotInferred(Records(), 1, "a reason"),
    errors.TableUnusable("db.t", "a reason"),
    errors.TableFailed("db.t", ValueError("a reason")),
    errors.QuarantineFull("a message"),
    errors.NotYetCaughtUp(),
    errors.TablePaused("shop.orders"),
]


def test_no_error_is_left_out_here() -> None:
    assert {type(error) for error in ERRORS} == {kind for kind in error_types() if kind.__module__ == "tidelake.errors"}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_in_another_process(error: TidelakeError) -> None:
    """Spark sends the errors of its Python workers to the driver."""
    error.add_note("seen in a worker")
    data = pickle.dumps(error)
    assert b"tidelake.errors" in data
    assert b"tidelake.storage" not in data
    found = pickle.loads(data)
    assert type(found) is type(error)
    assert str(found) == str(error)
    members, theirs = vars(error), vars(found)
    assert members.keys() == theirs.keys()
    assert {name: repr(value) for name, value in members.items()} == {name: repr(one) for name, one in theirs.items()}
    if isinstance(error, OSError):
        assert isinstance(found, OSError)
        assert (found.errno, found.filename) == (error.errno, error.filename)


def test_a_traceback_names_the_public_home() -> None:
    program = "import tidelake; tidelake.SetOption(key='a', value='b'); tidelake.open_catalog(' ')"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1].startswith("tidelake.errors.BadInput: the warehouse is blank")


def test_a_pickled_condition_names_its_public_home_and_needs_nothing_else() -> None:
    data = pickle.dumps((tidelake.col("amount") > 3) & ~tidelake.col("day").is_null())
    assert b"tidelake.conditions" in data
    assert b"tidelake.storage" not in data
    program = f"import pickle, sys; pickle.loads({data!r}); assert 'tidelake.public' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


# ---------------------------------------------------------------- async

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
        for name in dir(of_class)
        if not name.startswith("_")
        for member in [inspect.getattr_static(of_class, name)]
    }
