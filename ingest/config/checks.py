"""Checks of a configuration that need several settings at once, made before any table is created.

They concern the entries of `tables` that stand for many tables, the Kafka source, and the options of tables. Checks
that need the columns are possible only after the first record of a table (`tidelake.ingest.tables.pipeline_tables`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from typing import Final
from urllib.parse import urlsplit

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.config.yaml_settings import Path
from tidelake.ingest.settings import PLACEHOLDER, TableSettings
from tidelake.ingest.source_settings import KafkaSettings, StartSettings
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import UNAWARE_BUCKET
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation, TableOptions
from tidelake.storage.model.options.option_changes import meant_instead
from tidelake.storage.model.options.registry import find_option
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import STRING, DataField


def template_errors(entry: TableSettings) -> list[tuple[str, str, str]]:
    """Return (setting, reason, remedy) of each error of an entry of many tables, or of `source_tables` of another
    entry.
    """
    found: list[tuple[str, str, str]] = []
    of = entry.source_tables
    if not entry.is_template:
        if of is not None:
            found.append(
                (
                    "source_tables",
                    "it is only for an entry of several tables",
                    "Put {table} into `name`, or leave it out.",
                )
            )
        return found
    if entry.paused:
        remedy = "Pause one of its tables with `tidelake ingest pause CONFIG TABLE`."
        found.append(("paused", "an entry of several tables can't be paused", remedy))
    database, _, table = entry.name.partition(".")
    names = PLACEHOLDER.findall(table)
    parts = _topic_parts(None if of is None else of.topic_parts)
    if not isinstance(parts, frozenset):
        found.append(("source_tables", f"`topic_parts` {parts}", "Example: `(?P<region>[a-z]+)\\..*`."))
        return found
    if PLACEHOLDER.search(database) or not set(names) <= _PLACEHOLDERS | parts:
        found.append(("name", "it has a placeholder that is not allowed here", "Write database.{table}, for example."))
    elif not ({"table", "topic"} | parts) & set(names):
        found.append(("name", "several tables would have the same name", "Put {table} or {topic} into it."))
    for setting in ("columns", "source_types", "rounded_columns"):
        if getattr(entry, setting):
            reason = "it names columns of one table, but this entry is for several tables"
            found.append((setting, reason, "Write a separate entry for the table, before or after this one."))
    if of is None:
        return found
    for setting in ("including_tables", "excluding_tables", "including_dbs", "excluding_dbs"):
        try:
            re.compile(getattr(of, setting) or "")
        except (re.error, RecursionError, OverflowError) as error:
            reason = f"`{setting}` is not a regular expression: {error}"
            found.append(("source_tables", reason, "Example: `orders|item.*`."))
    if (of.prefix_of_db or of.suffix_of_db) and "table" not in names:
        found.append(("source_tables", "prefixes and suffixes need {table} in `name`", "Put {table} into `name`."))
    for source, target in of.mapping.items():
        try:
            is_name = Identifier.parse(f"{database}.{target}").is_plain and "." not in target
        except BadInput:
            is_name = False
        if not is_name or PLACEHOLDER.search(target):
            reason = f"`mapping` gives {source} the name {target!r}, which is not the name of a table"
            found.append(("source_tables", reason, "Write the table part of a name, without the database."))
    return found


_PLACEHOLDERS: Final = frozenset({"table", "schema", "database", "topic"})


def _topic_parts(text: str | None) -> frozenset[str] | str:
    """Return the names of the groups of `topic_parts`, or what is wrong with it."""
    try:
        parts = frozenset(re.compile(text or "").groupindex)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    if text is not None and not parts:
        return "has no named group. Restrict topics with `topics`"
    if taken := sorted(parts & _PLACEHOLDERS):
        return f"names a group {taken[0]}, and {{{taken[0]}}} already has a meaning"
    return parts


_PORT_MAX: Final = 65_535
_PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGINS: Final = {
    "sasl_plain_username": _PASSWORDS,
    **dict.fromkeys(
        [
            name
            for name in KafkaSettings.__struct_fields__
            if name.startswith("sasl_oauthbearer_") and not name.endswith("_secret")
        ],
        ("OAUTHBEARER",),
    ),
    **dict.fromkeys(("aws_region", "aws_profile", "aws_role_arn"), ("AWS_MSK_IAM",)),
}
"""Settings to the mechanisms that use them."""
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
    yield from login_errors(source)
    yield from _addresses(source)
    yield from _unused(source)


def login_errors(source: KafkaSettings) -> Iterator[tuple[Path, str, str]]:
    """Yield (path below `source`, reason, remedy) of each setting that `sasl_mechanism` needs."""
    if not source.is_sasl:
        return
    given = f"{source.security_protocol} with {source.sasl_mechanism}"
    match source.sasl_mechanism:
        case "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512":
            if source.sasl_plain_username is None or source.sasl_plain_password is None:
                yield (
                    ("security_protocol",),
                    f"{given} needs a user and a password",
                    "Add `sasl_plain_username`; the password is best set as TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD.",
                )
        case "OAUTHBEARER":
            needed = ("sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_client_id")
            missing = [f"`{name}`" for name in needed if getattr(source, name) is None]
            if missing or source.sasl_oauthbearer_client_secret is None:
                yield (
                    ("security_protocol",),
                    f"{given} needs a token endpoint, a client id and a client secret",
                    (f"Add {' and '.join(missing)}; the" if missing else "The")
                    + " secret is best set as TIDELAKE_SOURCE__SASL_OAUTHBEARER_CLIENT_SECRET.",
                )
            yield from _endpoint_errors(source.sasl_oauthbearer_token_endpoint_url or "https://given")
            for name, value in source.sasl_oauthbearer_extensions.items():
                if not re.fullmatch("[A-Za-z]+", name) or name.lower() == "auth" or not _EXTENSION.fullmatch(value):
                    yield (
                        ("sasl_oauthbearer_extensions", name),
                        f"`{name}` can't be sent with a token",
                        "Names have letters only, and are not `auth`; values have printable characters.",
                    )
        case "AWS_MSK_IAM":
            if source.security_protocol != "SASL_SSL":
                yield ("security_protocol",), f"{given}: MSK takes tokens over TLS only", "Write SASL_SSL."
            if source.msk_region is None:
                yield (
                    ("sasl_mechanism",),
                    "AWS_MSK_IAM needs the region of the cluster, and the names of the brokers don't have it",
                    "Add `aws_region`.",
                )
            if source.aws_profile is not None and source.aws_role_arn is not None:
                yield (
                    ("aws_profile",),
                    "`aws_profile` and `aws_role_arn` are two ways to get credentials",
                    "Keep one of them. A profile may assume a role itself.",
                )


_EXTENSION: Final = re.compile(r"[\x20-\x7E\t\r\n]+")


def _endpoint_errors(url: str) -> Iterator[tuple[Path, str, str]]:
    at, parts = ("sasl_oauthbearer_token_endpoint_url",), urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield at, "it is not an http or https URL", "Example: `https://login.example.com/oauth2/token`."
    elif parts.username or parts.password:
        yield (
            at,
            "it contains a user or a password, which messages would show",
            "Set `sasl_oauthbearer_client_id`, and TIDELAKE_SOURCE__SASL_OAUTHBEARER_CLIENT_SECRET.",
        )


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
    if not source.is_sasl:
        names += [name for name in _LOGINS if getattr(source, name)]
    else:
        for name, mechanisms in _LOGINS.items():
            if getattr(source, name) and source.sasl_mechanism not in mechanisms:
                reason = f"with `sasl_mechanism` {source.sasl_mechanism} it would not be used"
                remedy = f"Set `sasl_mechanism` to {' or '.join(mechanisms)}, or leave it out."
                yield (name,), f"`{name}`: {reason}", remedy
    for name in names:
        wanted = "SSL or SASL_SSL" if name in _FILES else "SASL_SSL or SASL_PLAINTEXT"
        reason = f"with `security_protocol` {source.security_protocol} it would not be used"
        yield (name,), f"`{name}`: {reason}", f"Set `security_protocol` to {wanted}, or leave it out."
    if source.ssl_keyfile is not None and source.ssl_certfile is None:
        yield ("ssl_keyfile",), "a key has no effect without its certificate", "Add `ssl_certfile`."


_KEYS: Final = {"primary-key": "primary_key", "partition": "partition_by"}


def option_errors(table: TableSettings) -> Iterator[tuple[str | None, str, str]]:
    """Yield (option, reason, remedy) of each error. The option is None if several options together are the error.

    A name that Paimon doesn't know is accepted, unless it resembles a known one: tables may have options for other
    programs.
    """
    options = table.raw_options
    for key, text in options.items():
        if key in _KEYS:
            yield key, f"option {key} has the same meaning as `{_KEYS[key]}`", f"Set `{_KEYS[key]}` instead."
        elif (option := find_option(key)) is None:
            if hint := meant_instead(key):
                yield key, f"Paimon has no option {key!r}{hint}", "Correct the name, or leave the option out."
        else:
            try:
                option.kind.check(text)
            except BadInput as error:
                yield key, f"option {key} = {text!r}: {error}", "Correct the value."
                return
    try:
        check_supported(_preview_table(table, options), Operation.WRITE)
    except UnsupportedFeature as error:
        named = next((key for key in options if f"option {key} " in error.feature), None)
        yield named, f"{error.feature}: {error.reason}", error.remedy
    except BadInput as error:
        yield None, str(error), "Correct the options."


def _preview_table(table: TableSettings, options: dict[str, str]) -> TableContext:
    """Return a table with these options that is not stored anywhere. It has columns only for its keys."""
    primary_key = table.key_of_new(())
    names = dict.fromkeys(chain(primary_key, table.partition_by, ["some_column"]))
    fields = tuple(DataField(number, name, STRING) for number, name in enumerate(names))
    schema = TableSchema(
        0,
        fields,
        len(fields),
        primary_keys=tuple(primary_key),
        partition_keys=tuple(table.partition_by),
        options=options,
    )
    if not table.primary_key and bucket_mode(schema, TableOptions(schema.options)) is BucketMode.FIXED:
        schema = TableSchema(0, fields, len(fields), options={**schema.options, "bucket": str(UNAWARE_BUCKET)})
    return TableContext(LocalFileIO(), "/nowhere", table.name, schema, TableOptions(schema.options))
