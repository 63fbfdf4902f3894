"""The resources of one table: its description, snapshots, commits, partitions, tags, branches and consumers.

Source: Java `rest/RESTApi.java` and `rest/RESTCatalog.java` (what clients send and expect),
`rest/RESTCatalogServer.java` in Java's tests.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from tidelake.errors import BadInput, CorruptFile
from tidelake.rest_server.answers import (
    Members,
    Refusal,
    Resource,
    missing,
    name_filter,
    not_offered,
    page,
    taken,
)
from tidelake.rest_server.requests import Commit, CreateBranch, CreateTag, ResetConsumer, Rollback, TagInstant
from tidelake.storage.base.arguments import INT64_MAX
from tidelake.storage.commit.file_system_commit import snapshot_commit_of
from tidelake.storage.files.bucket_directory import partition_directory
from tidelake.storage.kinds.system_tables.partitions import FileTotals, partition_totals
from tidelake.storage.maintenance.branch_changes import create_branch, delete_branch, fast_forward
from tidelake.storage.maintenance.rollback import roll_back, rollback_target
from tidelake.storage.maintenance.tag_changes import create_tag, delete_tag
from tidelake.storage.model.options.values import parse_duration_ms
from tidelake.storage.model.paths import parse_partition_path
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.consumers import Consumer, consumer_names
from tidelake.storage.model.snapshots.snapshot import FIRST_SNAPSHOT_ID, Snapshot
from tidelake.storage.model.snapshots.tags import Tag
from tidelake.storage.model.table import TableContext

_UNKNOWN: Final = -1  # a count that nobody reported, as in Java's PartitionStatistics
_FILES_OF_SNAPSHOTS: Final = (
    "baseManifestList",
    "deltaManifestList",
    "changelogManifestList",
    "indexManifest",
    "statistics",
)


class ServedTable:
    """One table, or one of its branches, as it is at the time of a request.

    context: the table at its latest schema.
    object_name: its name in requests: `orders`, or `orders$branch_dev`.
    """

    def __init__(self, context: TableContext, object_name: str) -> None:
        self._context = context
        self._object_name = object_name

    @property
    def id(self) -> str:
        """The identity of the table: another one after it was dropped and created again, or renamed.

        The first version of the schema never changes, and contains its creation time.
        """
        context = self._context
        text = f"{context.location}#{context.branch}#{self._first_schema.to_json()}"
        return str(uuid.uuid5(uuid.NAMESPACE_URL, text))

    @cached_property
    def _first_schema(self) -> TableSchema:
        schemas = self._context.schemas
        return schemas.get(min(schemas.ids()))

    def describe(self) -> Members:
        context, schema = self._context, self._context.schema
        members = json.loads(schema.to_json())
        return {
            "id": self.id,
            "database": context.name.partition(".")[0],
            "name": self._object_name,
            "path": context.location,
            "isExternal": False,
            "schemaId": schema.id,
            "schema": {m: members.get(m) for m in ("fields", "partitionKeys", "primaryKeys", "options", "comment")},
            **audit(schema.options.get("owner", ""), self._first_schema.time_ms, schema.time_ms),
        }

    # ------------------------------------------------------------ snapshots

    def latest_snapshot(self) -> Members:
        """Return the latest snapshot. Counts other than the rows would need all manifests: they are unknown."""
        latest = self._context.snapshots.latest()
        if latest is None:
            raise self._no_snapshot("latest")
        counts = dict.fromkeys(("fileSizeInBytes", "fileCount", "lastFileCreationTime"), _UNKNOWN)
        return {"snapshot": {"snapshot": latest.to_members(), "recordCount": latest.total_record_count, **counts}}

    def snapshot(self, version: str) -> Members:
        """version: `EARLIEST`, `LATEST`, an id, or the name of a tag."""
        store = self._context.snapshots
        found: Snapshot | None
        if version in ("EARLIEST", "LATEST"):
            found = store.earliest() if version == "EARLIEST" else store.latest()
        elif version.isascii() and version.isdecimal():
            found = store.find(int(version)) if int(version) <= INT64_MAX else None
        else:
            found = self._context.tags.get(version) if version in self._context.tags.names() else None
        if found is None:
            raise self._no_snapshot(version)
        return {"snapshot": found.to_members()}

    def list_snapshots(self, query: Mapping[str, str]) -> Members:
        def find(snapshot_id: int) -> Snapshot | None:
            return self._context.snapshots.find(snapshot_id)

        answer = page("snapshots", self._context.snapshots.ids(), lambda i: f"{i:020d}", query, find)
        answer["snapshots"] = [one.to_members() for one in answer["snapshots"] if one is not None]  # others expired
        return answer

    def commit(self, message: Commit) -> Members:
        """Make the snapshot the next one, if the latest one is still the one that it was built on.

        The file is created only if it is absent, as by every writer of this project: the server excludes writers that
        don't use it, too. A request that is repeated is answered like the first one.
        """
        context = self._context
        if message.table_id is not None and message.table_id != self.id:
            raise missing(
                Resource.TABLE,
                self._object_name,
                f"{context.name} was dropped since the client opened it, and another table has its name now",
            )
        snapshot = self._checked_snapshot(message.snapshot)
        latest = context.snapshots.latest()
        if latest is not None and snapshot in (latest, context.snapshots.find(snapshot.id)):
            return {"success": True}
        if message.base_snapshot_uuid != (None if latest is None else latest.uuid):
            return {"success": False}
        if snapshot.id != (FIRST_SNAPSHOT_ID if latest is None else latest.id + 1):
            return {"success": False}
        return {"success": snapshot_commit_of(context).commit(latest, snapshot, lambda: ())}

    def _checked_snapshot(self, members: dict[str, Any]) -> Snapshot:
        """Return the snapshot of a request, if readers of the table can read it."""
        try:
            snapshot = Snapshot.from_members(members, "the request")
        except CorruptFile as e:
            raise Refusal(400, str(e)) from None
        for member in _FILES_OF_SNAPSHOTS:
            name = members.get(member)
            if name is not None and (
                not isinstance(name, str) or "/" in name or "\0" in name or name in ("", ".", "..")
            ):
                raise Refusal(400, f"{member} = {name!r} of the snapshot is not the name of a file")
        if lost := sorted(
            key for key, v in members.items() if v not in (None, {}, []) and key not in snapshot.to_members()
        ):
            raise not_offered(
                f"member {lost[0]!r} of a snapshot",
                "this release does not know it, and would publish the snapshot without it",
                "Use a newer release of the server, or an older one of the client",
            )
        context = self._context
        lists = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        for name in lists:
            if not context.io.exists(context.paths.manifest(name)):
                raise Refusal(400, f"the snapshot names {name}, but the table has no such manifest list")
        if snapshot.schema_id not in context.schemas.ids():
            raise Refusal(400, f"the snapshot has schema {snapshot.schema_id}, but the table has no such schema")
        return snapshot

    def roll_back(self, message: Rollback) -> Members:
        context = self._context
        latest = context.snapshots.latest_id()
        if message.from_snapshot is not None and message.from_snapshot != latest:
            raise taken(
                Resource.SNAPSHOT,
                str(latest),
                f"Latest snapshot {latest} is not {message.from_snapshot}: roll back again",
            )
        tag = message.instant.tag_name if isinstance(message.instant, TagInstant) else None
        snapshot_id = None if isinstance(message.instant, TagInstant) else message.instant.snapshot_id
        if tag is not None and tag not in context.tags.names():
            raise self._no_tag(tag)
        try:
            target = rollback_target(context, snapshot_id, tag, None, None)
        except BadInput as e:
            raise missing(Resource.SNAPSHOT, str(snapshot_id), str(e)) from None
        roll_back(context, target)
        return {}

    # ------------------------------------------------------------ partitions

    def list_partitions(self, query: Mapping[str, str]) -> Members:
        matches = name_filter(query.get("partitionNamePattern"))
        found = {name: of_one for name, of_one in self._partitions().items() if matches(name)}
        return page("partitions", found, str, query, lambda name: _partition(name, found[name]))

    def list_partitions_by_names(self, specs: Sequence[Mapping[str, str]]) -> Members:
        """Return the partitions that match one of the specs completely."""
        return {
            "partitions": [
                _partition(name, of_one)
                for name, of_one in self._partitions().items()
                if parse_partition_path(name) in specs
            ]
        }

    def add_partitions(self, specs: Sequence[Mapping[str, str]]) -> Members:
        """Answer a request to register partitions: those with rows are known from the snapshots already."""
        known = [parse_partition_path(name) for name in self._partitions()]
        for spec in specs:
            if spec not in known:
                raise not_offered(
                    f"partition {dict(spec)!r} without rows",
                    "the partitions are those of the latest snapshot",
                    "Commit rows",
                )
        return {"created": [], "existed": [dict(spec) for spec in specs]}

    def _partitions(self) -> dict[str, FileTotals]:
        context = self._context
        if not context.schema.partition_keys:
            raise not_offered(f"partitions of {context.name}", "the table has no partition columns", "Scan the table")
        found = partition_totals(context, context.snapshots.latest())
        return {partition_directory(context, of_one.partition): of_one for of_one in found}

    # ------------------------------------------------------------ tags

    def list_tags(self, query: Mapping[str, str]) -> Members:
        matches = name_filter(query.get("tagNamePrefix"))
        return page("tags", filter(matches, self._context.tags.names()), str, query, str)

    def tag(self, name: str) -> Members:
        tag = self._existing_tag(name)
        created = None if tag.created_at is None else int(tag.created_at.timestamp() * 1000)
        retained = None if tag.retained is None else _duration_text(tag.retained)
        return {
            "tagName": name,
            "snapshot": tag.snapshot.to_members(),
            "tagCreateTime": created,
            "tagTimeRetained": retained,
        }

    def create_tag(self, message: CreateTag) -> Members:
        context, name = self._context, message.tag_name
        if name in context.tags.names():
            raise taken(Resource.TAG, name, f"{context.name} already has a tag {name!r}")
        latest = context.snapshots.latest_id()
        wanted = latest if message.snapshot_id is None else message.snapshot_id
        if wanted is None or not 0 < wanted <= INT64_MAX or context.snapshots.find(wanted) is None:
            raise self._no_snapshot(str(wanted))
        retained = message.time_retained
        create_tag(
            context,
            name,
            message.snapshot_id,
            None if retained is None else timedelta(milliseconds=parse_duration_ms(retained)),
        )
        return {}

    def delete_tag(self, name: str) -> Members:
        self._existing_tag(name)
        delete_tag(self._context, name)
        return {}

    def _existing_tag(self, name: str) -> Tag:
        if name not in self._context.tags.names():
            raise self._no_tag(name)
        return self._context.tags.tag(name)

    # ------------------------------------------------------------ branches

    def list_branches(self) -> Members:
        return {"branches": branch_names(self._context.io, self._context.paths)}

    def create_branch(self, message: CreateBranch) -> Members:
        context = self._context
        if message.branch in branch_names(context.io, context.paths):
            raise taken(Resource.BRANCH, message.branch, f"{context.name} already has a branch {message.branch!r}")
        if message.from_tag is not None and message.from_tag not in context.tags.names():
            raise self._no_tag(message.from_tag)
        create_branch(context, message.branch, tag=message.from_tag)
        return {}

    def delete_branch(self, name: str) -> Members:
        return self._of_branch(name, delete_branch)

    def fast_forward(self, name: str) -> Members:
        return self._of_branch(name, fast_forward)

    def _of_branch(self, name: str, change: Callable[[TableContext, str], object]) -> Members:
        context = self._context
        if name not in branch_names(context.io, context.paths):
            raise missing(Resource.BRANCH, name, f"{context.name} has no branch {name!r}")
        change(context, name)
        return {}

    # ------------------------------------------------------------ consumers

    def list_consumers(self, query: Mapping[str, str]) -> Members:
        io, paths = self._context.io, self._context.paths
        found = {name: Consumer(io, paths, name).next_snapshot_id() for name in consumer_names(io, paths)}
        return page("consumers", found, str, query, lambda name: {"consumerId": name, "nextSnapshot": found[name]})

    def reset_consumer(self, message: ResetConsumer) -> Members:
        context = self._context
        consumer = Consumer(context.io, context.paths, message.consumer_id)
        wanted = message.next_snapshot_id
        if wanted is None:
            consumer.forget()
            return {}
        if not 0 < wanted <= INT64_MAX or context.snapshots.find(wanted) is None:
            raise self._no_snapshot(str(wanted))
        consumer.write(wanted)
        return {}

    # ------------------------------------------------------------ refusals

    def _no_snapshot(self, name: str) -> Refusal:
        return missing(Resource.SNAPSHOT, name, f"{self._context.name} has no snapshot {name}")

    def _no_tag(self, name: str) -> Refusal:
        return missing(Resource.TAG, name, f"{self._context.name} has no tag {name!r}")


def audit(owner: str = "", created_ms: int = 0, updated_ms: int = 0) -> Members:
    """Return the members about creation and change. Nobody records who made them."""
    return {"owner": owner, "createdAt": created_ms, "createdBy": "", "updatedAt": updated_ms, "updatedBy": ""}


def _partition(name: str, of_one: FileTotals) -> Members:
    updated_ms = of_one.updated_epoch_ms
    return {
        "spec": parse_partition_path(name),
        "recordCount": of_one.row_count,
        "fileSizeInBytes": of_one.size_bytes,
        "fileCount": of_one.file_count,
        "lastFileCreationTime": _UNKNOWN if updated_ms is None else updated_ms,
        "totalBuckets": of_one.total_buckets,
        "done": False,
    }


def _duration_text(duration: timedelta) -> str:
    """Return a duration as Java's `Duration.toString` does: `PT36H`, `PT1.5S`."""
    seconds = duration.total_seconds()
    hours, rest = divmod(int(seconds), 3600)
    minutes, whole = divmod(rest, 60)
    text = f"{whole + seconds % 1:.3f}".rstrip("0").rstrip(".")
    parts = [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{text}S" if text != "0" else ""]
    return f"PT{''.join(parts) or '0S'}"
