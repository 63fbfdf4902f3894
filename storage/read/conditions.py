"""Takes the conditions that users pass: as SQL text, made with `col`, or as `pyarrow.compute` expressions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.read.arrow_conditions import arrow_predicate
from tidelake.storage.read.condition_text import parse_condition
from tidelake.storage.read.predicate import Predicate, check_depth, is_predicate, resolved


def as_predicate(given: object, schema: pa.Schema) -> Predicate:
    """Return the condition on rows of this schema.

    given: SQL text (`amount > 3 and city like 'B%'`), a condition made with `col`, or a `pyarrow.compute` expression

    Raises BadInput for anything else, for unknown columns, and for a condition that is nested too deeply.
    """
    if isinstance(given, pc.Expression):
        return arrow_predicate(given, schema)
    found = parse_condition(given) if isinstance(given, str) else given
    if not is_predicate(found):
        raise BadInput(
            "a filter is made with tidelake.col or pyarrow.compute.field, or is SQL text such as 'amount > 3', not "
            f"{type(given).__name__}"
        )
    check_depth(found)
    return resolved(found, schema)
