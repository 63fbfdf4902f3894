"""Cases of the suite `merge_functions` as records of one key, and the product's result for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.support.case_values import column_type, comparable, expected_value, is_decimal_text, python_value
from tests.support.cases import Case, check_members, options_of
from tests.support.column_merge import batch_of_records, merge_function, records_of, table_schema
from tests.support.row_merge import Record
from tidelake.storage.ddl.schema_validation import check_new_schema
from tidelake.storage.merge.equal_keys import Groups
from tidelake.storage.merge.merge_functions import MergeFunction
from tidelake.storage.model.format import KIND_COLUMN
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.types import DataType, not_null
from tidelake.storage.write.row_converter import RowConverter

_MEMBERS: Final = {
    *("engine", "options", "fields", "types", "not_null_fields", "row_fields", "records"),
    *("through_reducer_wrapper", "expect", "expect_error", "compare"),
}
# The type that a function takes, and what its values are in JSON; of other values it is a case for a refusal.
_TYPE_OF_FUNCTION: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    **dict.fromkeys(("bool_and", "bool_or"), ("BOOLEAN", (bool,))),
    **dict.fromkeys(("theta_sketch", "hll_sketch", "rbm32", "rbm64"), ("BYTES", (str, dict))),
    "listagg": ("STRING", (str,)),
    "collect": ("ARRAY", (list,)),
    "merge_map": ("MAP", (list, dict)),
    "merge_map_with_keytime": ("MAP<STRING, ROW>", (list, dict)),
    **dict.fromkeys(("nested_update", "nested_partial_update"), ("ARRAY<ROW>", (list,))),
}


@dataclass(frozen=True)
class MergeCase:
    """Records of one key, oldest first. The first column is the key.

    types: those that the case names, else ones that its functions take and its values fit.
    """

    options: dict[str, str]
    types: dict[str, DataType]
    records: list[Record]
    shortcut: bool

    @classmethod
    def of(cls, case: Case) -> MergeCase:
        check_members(case, _MEMBERS)
        for record in case["records"]:
            check_members(record, {"kind", "seq", "level", "v"})
        width = len(case["records"][0]["v"]) if case["records"] else 2
        names = list(case.get("fields") or ["k", *(["v"] if width == 2 else [f"v{i}" for i in range(1, width)])])
        options = {"merge-engine": case["engine"], **options_of(case)}
        types = {name: _type_of(case, at, name, options) for at, name in enumerate(names)}
        required = {*case.get("not_null_fields", ()), names[0]}
        types = {name: not_null(found) if name in required else found for name, found in types.items()}
        records = [Record(r["kind"], r.get("seq", i), _row_of(r["v"], types)) for i, r in enumerate(case["records"])]
        return cls(options, types, records, case.get("through_reducer_wrapper", True))

    @property
    def key(self) -> str:
        return next(iter(self.types))

    def function(self) -> MergeFunction:
        return merge_function(self.types, self.options, self.key)

    def merged(self) -> list[Record]:
        """By the product, in the order of the case."""
        rows = batch_of_records(self.types, self.records)
        groups = Groups(np.arange(rows.num_rows), np.zeros(min(1, rows.num_rows), np.intp))
        shortcut = None if self.shortcut else np.zeros(1, np.bool_)
        return records_of(self.function().merge(rows, groups, shortcut))

    def create_and_write(self) -> None:
        """What a table asks before rows are merged. Raises BadInput."""
        options = TableOptions({"bucket": "1", **self.options})
        schema = table_schema(self.types, options, self.key)
        check_new_schema(schema)
        rows = batch_of_records(self.types, self.records)
        RowConverter(schema, options, "d.t").to_table_schema(rows.select([*self.types, KIND_COLUMN]))


def expected(case: Case, types: Mapping[str, DataType]) -> list[dict[str, Any]]:
    """The expected remaining record of `expect`: kind, seq, v."""
    expect = case["expect"]
    if expect is None:
        return []
    check_members(expect, {"kind", "seq", "v"})
    row = {name: expected_value(value, t) for value, (name, t) in zip(expect["v"], types.items(), strict=True)}
    return [expect | {"v": _comparable(case, row)}]


def reported(case: Case, merged: list[Record]) -> list[dict[str, Any]]:
    """Records in the form of `expect`, with only its members."""
    members = (case["expect"] or {"kind": "", "seq": 0, "v": []}).keys()
    records = [{"kind": r.kind, "seq": r.sequence, "v": _comparable(case, r.row)} for r in merged]
    return [{name: record[name] for name in members} for record in records]


def _comparable(case: Case, row: Mapping[str, Any]) -> Any:
    return comparable(dict(row), unordered=case.get("compare") == "unordered")


def _row_of(values: list[Any], types: Mapping[str, DataType]) -> dict[str, Any]:
    return {name: python_value(v, t) for v, (name, t) in zip(values, types.items(), strict=True)}


def _type_of(case: Case, at: int, name: str, options: Mapping[str, str]) -> DataType:
    named = case.get("types", {})
    text = named.get(name) if isinstance(named, Mapping) else named[at]
    expect = case.get("expect") or {}
    samples = [record["v"][at] for record in case["records"]]
    samples += [expect["v"][at]] if "v" in expect else []
    if text is None and at:
        function = options.get(f"fields.{name}.aggregate-function", options.get("fields.default-aggregate-function"))
        if function in ("sum", "product") and any(is_decimal_text(sample) for sample in samples):
            text = "DECIMAL"
        elif function is not None and function in _TYPE_OF_FUNCTION:
            taken, kinds = _TYPE_OF_FUNCTION[function]
            text = taken if all(sample is None or isinstance(sample, kinds) for sample in samples) else None
    fields = case.get("row_fields")
    return column_type(text, samples, fields.get(name) if isinstance(fields, Mapping) else fields)
