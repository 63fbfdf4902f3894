"""Converts options `kafka.…`, those of a Kafka client, to our settings and back.

Names are those of Java's client, and librdkafka's for options in which Java's client names Java's files. Names are in
lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.storage.model.messages import did_you_mean

PREFIX: Final = "kafka."

SETTING_OF_OPTION: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "isolation.level": "isolation_level",
    "metadata.max.age.ms": "discovery_interval_ms",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "request.timeout.ms": "request_timeout_ms",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "fetch.min.bytes": "fetch_min_bytes",
    "fetch.max.bytes": "fetch_max_bytes",
    "fetch.max.wait.ms": "fetch_max_wait_ms",
    "max.partition.fetch.bytes": "max_partition_fetch_bytes",
    "check.crcs": "check_crcs",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.kerberos.domain.name": "sasl_kerberos_domain_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}

_HOSTNAME_CHECK_OPTION: Final = "ssl.endpoint.identification.algorithm"
_JAAS: Final = "sasl.jaas.config"
_JAAS_OPTION: Final = re.compile(r"(\w+)\s*=\s*\"((?:[^\"\\]|\\.)*)\"")
_STORES: Final = {"ssl.truststore": "ssl_cafile", "ssl.keystore": "ssl_certfile"}
# no group is joined, so no permission is needed for one; record batches are read as a whole
_NO_EFFECT: Final = frozenset({"group.id", "max.poll.records"})
_FIXED_OPTIONS: Final = {
    "auto.offset.reset": "startingOffsets decides where a query begins, and offsets are never reset afterwards",
    "enable.auto.commit": "Spark keeps the offsets, and nothing is committed to Kafka",
    "key.deserializer": "keys are not deserialized; decode them with functions of DataFrames",
    "value.deserializer": "values are not deserialized; decode them with functions of DataFrames",
    "interceptor.classes": "they are Java classes",
}


def client_settings(options: Mapping[str, str]) -> KafkaSettings:
    """Convert options to settings.

    options: those of the source, with `kafka.`.

    Raises BadInput for invalid values, UnsupportedFeature for options that would have another effect here.
    """
    given = {key.removeprefix(PREFIX): value for key, value in options.items() if key.startswith(PREFIX)}
    settings: dict[str, Any] = {"isolation_level": "read_uncommitted"}  # the default of Kafka clients
    for name, value in given.items():
        if name in SETTING_OF_OPTION:
            settings[SETTING_OF_OPTION[name]] = value
        elif name == _JAAS:
            settings |= _login(value)
        elif name == _HOSTNAME_CHECK_OPTION:
            settings["ssl_check_hostname"] = bool(value.strip())
        elif name.startswith(tuple(_STORES)):
            settings |= _store(name, given)
        elif name not in _NO_EFFECT:
            raise _refused(name)
    if "bootstrap_servers" not in settings:
        raise BadInput("option kafka.bootstrap.servers is missing: host:port of a broker, or of several (a:1,b:1)")
    settings["bootstrap_servers"] = [server.strip() for server in settings["bootstrap_servers"].split(",")]
    try:
        return msgspec.convert({"type": "kafka", **settings}, KafkaSettings, strict=False, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        text = str(error)
        for name, setting in SETTING_OF_OPTION.items():
            text = text.replace(f"`$.{setting}`", f"option {PREFIX}{name}")
        raise BadInput(text) from None


def client_options(settings: KafkaSettings) -> dict[str, str]:
    """Convert settings to options. Options with their default value are left out."""
    options = {}
    for name, setting in SETTING_OF_OPTION.items():
        value = getattr(settings, setting)
        default = next(f.default for f in msgspec.structs.fields(settings) if f.name == setting)
        if setting in ("bootstrap_servers", "isolation_level") or value != default:
            options[PREFIX + name] = _text(value)
    if not settings.ssl_check_hostname:
        options[PREFIX + _HOSTNAME_CHECK_OPTION] = ""
    return options


def _text(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, list):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(kind: type, value: Any) -> Any:
    return Secret(value) if kind is Secret else Path(value)


def _login(config: str) -> dict[str, str]:
    """Parse Java's `…LoginModule required username="…" password="…";`."""
    found = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS_OPTION.findall(config)}
    if "username" not in found or "password" not in found:
        raise UnsupportedFeature(
            f"option {PREFIX}{_JAAS}",
            'only a login module with username="…" and password="…" is understood',
            "Set kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password",
        )
    return {"sasl_plain_username": found["username"], "sasl_plain_password": found["password"]}


def _store(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for Java's stores, if they are PEM files."""
    store, _, part = name.rpartition(".")
    if part == "location" and given.get(f"{store}.type", "JKS").upper() == "PEM" and store in _STORES:
        return {_STORES[store]: given[name]}
    if part == "type" and given[name].upper() == "PEM":
        return {}
    raise UnsupportedFeature(
        f"option {PREFIX}{name}",
        "Java key stores can't be read, only PEM files",
        "Set kafka.ssl.ca.location, kafka.ssl.certificate.location and kafka.ssl.key.location, or "
        f"{PREFIX}{store}.type=PEM",
    )


def _refused(name: str) -> UnsupportedFeature:
    known = [PREFIX + known for known in (*SETTING_OF_OPTION, _JAAS, _HOSTNAME_CHECK_OPTION)]
    reason = _FIXED_OPTIONS.get(name, f"this data source has no such option{did_you_mean(PREFIX + name, known)}")
    return UnsupportedFeature(f"option {PREFIX}{name}", reason, "Leave it out")
