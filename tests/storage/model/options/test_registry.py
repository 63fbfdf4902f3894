"""Every option acts, is refused by the operation that it would change, or has no observable effect."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
import tidelake.storage
from tests.storage.model.options.option_tests import OPTION_TESTS
from tidelake.storage.model import option_support
from tidelake.storage.model.options.option import Operation, Option, Refusal
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, TABLE_REGISTRY
from tidelake.table import Table

ROOT: Final = Path(__file__).parents[4]
ALL: Final = (*TABLE_REGISTRY.options, *CATALOG_REGISTRY.options)
VALUES: Final = {"boolean": ("true", "false"), "int": ("7",), "long": ("7",), "number": ("0.7",), "size": ("7 mb",)}
NAMES: Final = {"<column>": "v", "<type>": "bloom-filter", "<class>": "org.example.Callback", "<index>": "vector"}
SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])


def key_of(option: Option) -> str:
    """A key of a family, the key of any other."""
    return re.sub(r"<[^>]*>", lambda name: NAMES[name[0]], option.key).replace("*", "something")


def value_of(option: Option) -> str:
    """Not the default, and one that the option takes."""
    given = (*option.kind.words, *VALUES.get(option.kind.name, ("7 min",)))
    return next(value for value in given if value != option.default)


@dataclass(frozen=True)
class Lake:
    catalog: tidelake.Catalog
    warehouse: str

    def table(self, key: str, value: str) -> tidelake.Table:
        """Return the table as another writer could have made it: with any option, also one that is refused here."""
        return Table(self.catalog.table("shop.t").context.with_options({key: value}))


@pytest.fixture(scope="module")
def lake() -> Lake:
    warehouse = "memory://options/lake"
    catalog = tidelake.open_catalog(warehouse)
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with table.writer() as writer:
        writer.write(pa.table({"id": [1, 2], "v": [10, 20]}, SCHEMA))
        writer.commit()
    return Lake(catalog, warehouse)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Simulates a process that has logged nothing so far."""
    monkeypatch.setattr(option_support, "_logged", set())
    caplog.set_level(logging.WARNING)
    return caplog


# ---------------------------------------------------------------- it is refused


def read(lake: Lake, key: str, value: str) -> None:
    lake.table(key, value).scan().to_arrow()


def changes(lake: Lake, key: str, value: str) -> None:
    list(lake.table(key, value).changes(start=1))


def write(lake: Lake, key: str, value: str) -> None:
    lake.table(key, value).writer()


def compact(lake: Lake, key: str, value: str) -> None:
    lake.table(key, value).compact()


def open_catalog(lake: Lake, key: str, value: str) -> None:
    tidelake.open_catalog(lake.warehouse, **{key: value})


OPERATIONS: Final[dict[Operation, Callable[[Lake, str, str], None]]] = {
    Operation.READ: read,
    Operation.CHANGES: changes,
    Operation.WRITE: write,
    Operation.COMPACT: compact,
    Operation.OPEN: open_catalog,
}
REFUSED: Final = [
    pytest.param(option, refusal, operation, id=f"{operation} {option.key}")
    for option in ALL
    for refusal in option.refusals
    for operation in sorted(refusal.operations)
]


@pytest.mark.parametrize(("option", "refusal", "operation"), REFUSED)
def test_each_operation_refuses_options_it_would_ignore(
    option: Option, refusal: Refusal, operation: Operation, lake: Lake
) -> None:
    key = key_of(option)
    with pytest.raises(tidelake.UnsupportedFeature) as refused:
        OPERATIONS[operation](lake, key, refusal.when.example)
    assert f"option {key} = {refusal.when.example}" in str(refused.value)
    assert refusal.reason in str(refused.value)
    assert refusal.remedy in str(refused.value)


UNSET: Final = [
    pytest.param(option, refusal, id=option.key)
    for option in TABLE_REGISTRY.options
    for refusal in option.refusals
    if refusal.remedy.startswith("Unset it")
]


@pytest.mark.parametrize(("option", "refusal"), UNSET)
def test_an_option_that_is_to_be_unset_can_be_unset(option: Option, refusal: Refusal, lake: Lake) -> None:
    """It is in the schema of a table that another writer made."""
    lake.catalog.create_database("others", if_not_exists=True)
    name, key = f"others.t{uuid4().hex}", key_of(option)
    context = lake.catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"}).context
    lake.catalog.table(name).append(pa.table({"id": [1], "v": [10]}, SCHEMA))
    schema = json.loads(context.io.read(context.paths.schema(0)))
    schema["options"][key] = refusal.when.example
    context.io.write(context.paths.schema(0), json.dumps(schema).encode())

    def operations(catalog: tidelake.Catalog) -> list[Callable[[], object]]:
        table = catalog.table(name)
        does: dict[Operation, Callable[[], object]] = {
            Operation.READ: lambda: table.scan().to_arrow(),
            Operation.CHANGES: lambda: list(table.changes(start=1)),
            Operation.WRITE: lambda: table.writer().close(),
            Operation.COMPACT: table.compact,
        }
        return [does[one] for one in sorted(refusal.operations & does.keys())]

    again = tidelake.open_catalog(lake.warehouse)
    for operation in operations(again):
        with pytest.raises(tidelake.UnsupportedFeature, match="Unset it"):
            operation()
    again.alter_table(name, [tidelake.RemoveOption(key)])
    for operation in operations(again):
        operation()


CREATING: Final = {Operation.READ, Operation.CHANGES, Operation.WRITE}


@pytest.mark.parametrize(
    ("option", "refusal"),
    [
        pytest.param(option, refusal, id=option.key)
        for option in TABLE_REGISTRY.options
        for refusal in option.refusals
        if CREATING & refusal.operations
    ],
)
def test_no_table_is_created_that_a_later_operation_refuses(option: Option, refusal: Refusal, lake: Lake) -> None:
    for primary_key in (["id"], []):
        with pytest.raises(tidelake.TidelakeError, match=f"option {re.escape(key_of(option))}|option type"):
            lake.catalog.create_table(
                "shop.new", SCHEMA, primary_key=primary_key, options={key_of(option): refusal.when.example}
            )
    assert lake.catalog.list_tables("shop") == ["t"]


# ---------------------------------------------------------------- no observable effect

WITHOUT_EFFECT: Final = [pytest.param(option, id=option.key) for option in TABLE_REGISTRY.options if option.no_effect]
CATALOGS_WITHOUT_EFFECT: Final = [
    pytest.param(option, id=option.key) for option in CATALOG_REGISTRY.options if option.no_effect
]


@pytest.mark.parametrize("option", WITHOUT_EFFECT)
def test_an_option_without_effect_is_logged_once_with_the_reason(
    option: Option, lake: Lake, log: pytest.LogCaptureFixture
) -> None:
    table = lake.table(key_of(option), value_of(option))
    assert table.scan().to_arrow().to_pylist() == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]
    assert [record.event_fields for record in log.records] == [  # type: ignore[attr-defined]
        {"event": "option without effect", "option": key_of(option), "why": option.no_effect}
    ]
    table.scan().to_arrow()
    list(table.changes(start=1))
    table.writer().close()
    assert len(log.records) == 1


@pytest.mark.parametrize("option", CATALOGS_WITHOUT_EFFECT)
def test_a_catalogs_option_without_effect_is_logged_once(
    option: Option, lake: Lake, log: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        tidelake.open_catalog(lake.warehouse, **{key_of(option): value_of(option)})
    (record,) = log.records
    assert record.event_fields == {  # type: ignore[attr-defined]
        "event": "option without effect",
        "option": key_of(option),
        "why": option.no_effect,
    }


def test_an_option_without_effect_is_read_nowhere() -> None:
    """What code reads may change what it does."""
    asked = set(chain.from_iterable(map(_texts_of, _code_that_acts())))
    # dropping a table names the place in the log; a schema has a member of this name
    asked -= {"global-index.external-path", "comment"}
    assert [o.key for o in TABLE_REGISTRY.options if o.no_effect and not o.is_family and o.key in asked] == []


def test_an_option_set_to_its_default_is_not_logged(lake: Lake, log: pytest.LogCaptureFixture) -> None:
    lake.table("sort-engine", "loser-tree").scan().to_arrow()
    assert log.records == []


def test_an_unknown_option_name_is_logged_once(lake: Lake, log: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        lake.table("bukket", "3").scan().to_arrow()
    (record,) = log.records
    assert "option unknown" in record.getMessage()
    assert "bukket" in record.getMessage()


# ---------------------------------------------------------------- it acts


@pytest.mark.parametrize("option", [pytest.param(option, id=option.key) for option in ALL if option.acts_on])
def test_an_option_that_acts_has_a_test_that_sets_it(option: Option) -> None:
    """Only checks that the test exists, and knows the option. `test_inert_options.py` runs it."""
    assert option.key in OPTION_TESTS, f"{option.key} acts, says the registry; which test shows it?"
    module, _, name = OPTION_TESTS[option.key].partition("::")
    text, tests = _text_and_tests_of(ROOT / module)
    assert name in tests
    last = re.split(r"<[^>]*>\.?", option.key)[-1].rstrip("*")
    assert last in text, f"{module} does not set {option.key}"


@cache
def _text_and_tests_of(module: Path) -> tuple[str, frozenset[str]]:
    text = module.read_text(encoding="utf-8")
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return text, frozenset(function.name for function in functions)


def test_no_other_option_is_listed_as_tested() -> None:
    assert OPTION_TESTS.keys() - {option.key for option in ALL if option.acts_on} == set()


def test_an_option_that_acts_is_read_by_code() -> None:
    asked = set(chain.from_iterable(map(_texts_of, _code_that_acts(rules=True))))
    missing = [o.key for o in TABLE_REGISTRY.options if o.acts_on and not o.is_family and o.key not in asked]
    assert missing == []


def _code_that_acts(*, rules: bool = False) -> Iterator[Path]:
    """Modules of `storage` that do something with an option. rules: those that check values when tables are created
    too."""
    package = Path(tidelake.storage.__file__ or "").parent
    for path in package.rglob("*.py"):
        names_only = "definitions" in path.parts or path.name == "renamed_columns.py"
        if not names_only and (rules or path.name not in ("option_validation.py", "option_changes.py")):
            yield path


@cache
def _texts_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str))
