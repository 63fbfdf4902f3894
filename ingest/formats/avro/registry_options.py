"""The options for a schema registry that all Avro formats share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from tidelake.errors import BadInput
from tidelake.ingest.secrets import HIDDEN, SECRET_NAME


@dataclass(frozen=True)
class RegistryOptions:
    """The options for a schema registry, with Confluent's names in underscore spelling.

    schema_registry_url: base URLs, separated by commas. They are tried in turn.
    basic_auth_user_info: `user:password`.
    bearer_auth_token: a token for authentication instead of user and password.
    bearer_auth_credentials_source: `STATIC_TOKEN` or `OAUTHBEARER`; it follows from the other options.
    bearer_auth_issuer_endpoint_url: a token endpoint that gives tokens for client id and secret.
    bearer_auth_client_id: the client's id there.
    bearer_auth_client_secret: the client's secret there.
    bearer_auth_scope: what tokens are asked for.
    bearer_auth_logical_cluster: sent with requests, for Confluent Cloud.
    bearer_auth_identity_pool_id: sent with requests, for Confluent Cloud.
    ssl_ca_location: a file of trusted certificates, instead of the system's.
    ssl_certificate_location: the client's certificate.
    ssl_key_location: the client's key.
    ssl_key_password: the password of the key.
    schema_registry_timeout_s: seconds of retries before an error reports that the registry is unavailable.
    """

    schema_registry_url: str = ""
    basic_auth_user_info: str = field(default="", repr=False)
    bearer_auth_token: str = field(default="", repr=False)
    bearer_auth_credentials_source: str = ""
    bearer_auth_issuer_endpoint_url: str = ""
    bearer_auth_client_id: str = ""
    bearer_auth_client_secret: str = field(default="", repr=False)
    bearer_auth_scope: str = ""
    bearer_auth_logical_cluster: str = ""
    bearer_auth_identity_pool_id: str = ""
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
    ssl_key_password: str = field(default="", repr=False)
    schema_registry_timeout_s: float = 30.0

    @classmethod
    def parsed(cls, format_: str, options: Mapping[str, Any]) -> RegistryOptions:
        """Return the parsed options.

        format_: the format's name, for messages.
        options: options in REGISTRY_OPTIONS.

        Raises BadInput for invalid values.
        """
        given = dict(options)
        try:
            timeout_s = float(given.pop("schema_registry_timeout_s", cls.schema_registry_timeout_s))
        except (TypeError, ValueError):
            timeout_s = -1.0
        if not 0 < timeout_s <= _TIMEOUT_S_MAX:
            raise BadInput(
                f"schema_registry_timeout_s of {format_} must be a number of seconds up to {_TIMEOUT_S_MAX:.0f}"
            )
        for name, value in given.items():
            if not isinstance(value, str):
                text = HIDDEN if SECRET_NAME.search(name) else repr(value)
                raise BadInput(f"{name} of {format_} must be a string, not {text}")
        parsed = cls(**given, schema_registry_timeout_s=timeout_s)
        for url in parsed.urls:
            _check_url(format_, "schema_registry_url", url, "basic_auth_user_info")
        parsed._check_tokens(format_)
        if parsed.basic_auth_user_info and parsed.bearer_auth_token:
            raise BadInput(f"{format_}: set basic_auth_user_info or bearer_auth_token, not both")
        if parsed.basic_auth_user_info and ":" not in parsed.basic_auth_user_info:
            raise BadInput(f"basic_auth_user_info of {format_} must be user:password")
        if parsed.ssl_key_location and not parsed.ssl_certificate_location:
            raise BadInput(f"{format_}: ssl_key_location needs ssl_certificate_location")
        return parsed

    def _check_tokens(self, format_: str) -> None:
        issuer = self.bearer_auth_issuer_endpoint_url
        source = self.bearer_auth_credentials_source or ("OAUTHBEARER" if issuer else "STATIC_TOKEN")
        if source not in ("OAUTHBEARER", "STATIC_TOKEN"):
            raise BadInput(
                f"bearer_auth_credentials_source of {format_} can't be {source!r}: write OAUTHBEARER or STATIC_TOKEN"
            )
        of_client = [name for name in _OF_CLIENT if getattr(self, name)]
        if source == "STATIC_TOKEN":
            if of_client:
                raise BadInput(
                    f"{format_}: {', '.join(of_client)} would not be used: set bearer_auth_issuer_endpoint_url, or "
                    "leave them out"
                )
            return
        if missing := [name for name in _OF_CLIENT[:3] if name not in of_client]:
            raise BadInput(f"{format_}: tokens from a token endpoint need {', '.join(missing)}")
        _check_url(format_, _OF_CLIENT[0], issuer, "bearer_auth_client_id and bearer_auth_client_secret")
        if self.basic_auth_user_info or self.bearer_auth_token:
            raise BadInput(
                f"{format_}: set bearer_auth_issuer_endpoint_url, or a token, or user and password: one of them"
            )

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(url.strip().rstrip("/") for url in self.schema_registry_url.split(",") if url.strip())


_OF_CLIENT: Final = (
    "bearer_auth_issuer_endpoint_url",
    "bearer_auth_client_id",
    "bearer_auth_client_secret",
    "bearer_auth_scope",
)


def _check_url(format_: str, name: str, url: str, instead: str) -> None:
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise BadInput(
            f"{name} of {format_} contains a password, which would appear in messages: set {instead} instead"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(f"{name} of {format_}: {parts.geturl()!r} is not an http or https URL")


_TIMEOUT_S_MAX: Final = 600.0
REGISTRY_OPTIONS: Final = tuple(option.name for option in fields(RegistryOptions))


def with_underscores(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with underscores in their names. Paimon and Confluent also use dots: `schema.registry.url`.

    Raises BadInput for an option in both spellings.
    """
    spelled: dict[str, Any] = {}
    for name, value in options.items():
        plain = name.replace(".", "_")
        if plain in spelled:
            raise BadInput(f"`format_options`: {plain!r} is given twice")
        spelled[plain] = value
    return spelled
