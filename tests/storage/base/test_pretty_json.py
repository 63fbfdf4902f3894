"""The JSON layout of Java's library, compared with files that it wrote (test_table_schema.py compares hundreds
more).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidelake.storage.base.pretty_json import pretty_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param({}, "{ }", id="empty object"),
        pytest.param([], "[ ]", id="empty list"),
        pytest.param(["a", 1, True, None], '[ "a", 1, true, null ]', id="a list stays on its line"),
        pytest.param({"a": 1, "b": []}, '{\n  "a" : 1,\n  "b" : [ ]\n}', id="members have lines of their own"),
        pytest.param(
            {"f": [{"a": 1}, {"b": {"c": 2}}]},
            '{\n  "f" : [ {\n    "a" : 1\n  }, {\n    "b" : {\n      "c" : 2\n    }\n  } ]\n}',
            id="objects in a list",
        ),
        pytest.param('é \u2028 " \\ /', '"é \u2028 \\" \\\\ /"', id="little is escaped"),
        pytest.param("\t\n\x01\x1f\x7f", '"\\t\\n\\u0001\\u001F\x7f"', id="control characters"),
        pytest.param("\\u001f", '"\\\\u001f"', id="what looks like an escape"),
    ],
)
def test_json_is_laid_out_as_java_does(value: Any, text: str) -> None:
    assert pretty_json(value) == text
    assert json.loads(text) == value
