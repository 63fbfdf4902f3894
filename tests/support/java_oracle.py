"""Java Paimon as the reference for our tables: it reads, streams, writes and compacts (tools/java-oracle)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.conformance import record
from tests.support.line_server import Json, LineServer
from tests.support.tools import TOOLS, build_tool

ORACLE = TOOLS / "java-oracle"


class JavaOracle:
    """Commands of the oracle's README as methods; rows are dicts of JSON values as "Values" there describes them.

    `warehouse` is a local folder, or the options of a catalog as JSON; `table` is `database.table`. One JVM serves the
    whole session: the first call costs about 1.5 s, later ones some 10 ms. Raises tests.support.line_server.Refused
    with Java's message where Java refuses.
    jvm: more flags of the JVM.
    class_path: more jars, behind the oracle's own.
    """

    def __init__(self, time_zone: str = "UTC", jvm: str = "", class_path: str = "") -> None:
        environment = {"ORACLE_TZ": time_zone, "ORACLE_JVM": jvm, "ORACLE_CLASS_PATH": class_path}
        self._server = LineServer([ORACLE / "oracle", "serve"], environment)

    def close(self) -> None:
        self._server.close()

    def command(self, name: str, warehouse: Path | str, table: str, *arguments: str, **flags: Json) -> list[Json]:
        """Any command: flag `commit_id=7` becomes `--commit-id 7`, True a bare flag, None and False nothing, a dict of
        `option` one `--option k=v` each."""
        line = [name, str(warehouse), table, *arguments]
        for flag, value in flags.items():
            dashed = "--" + flag.replace("_", "-")
            match value:
                case None | False:
                    continue
                case True:
                    line.append(dashed)
                case Mapping() if flag == "option":
                    line += [part for key, text in value.items() for part in (dashed, f"{key}={text}")]
                case str() | int():
                    line += [dashed, str(value)]
                case _:
                    line += [dashed, json.dumps(value)]
        return self._server.ask(line)

    # ------------------------------------------------------------ reading

    def read(
        self,
        warehouse: Path | str,
        table: str,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        branch: str | None = None,
        where: Json = None,
        options: Mapping[str, str] | None = None,
    ) -> list[dict[str, Json]]:
        """The merged rows of the latest snapshot, or of the one named; those that fulfil `where` (oracle's README)."""
        record("Java", warehouse, table)
        return self.command(
            "read", warehouse, table, snapshot=snapshot, tag=tag, branch=branch, where=where, option=options
        )

    def stream(
        self,
        warehouse: Path | str,
        table: str,
        *,
        start: int = 1,
        end: int | None = None,
        branch: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> list[dict[str, Json]]:
        """What a streaming reader gets for snapshots start to end, both included: rows with `_snapshot` and `_kind`."""
        return self.command("stream", warehouse, table, **{"from": start}, to=end, branch=branch, option=options)

    def options(self) -> list[dict[str, Any]]:
        """All options that Java declares. The members of each include its key, type, default and fallback keys."""
        declared: list[dict[str, Any]] = self._server.ask(["options"])
        return declared

    def system(
        self, warehouse: Path | str, table: str, system_table: str, *, options: Mapping[str, str] | None = None
    ) -> list[dict[str, Json]]:
        """Rows of a system table: snapshots, files, manifests, schemas, options, partitions, buckets, tags, …"""
        return self.command("system", warehouse, table, system_table, option=options)

    def expected(self, warehouse: Path | str, table: str) -> Json:
        """All that Java reads of a table, in the form of a golden table's expected.json."""
        (answer,) = self.command("expected", warehouse, table, line=True)
        return answer

    # ------------------------------------------------------------ writing

    def create(
        self,
        warehouse: Path | str,
        table: str,
        columns: Sequence[Mapping[str, Json]],
        *,
        primary_keys: Sequence[str] = (),
        partition_keys: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """columns: {name, type, nullable, comment, default}; type is SQL text, or a schema file's JSON."""
        ddl = {
            "columns": columns,
            "primaryKeys": primary_keys,
            "partitionKeys": partition_keys,
            "options": options or {},
        }
        self.command("create", warehouse, table, ddl=ddl)

    def write(
        self,
        warehouse: Path | str,
        table: str,
        rows: Iterable[Mapping[str, Json]],
        *,
        commit_user: str | None = None,
        commit_id: int | None = None,
        batches: int | None = None,
        wait_compaction: bool = False,
        full: bool = False,
        watermark: int | None = None,
        branch: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> int | None:
        """Write rows (`_kind` optional) in `batches` commits; the latest snapshot's id afterwards. Java compacts."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            return self._status(
                self.command(
                    "write",
                    warehouse,
                    table,
                    input=file.name,
                    commit_user=commit_user,
                    commit_id=commit_id,
                    batches=batches,
                    wait_compaction=wait_compaction,
                    full=full,
                    watermark=watermark,
                    branch=branch,
                    option=options,
                )
            )

    def write_format_table(
        self,
        warehouse: Path | str,
        table: str,
        rows: Iterable[Mapping[str, Json]],
        *,
        overwrite: Mapping[str, str] | None = None,
    ) -> None:
        """overwrite: the static partition that is replaced; {} is each partition written to."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
            file.flush()
            given = None if overwrite is None else json.dumps(overwrite)
            self.command("writeFormat", warehouse, table, input=file.name, overwrite=given)

    def compact(
        self, warehouse: Path | str, table: str, *, full: bool = False, commit_user: str | None = None
    ) -> int | None:
        """Compact every bucket; the latest snapshot's id afterwards."""
        return self._status(self.command("compact", warehouse, table, full=full, commit_user=commit_user))

    def delete(self, warehouse: Path | str, table: str, where: Mapping[str, Json]) -> int | None:
        """Append tables: a deletion vector for each row that equals `where`."""
        return self._status(self.command("delete", warehouse, table, where=where))

    def alter(self, warehouse: Path | str, table: str, change: Json) -> None:
        """One change or a list of them, as the oracle's README spells them."""
        self.command("alter", warehouse, table, change=change)

    def tag(self, warehouse: Path | str, table: str, tag: str, *, snapshot: int | None = None) -> None:
        self.command("tag", warehouse, table, tag, snapshot=snapshot)

    def branch(self, warehouse: Path | str, table: str, branch: str, *, tag: str | None = None) -> None:
        self.command("branch", warehouse, table, branch, tag=tag)

    def rollback(
        self, warehouse: Path | str, table: str, *, snapshot: int | None = None, tag: str | None = None
    ) -> int | None:
        return self._status(self.command("rollback", warehouse, table, snapshot=snapshot, tag=tag))

    def expire(
        self, warehouse: Path | str, table: str, *, retain_max: int | None = None, retain_min: int | None = None
    ) -> int:
        """The number of snapshots that went."""
        (answer,) = self.command("expire", warehouse, table, retain_max=retain_max, retain_min=retain_min)
        return int(answer["expired"])

    def step(self, warehouse: Path | str, table: str, step: Mapping[str, Json]) -> int | None:
        """Any step of a golden table's steps.json."""
        return self._status(self.command("step", warehouse, table, json=step))

    @staticmethod
    def _status(answer: list[Json]) -> int | None:
        snapshot = answer[-1]["snapshot"]
        return None if snapshot is None else int(snapshot)


@pytest.fixture(scope="session")
def java_oracle() -> Iterator[JavaOracle]:
    """Built into the cache if absent; fails, saying what is missing, where it cannot be had."""
    build_tool(ORACLE / "build")
    oracle = JavaOracle()
    yield oracle
    oracle.close()
