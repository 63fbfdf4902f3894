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
from tidelake.ingest.config.checks import login_errors
from tidelake.ingest.config.java_login import java_login
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.tls import conversion
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
    "sasl.oauthbearer.token.endpoint.url": "sasl_oauthbearer_token_endpoint_url",
    "sasl.oauthbearer.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.secret": "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.scope": "sasl_oauthbearer_scope",
    "sasl.oauthbearer.extensions": "sasl_oauthbearer_extensions",
    "https.ca.location": "sasl_oauthbearer_cafile",
    "aws.region": "aws_region",
    "aws.profile": "aws_profile",
    "aws.role.arn": "aws_role_arn",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
}

_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_HOSTNAME_CHECK_OPTION: Final = "ssl.endpoint.identification.algorithm"
_JAAS: Final = "sasl.jaas.config"
_JAVA_NAMES: Final = {  # since Kafka 4.1
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_FIXED_VALUES: Final[Mapping[str, frozenset[str]]] = {
    "sasl.oauthbearer.method": frozenset({"oidc"}),
    "sasl.oauthbearer.grant.type": frozenset({"client_credentials"}),
    "sasl.login.callback.handler.class": frozenset({"OAuthBearerLoginCallbackHandler"}),
    "sasl.client.callback.handler.class": frozenset({"IAMClientCallbackHandler"}),
}
"""Options of which one value is the behaviour here; of classes without their package."""
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
    given = {
        _JAVA_NAMES.get(name, name): value
        for name, value in ((key.removeprefix(PREFIX), v) for key, v in options.items() if key.startswith(PREFIX))
    }
    settings: dict[str, Any] = {"isolation_level": "read_uncommitted"}  # the default of Kafka clients
    for name, value in given.items():
        if name == _EXTENSIONS:
            settings[SETTING_OF_OPTION[name]] = _pairs(value)
        elif name in SETTING_OF_OPTION:
            settings[SETTING_OF_OPTION[name]] = value
        elif name in _FIXED_VALUES:
            if value.strip().rpartition(".")[2] not in _FIXED_VALUES[name]:
                raise UnsupportedFeature(
                    f"option {PREFIX}{name} = {value}",
                    f"only {', '.join(_FIXED_VALUES[name])} is understood",
                    "Leave it out, and set kafka.sasl.mechanism to OAUTHBEARER (client credentials) or AWS_MSK_IAM",
                )
        elif name == _JAAS:
            settings |= java_login(value, f"option {PREFIX}{_JAAS}")
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
        found = msgspec.convert({"type": "kafka", **settings}, KafkaSettings, strict=False, dec_hook=_decoded)
    except msgspec.ValidationError as error:
        text = str(error)
        for name, setting in SETTING_OF_OPTION.items():
            text = text.replace(f"`$.{setting}`", f"option {PREFIX}{name}")
        raise BadInput(text) from None
    _check_login(found)
    return found


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
    if isinstance(value, Mapping):
        return ",".join(f"{name}={text}" for name, text in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def _decoded(kind: type, value: Any) -> Any:
    return Secret(value) if kind is Secret else Path(value)


def _pairs(text: str) -> dict[str, str]:
    """Parse librdkafka's `name=value,name=value`."""
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    if any(not equals for _, equals, _ in pairs):
        raise BadInput(f"option {PREFIX}{_EXTENSIONS} = {text!r}: write name=value, separated by commas")
    return {name.strip(): value for name, _, value in pairs}


def _check_login(settings: KafkaSettings) -> None:
    """Raise BadInput for a setting that is missing, or has no effect with the mechanism."""
    names = {setting: name for name, setting in SETTING_OF_OPTION.items()}
    for path, reason, remedy in login_errors(settings):
        where = f"option {PREFIX}{names[str(path[0])]}: " if path and str(path[0]) in names else ""
        text = f"{where}{reason}. {re.sub(r'TIDELAKE_SOURCE__([A-Z_]+)', _option_of_variable, remedy)}"
        for name, setting in SETTING_OF_OPTION.items():
            text = text.replace(f"`{setting}`", f"{PREFIX}{name}")
        raise BadInput(text)


def _option_of_variable(match: re.Match[str]) -> str:
    of_setting = {setting: name for name, setting in SETTING_OF_OPTION.items()}
    return PREFIX + of_setting[match[1].lower()]


def _store(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for Java's stores, if they are PEM files."""
    store, _, part = name.rpartition(".")
    if part == "location" and given.get(f"{store}.type", "JKS").upper() == "PEM" and store in _STORES:
        return {_STORES[store]: given[name]}
    if part == "type" and given[name].upper() == "PEM":
        return {}
    remedy = f"Set kafka.ssl.ca.location and kafka.ssl.certificate.location, or {PREFIX}{store}.type=PEM"
    if (location := given.get(f"{store}.location")) is not None and store in _STORES:
        kind = "PKCS12" if given.get(f"{store}.type", "").upper() == "PKCS12" else "JKS"
        trusted = store == "ssl.truststore"
        option = f"{PREFIX}ssl.ca.location" if trusted else f"{PREFIX}ssl.certificate.location"
        remedy = conversion(Path(location), kind, trusted, option)
        if not trusted:
            remedy += f" as {PREFIX}ssl.key.password"
    raise UnsupportedFeature(f"option {PREFIX}{name}", "Java key stores can't be read, only PEM files", remedy)


def _refused(name: str) -> UnsupportedFeature:
    known = [PREFIX + known for known in (*SETTING_OF_OPTION, _JAAS, _HOSTNAME_CHECK_OPTION)]
    reason = _FIXED_OPTIONS.get(name, f"this data source has no such option{did_you_mean(PREFIX + name, known)}")
    return UnsupportedFeature(f"option {PREFIX}{name}", reason, "Leave it out")
