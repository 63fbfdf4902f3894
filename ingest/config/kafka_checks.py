"""Checks of a Kafka source that no single setting allows: contradicting settings, and invalid addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tidelake.ingest.config.yaml_settings import Path
from tidelake.ingest.source_settings import KafkaSettings, StartSettings

_PORT_MAX: Final = 65_535
_FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_BROKER: Final = re.compile(
    r"(?P<host>\[[^\[\]]+\]|[^:\[\]]+)(?::(?P<port>\d+))?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*:[0-9a-fA-F:.]*"
)


def kafka_errors(source: KafkaSettings) -> Iterator[tuple[Path, str, str]]:
    """Yield (path below `source`, reason, remedy) of each error."""
    if not source.topic_names and source.topic_pattern is None:
        yield (), "no topic is named", "Add `topics: […]` or `topic_pattern: …`."
    if source.topic_pattern is not None:
        try:
            re.compile(source.topic_pattern)
        except (re.error, RecursionError, OverflowError) as error:
            yield ("topic_pattern",), f"not a regular expression: {error}", "Example: `shop\\.public\\..*`."
    if isinstance(source.start, StartSettings):
        given = [name for name in StartSettings.__struct_fields__ if getattr(source.start, name) is not None]
        if len(given) != 1:
            reason = f"`start` names {' and '.join(given) or 'nothing'}"
            yield ("start",), reason, f"Set exactly one of {', '.join(StartSettings.__struct_fields__)}."
    needs_password = source.security_protocol.startswith("SASL") and source.sasl_mechanism != "GSSAPI"
    if needs_password and (source.sasl_plain_username is None or source.sasl_plain_password is None):
        yield (
            ("security_protocol",),
            f"{source.security_protocol} with {source.sasl_mechanism} needs a user and a password",
            "Add `sasl_plain_username`; the password is best set as TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD.",
        )
    yield from _addresses(source)
    yield from _unused(source)


def _addresses(source: KafkaSettings) -> Iterator[tuple[Path, str, str]]:
    given = source.bootstrap_servers
    for server in map(str.strip, given.split(",") if isinstance(given, str) else given):
        found = _BROKER.fullmatch(server)
        if "://" in server:
            reason = f"{server!r} begins with a protocol"
            yield ("bootstrap_servers",), reason, "Write `host:port`, and set the protocol with `security_protocol`."
        elif found is None or int(found["port"] or 1) not in range(1, _PORT_MAX + 1) or re.search(r"\s", server):
            yield ("bootstrap_servers",), f"{server!r} is not the address of a broker", "Example: `kafka:9092`."


def _unused(source: KafkaSettings) -> Iterator[tuple[Path, str, str]]:
    """Yield settings that have no effect with the other settings, although a user would expect one.

    A password is allowed, because it may come from an environment that several pipelines share.
    """
    parts = source.security_protocol.split("_")
    names = [name for name in _FILES if getattr(source, name) is not None] if "SSL" not in parts else []
    if "SASL" not in parts and source.sasl_plain_username is not None:
        names.append("sasl_plain_username")
    for name in names:
        wanted = "SSL or SASL_SSL" if name in _FILES else "SASL_SSL or SASL_PLAINTEXT"
        reason = f"with `security_protocol` {source.security_protocol} it would not be used"
        yield (name,), f"`{name}`: {reason}", f"Set `security_protocol` to {wanted}, or leave it out."
    if source.ssl_keyfile is not None and source.ssl_certfile is None:
        yield ("ssl_keyfile",), "a key has no effect without its certificate", "Add `ssl_certfile`."
