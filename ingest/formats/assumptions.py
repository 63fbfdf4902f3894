"""What is assumed about the values of columns that records without a schema don't declare: units and encodings."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from tidelake.ingest.formats.connect_schema import (
    PER_SECOND,
    UNDECLARED,
    ConnectorSettings,
    SemanticType,
    SourceType,
    completed,
)
from tidelake.ingest.formats.connector_rules import CONNECTORS, UNNAMED
from tidelake.storage.model.types import BINARY_ROOTS, DataField, DataType, Root, nullable

_UNITS: Final = {per_second: unit for unit, per_second in PER_SECOND.items()}


@dataclass(frozen=True, slots=True)
class Assumption:
    """What is assumed about one column.

    text: what a number or a text in a record means.
    """

    column: str
    type: DataType
    text: str

    def __str__(self) -> str:
        return f"{self.column} {nullable(self.type)}: {self.text}"


def assumptions(
    columns: Sequence[DataField], declared: Collection[str], connector: str | None, settings: ConnectorSettings
) -> list[Assumption]:
    """Return the assumptions about the columns of records without a schema.

    columns: those of the table.
    declared: columns whose source type is configured.
    connector: `source.connector` of the records, "" if they have none; None if no record is known yet.
    """
    found = []
    for column in columns:
        if column.name not in declared:
            source = completed(UNDECLARED, column.type, connector or "", settings)
            if text := _text(source, column.type, connector, settings):
                found.append(Assumption(column.name, column.type, text))
    return found


def _text(source: SourceType, target: DataType, connector: str | None, settings: ConnectorSettings) -> str:
    match source.semantic_type:
        case SemanticType.DATE:
            return "numbers are days since 1970-01-01"
        case SemanticType.TIME | SemanticType.TIMESTAMP if source.unknown_unit:
            return f"numbers are refused: {source.unknown_unit}"
        case (SemanticType.TIME | SemanticType.TIMESTAMP) as kind:
            begin = "midnight" if kind is SemanticType.TIME else "1970"
            unit = _UNITS[source.per_second]
            others = _of_other_connectors(kind, unit) if connector is None and not settings.time_precision_mode else ""
            example = "ms" if unit != "ms" else "us"
            return (
                f"numbers count {unit} since {begin}{others}; declare another unit in source_types: '{kind} {example}'"
            )
        case SemanticType.SET:
            return "texts are the labels of a SET"
        case SemanticType.DECIMAL:
            return "texts are base64 of the unscaled number"
    if target.root in BINARY_ROOTS:
        return f"texts are {settings.binary_handling_mode}"
    return "texts are digits" if target.root is Root.DECIMAL else ""


def _of_other_connectors(kind: SemanticType, unit: str) -> str:
    """Return the connectors that send another unit than Debezium's default: ` (us from MySQL, MariaDB)`."""
    of_unit: dict[str, list[str]] = {}
    for rules in CONNECTORS.values():
        sent = rules.times if kind is SemanticType.TIME else rules.timestamps
        default = UNNAMED.times if kind is SemanticType.TIME else UNNAMED.timestamps
        if sent is not None and sent not in (default, unit):
            of_unit.setdefault(sent, []).append(rules.title)
    texts = [f"{other} from {', '.join(titles)}" for other, titles in of_unit.items()]
    return f" ({'; '.join(texts)})" if texts else ""
