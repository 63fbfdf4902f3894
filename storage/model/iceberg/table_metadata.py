"""The JSON file from which an Iceberg reader starts: schemas, snapshots, and tags as references.

A snapshot has the id of the table's snapshot that it shows; so do its sequence number and the version of the file.

Source: Java `iceberg/metadata/IcebergMetadata.java`, `IcebergSnapshot.java`, `IcebergRef.java`; Iceberg's
specification, "Table Metadata Fields".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from tidelake.errors import CorruptFile
from tidelake.storage.model.iceberg.manifest_schemas import FIRST_PARTITION_FIELD_ID
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.snapshot import Snapshot, parse_json_object

COMMIT_IDENTITY: Final = "paimon-commit-identity"  # in a snapshot's summary: of which snapshot of the table it is
_SNAPSHOTS: Final = "\0snapshots"  # a text that nothing else in the JSON can be
_NEVER_MS: Final = 2**63 - 1  # tags expire with the table's


@dataclass(frozen=True)
class IcebergSnapshot:
    """One snapshot.

    summary: its operation, and counts as text.
    manifest_list: its path.
    first_row_id: the first id of the rows that its manifests add; None in format version 2.
    added_rows: how many ids they take; None in format version 2.
    """

    id: int
    parent_id: int | None
    time_ms: int
    summary: Mapping[str, str]
    manifest_list: str
    schema_id: int
    first_row_id: int | None = None
    added_rows: int | None = None

    @cached_property
    def json(self) -> str:
        """The JSON. Each later metadata file contains it again."""
        members: dict[str, Any] = {
            "sequence-number": self.id,
            "snapshot-id": self.id,
            "parent-snapshot-id": self.parent_id,
            "timestamp-ms": self.time_ms,
            "summary": dict(self.summary),
            "manifest-list": self.manifest_list,
            "schema-id": self.schema_id,
            "first-row-id": self.first_row_id,
            "added-rows": self.added_rows,
        }
        return _json({name: value for name, value in members.items() if value is not None})

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Self:
        return cls(
            id=int(members["snapshot-id"]),
            parent_id=members.get("parent-snapshot-id"),
            time_ms=int(members["timestamp-ms"]),
            summary=dict(members["summary"]),
            manifest_list=members["manifest-list"],
            schema_id=int(members["schema-id"]),
            first_row_id=members.get("first-row-id"),
            added_rows=members.get("added-rows"),
        )

    def shows(self, snapshot: Snapshot) -> bool:
        """Return whether this is the given snapshot of the table. False for one that a rollback replaced."""
        return self.id == snapshot.id and self.summary.get(COMMIT_IDENTITY, commit_identity(snapshot)) == (
            commit_identity(snapshot)
        )


@dataclass(frozen=True, slots=True)
class IcebergMetadata:
    """The content of one metadata file. Its newest snapshot is the last one.

    schemas: by ascending id, as JSON.
    last_column_id: the highest id of a column of any schema.
    refs: the snapshot of each tag, by name.
    next_row_id: the first id that no row has; None in format version 2.
    """

    format_version: int
    table_uuid: str
    location: str
    last_updated_ms: int
    last_column_id: int
    schemas: Sequence[Mapping[str, Any]]
    current_schema_id: int
    partition_fields: Sequence[Mapping[str, Any]]
    snapshots: Sequence[IcebergSnapshot]
    refs: Mapping[str, int] = field(default_factory=dict)
    next_row_id: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def current(self) -> IcebergSnapshot:
        return self.snapshots[-1]

    def to_json(self) -> bytes:
        """Return the JSON, with members in Java's order. Compact, because it is written with each commit."""
        current = self.current.id
        members: dict[str, Any] = {
            "format-version": self.format_version,
            "table-uuid": self.table_uuid,
            "location": self.location,
            "last-sequence-number": current,
            "last-updated-ms": self.last_updated_ms,
            "last-column-id": self.last_column_id,
            "schemas": self.schemas,
            "current-schema-id": self.current_schema_id,
            "partition-specs": [{"spec-id": 0, "fields": self.partition_fields}],
            "default-spec-id": 0,
            "last-partition-id": FIRST_PARTITION_FIELD_ID + len(self.partition_fields) - 1,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "snapshots": [_SNAPSHOTS],
            "current-snapshot-id": current,
            "next-row-id": self.next_row_id,
            "properties": dict(self.properties),
            "refs": {
                name: {"snapshot-id": snapshot_id, "type": "tag", "max-ref-age-ms": _NEVER_MS}
                for name, snapshot_id in self.refs.items()
            },
        }
        if self.next_row_id is None:
            del members["next-row-id"]
        snapshots = ",".join(snapshot.json for snapshot in self.snapshots)
        return _json(members).replace(_json(_SNAPSHOTS), snapshots, 1).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Self:
        """Read a file of this release or of Java. Raises CorruptFile."""
        what = "Iceberg metadata"
        members = parse_json_object(data, path, what)
        try:
            snapshots = [IcebergSnapshot.from_members(snapshot) for snapshot in members["snapshots"]]
            current = members["current-snapshot-id"]
            if not snapshots or snapshots[-1].id != current:
                raise ValueError(f"current-snapshot-id {current} is not the last one of snapshots")
            return cls(
                format_version=int(members["format-version"]),
                table_uuid=str(members["table-uuid"]),
                location=str(members["location"]),
                last_updated_ms=int(members["last-updated-ms"]),
                last_column_id=int(members["last-column-id"]),
                schemas=tuple(members["schemas"]),
                current_schema_id=int(members["current-schema-id"]),
                partition_fields=tuple(members["partition-specs"][0]["fields"]),
                snapshots=tuple(snapshots),
                refs={name: int(ref["snapshot-id"]) for name, ref in (members.get("refs") or {}).items()},
                next_row_id=members.get("next-row-id"),
                properties=dict(members.get("properties") or {}),
            )
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as e:
            raise CorruptFile(path, f"the JSON of {what}", f"{type(e).__name__}: {e}") from None


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def commit_identity(snapshot: Snapshot) -> str:
    """Return a text that differs for each commit, also if a rollback gave its id to another one."""
    if snapshot.uuid is not None:
        return snapshot.uuid
    return f"{snapshot.commit_user}:{snapshot.commit_identifier}:{snapshot.time_ms}"


def partition_spec_fields(schema: TableSchema) -> list[dict[str, Any]]:
    """Return the fields of the only partition spec: a table's partition columns never change."""
    return [
        {
            "name": field.name,
            "transform": "identity",
            "source-id": field.id,
            "field-id": FIRST_PARTITION_FIELD_ID + position,
        }
        for position, field in enumerate(schema.partition_fields)
    ]
