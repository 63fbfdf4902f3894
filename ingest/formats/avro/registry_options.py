"""The options for a schema registry that all Avro formats share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from tidelake.errors import BadInput


@dataclass(frozen=True)
class RegistryOptions:
    """The options for a schema registry, with Confluent's names in underscore spelling.

    schema_registry_url: base URLs, separated by commas. They are tried in turn.
    basic_auth_user_info: `user:password`.
    bearer_auth_token: a token for authentication instead of user and password.
    ssl_ca_location: a file of trusted certificates, instead of the system's.
    ssl_certificate_location: the client's certificate.
    ssl_key_location: the client's key.
    schema_registry_timeout_s: seconds of retries before an error reports that the registry is unavailable.
    """

    schema_registry_url: str = ""
    basic_auth_user_info: str = field(default="", repr=False)
    bearer_auth_token: str = field(default="", repr=False)
    ssl_ca_location: str = ""
    ssl_certificate_location: str = ""
    ssl_key_location: str = ""
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
                raise BadInput(f"{name} of {format_} must be a string, not {value!r}")
        parsed = cls(**given, schema_registry_timeout_s=timeout_s)
        for url in parsed.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise BadInput(f"schema_registry_url of {format_}: {parts.geturl()!r} is not an http or https URL")
            if parts.username or parts.password:
                raise BadInput(
                    f"schema_registry_url of {format_} contains a password, which would appear in messages: set "
                    "basic_auth_user_info instead"
                )
        if parsed.basic_auth_user_info and parsed.bearer_auth_token:
            raise BadInput(f"{format_}: set basic_auth_user_info or bearer_auth_token, not both")
        if parsed.basic_auth_user_info and ":" not in parsed.basic_auth_user_info:
            raise BadInput(f"basic_auth_user_info of {format_} must be user:password")
        if parsed.ssl_key_location and not parsed.ssl_certificate_location:
            raise BadInput(f"{format_}: ssl_key_location needs ssl_certificate_location")
        return parsed

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(url.strip().rstrip("/") for url in self.schema_registry_url.split(",") if url.strip())


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
