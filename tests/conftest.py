"""Fixtures of all tests; see the modules named here."""

from __future__ import annotations

pytest_plugins = [
    "tests.crash.points",
    "tests.support.blocking",
    "tests.support.command_line",
    "tests.support.conformance",
    "tests.support.durations",
    "tests.support.java_oracle",
    "tests.support.hdfs",
    "tests.support.hive_metastore",
    "tests.support.kafka_broker",
    "tests.support.external_services",
    "tests.support.levels",
    "tests.support.local_zone",
    "tests.support.postgresql",
    "tests.support.rest_catalog",
    "tests.support.pypaimon",
    "tests.support.s3_server",
    "tests.support.spark_session",
    "tests.support.unreliable_s3",
    "tests.support.workers",
]
