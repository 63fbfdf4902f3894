"""How a schema registry is reached: the options that formats of Avro have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from storage.errors import BadInput


@dataclass(frozen=True)
class RegistryOptions:
    """Confluent's names, with underscores.

    schema_registry_url: base URLs with commas between; each is tried in turn.
    basic_auth_user_info: `user:password`.
    bearer_auth_token: a token instead.
    ssl_ca_location: a file of certificates to trust, instead of the system's.
    ssl_certificate_location, ssl_key_location: the client's own.
    schema_registry_timeout_s: how long to go on trying before an error says that the registry is away.
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
        """options: those in REGISTRY_OPTIONS. Raises BadInput, naming the format, for invalid values."""
        given = dict(options)
        try:
            timeout_s = float(given.pop("schema_registry_timeout_s", cls.schema_registry_timeout_s))
        except (TypeError, ValueError):
            timeout_s = -1.0
        if not 0 < timeout_s <= _TIMEOUT_S_MAX:
            raise BadInput(f"schema_registry_timeout_s of {format_} is a number of seconds up to {_TIMEOUT_S_MAX:.0f}")
        for name, value in given.items():
            if not isinstance(value, str):
                raise BadInput(f"{name} of {format_} is a text, not {value!r}")
        parsed = cls(**given, schema_registry_timeout_s=timeout_s)
        for url in parsed.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise BadInput(f"schema_registry_url of {format_}: {parts.geturl()!r} is no http or https URL")
            if parts.username or parts.password:
                raise BadInput(
                    f"schema_registry_url of {format_} holds a password, which would show in messages: "
                    "set basic_auth_user_info"
                )
        if parsed.basic_auth_user_info and parsed.bearer_auth_token:
            raise BadInput(f"{format_}: set basic_auth_user_info or bearer_auth_token, not both")
        if parsed.basic_auth_user_info and ":" not in parsed.basic_auth_user_info:
            raise BadInput(f"basic_auth_user_info of {format_} is user:password")
        if parsed.ssl_key_location and not parsed.ssl_certificate_location:
            raise BadInput(f"{format_}: ssl_key_location without ssl_certificate_location")
        return parsed

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(url.strip().rstrip("/") for url in self.schema_registry_url.split(",") if url.strip())


_TIMEOUT_S_MAX: Final = 600.0
REGISTRY_OPTIONS: Final = tuple(option.name for option in fields(RegistryOptions))


def with_underscores(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as Paimon and Confluent spell them too: `schema.registry.url`. Raises BadInput for one given twice."""
    spelled: dict[str, Any] = {}
    for name, value in options.items():
        plain = name.replace(".", "_")
        if plain in spelled:
            raise BadInput(f"`format_options`: {plain!r} is given twice")
        spelled[plain] = value
    return spelled
