"""Fixtures that every test has: see the modules named here."""

from __future__ import annotations

pytest_plugins = [
    "tests.support.blocking",
    "tests.support.java_oracle",
    "tests.support.kafka_broker",
    "tests.support.pypaimon",
    "tests.support.s3_server",
]
