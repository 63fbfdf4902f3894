"""The first rows of a scan as HTML, for notebooks."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import Any

from tidelake.frames.readable import Readable
from tidelake.storage.model.types.json_values import json_rows

_ROWS_MAX = 10
_CELL_CHARACTERS_MAX = 100


def html_of(title: str, scan: Readable) -> str:
    """Return the title, the columns with their types, and the first rows. All texts are escaped."""
    rows = [row for batch in scan.limit(_ROWS_MAX).to_batches() for row in json_rows(batch)]
    heads = "".join(
        f"<th>{escape(field.name)}<br><small>{escape(str(field.type))}"
        f"{'' if field.nullable else ' not null'}</small></th>"
        for field in scan.schema
    )
    body = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row.values())}</tr>" for row in rows)
    more = "" if len(rows) < _ROWS_MAX else f"<p><small>the first {_ROWS_MAX} rows that were found</small></p>"
    return (
        f"<p><code>{escape(title)}</code></p><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "<i>null</i>"
    text = str(value)
    cut = "".join(islice(text, _CELL_CHARACTERS_MAX))
    return escape(cut if len(text) <= _CELL_CHARACTERS_MAX else f"{cut}…")
