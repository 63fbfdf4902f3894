"""States of a pipeline, as the documents of `/status` and `/history`, for pictures of the status page.

The numbers are made up and never change. `test_pages.py` compares the members with those of a real pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

Document = dict[str, Any]

NOW_MS: Final = 1_777_636_800_000  # 2026-05-01 12:00:00 UTC
_STARTED_MS: Final = NOW_MS - 26 * 3_600_000 - 14 * 60_000
_TABLES: Final = ("orders", "order_lines", "customers", "payments", "shipments", "stock_by_warehouse")


def _bucket(number: int, scale: int) -> Document:
    levels = {"0": (1 + number % 3, 40_000), "4": (1, 900_000), "5": (3, 14_000_000)}
    return {
        "partition": 0,
        "bucket": number,
        "levels": {level: {"files": files, "bytes": size * scale} for level, (files, size) in levels.items()},
    }


def _table(number: int, name: str, **changed: Any) -> Document:
    buckets = [_bucket(bucket, 1 + 3 * number % 7) for bucket in range(2 + number % 3)]
    levels = [level for bucket in buckets for level in bucket["levels"].values()]
    rows = 1_200_000 + 7_919 * number * number
    document = {
        "name": name,
        "rows": rows,
        "rows_are_exact": number % 2 == 0,
        "rows_written": rows // 3,
        "snapshot_id": 41_200 + number,
        "commits": 19_000 + number,
        "commit_attempts": 19_004 + number,
        "commit_ms": 38 + 7 * (number % 5),
        "committed_at_ms": NOW_MS - 2_300,
        "newest_record_at_ms": NOW_MS - 3_400,
        "oldest_age_ms": 4_100,
        "freshness_ms": 3_400 + 120 * (number % 9),
        "compactions": 812,
        "files": sum(level["files"] for level in levels),
        "file_bytes": sum(level["bytes"] for level in levels),
        "uncompacted_bytes": 2_400_000 * (1 + number % 4),
        "write_amplification": 3.1 + 0.4 * (number % 6),
        "sorted_runs_max": 3 + number % 3,
        "bucket_count": len(buckets),
        "buckets": buckets,
        "target_ms": None,
        "held_back": None,
    }
    return {**document, **changed}


def _partition(topic: str, partition: int, lag: int | None) -> Document:
    committed = 8_412_000 + 1_311 * partition
    read = committed + 300
    return {
        "topic": topic,
        "partition": partition,
        "committed": committed,
        "read": read,
        "end": None if lag is None else committed + lag,
        "lag": lag,
        "lag_ms": None if lag is None else 2 * lag,
    }


def calm(names: tuple[str, ...] = _TABLES) -> Document:
    """A pipeline that keeps up."""
    topics = [f"shop.public.{name}" for name in names]
    partitions = [_partition(topic, number, 410 + 60 * number) for topic in topics for number in range(2)]
    recent = [
        {
            "identifier": 19_000 + number,
            "ended_at_ms": NOW_MS - 5_000 * (59 - number) - 1_200,
            "took_ms": 180 + 90 * (number * 7 % 11),
            "tables": 4 + number % 3,
            "rows": 21_000 + 900 * (number % 13),
            "records": 22_000 + 900 * (number % 13),
            "nbytes": 9_000_000,
        }
        for number in range(60)
    ]
    return {
        "pipeline": "shop",
        "config": "/etc/tidelake/shop.yaml",
        "version": "0.1.0",
        "state": "RUNNING",
        "now_ms": NOW_MS,
        "started_at_ms": _STARTED_MS,
        "ready": True,
        "reasons": [],
        "lag": sum(one["lag"] for one in partitions),
        "lag_ms": 1_900,
        "waiting_ms": 1_900,
        "rows": 402_118_231,
        "records": 417_334_902,
        "bytes": 171_000_000_000,
        "transactions": {"waiting": 0, "split": 0},
        "skipped": {"tombstone": 18_211, "heartbeat": 40_312},
        "dead_letters": {},
        "write_buffer": {"bytes": 61_000_000, "limit_bytes": 268_435_456},
        "compactions": {"waiting": 1, "running": 2},
        "activities": [],
        "checkpoint": {"interval_ms": 5_000, "count": 19_059, "recent": recent},
        "freshness": None,
        "partitions": partitions,
        "tables": [_table(number, f"shop.{name}") for number, name in enumerate(names)],
    }


def just_started() -> Document:
    """No record has arrived, no table exists yet."""
    state = calm()
    tables = [
        _table(0, table["name"], **dict.fromkeys(set(table) - {"name", "buckets", "rows", "rows_written"}), buckets=[])
        | {"rows": 0, "rows_written": 0}
        for table in state["tables"]
    ]
    return state | {
        "started_at_ms": NOW_MS - 900,
        "lag": 0,
        "lag_ms": None,
        "records": 0,
        "bytes": 0,
        "skipped": {},
        "write_buffer": {"bytes": 0, "limit_bytes": 268_435_456},
        "compactions": {"waiting": 0, "running": 0},
        "checkpoint": {"interval_ms": 5_000, "count": 0, "recent": []},
        "partitions": [],
        "tables": tables,
    }


def source_away() -> Document:
    """The brokers have not answered for three minutes."""
    state = calm()
    away = "the brokers have not answered for 3 min: kafka-1.internal.example:9092, kafka-2.internal.example:9092"
    return state | {
        "ready": False,
        "reasons": [{"code": "source_unreachable", "reason": away}],
        "lag": None,
        "lag_ms": None,
        "partitions": [_partition(one["topic"], one["partition"], None) for one in state["partitions"]],
        "tables": [table | {"freshness_ms": table["freshness_ms"] + 184_000} for table in state["tables"]],
    }


def quarantine() -> Document:
    """Two tables are held back, one with a long reason."""
    reason = "the value 'twelve' of column amount is no DECIMAL(10, 2): record shop.public.orders 1:8413355"
    longer = (
        "in quarantine since 2026-05-01T09:14:03Z, 48,211 records wait (31 MiB): /data/lake/shop.db/payments/snapshot: "
        "the operating system denies access. Give the user of the pipeline the right to write there"
    )
    held = {"shop.orders": f"in quarantine, 1,204 records wait: {reason}", "shop.payments": longer}
    state = calm()
    reasons = [{"code": "table_held_back", "reason": f"{name}: {why}"} for name, why in held.items()]
    tables = [table | {"held_back": held.get(table["name"])} for table in state["tables"]]
    return state | {"ready": False, "reasons": reasons, "tables": tables}


def dead_letters() -> Document:
    """Records could not be decoded, and a promise of freshness is kept with effort."""
    changes = [
        {
            "at_ms": NOW_MS - 60_000 * number,
            "changed": "a checkpoint every 1.2 s",
            "reason": "shop.orders reached 2.8 s of 3 s",
        }
        for number in range(3)
    ]
    kept = {
        "target_ms": 3_000,
        "table": "shop.orders",
        "reached_ms": 2_800,
        "binds": "store",
        "reason": "a commit takes 810 ms, of which the store 640 ms",
        "compaction": "half",
        "buffer_bytes": 33_554_432,
        "hour": {"puts": 31_000, "gets": 12_400, "nbytes": 2_100_000_000, "price": 0.161, "currency": "USD"},
        "changes": changes,
    }
    return calm() | {
        "dead_letters": {"BAD_RECORD": 1_204, "UNKNOWN_VALUE": 3},
        "lag_ms": 14_000,
        "freshness": kept,
    }


def many_tables() -> Document:
    """Five hundred tables, some with long names."""
    names = tuple(
        f"{_TABLES[number % 6]}_{number:03}"
        + ("_of_a_rather_long_department_name_in_the_north" if number % 7 == 3 else "")
        for number in range(500)
    )
    return calm(names)


STATES: Final[dict[str, Callable[[], Document]]] = {
    "calm": calm,
    "just-started": just_started,
    "source-away": source_away,
    "quarantine": quarantine,
    "dead-letters": dead_letters,
    "many-tables": many_tables,
}


def history(state: Document) -> Document:
    """Three hours, with a gap in the lag while the source is away."""
    if not state["records"]:
        return {name: [] for name in ("at_ms", "lag", "lag_ms", "freshness_ms", "stalest", "records")} | {
            "step_ms": 5_000
        }
    points, step_ms = 360, 30_000
    lag = [int(6_000 + 5_200 * math.sin(n / 17) + (90_000 if 200 < n < 214 else 0)) for n in range(points)]
    known = points - 6 if state["lag"] is None else points
    return {
        "step_ms": step_ms,
        "at_ms": [NOW_MS - step_ms * (points - n) for n in range(points)],
        "lag": [lag[n] if n < known else None for n in range(points)],
        "lag_ms": [lag[n] // 4 if n < known else None for n in range(points)],
        "freshness_ms": [2_500 + lag[n] // 5 for n in range(points)],
        "stalest": ["shop.orders"] * points,
        "records": [400_000_000 + 48_000 * n + int(120_000 * math.sin(n / 29)) for n in range(points)],
    }
