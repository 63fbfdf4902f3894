"""Java's login settings of a Kafka client (`sasl.jaas.config`), as settings of a Kafka source.

Source: Kafka's login modules, and `IAMLoginModule` of `aws-msk-iam-auth`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tidelake.errors import UnsupportedFeature

_OPTION: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\"]+))")
_EXTENSION: Final = "extension_"
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "OAuthBearerLoginModule": {
        "clientId": "sasl_oauthbearer_client_id",
        "clientSecret": "sasl_oauthbearer_client_secret",
        "scope": "sasl_oauthbearer_scope",
    },
    "IAMLoginModule": {"awsProfileName": "aws_profile", "awsRoleArn": "aws_role_arn", "awsStsRegion": ""},
    "PlainLoginModule": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
    "ScramLoginModule": {"username": "sasl_plain_username", "password": "sasl_plain_password"},
}


def java_login(config: str, name: str) -> dict[str, Any]:
    """Return the settings of Java's `…LoginModule required username="…" password="…";`.

    name: the option's name in messages.

    Raises UnsupportedFeature for another login module, and for its options that have no counterpart.
    """
    module = next((known for known in _SETTINGS if re.match(rf"[\w.]*\b{known}\s+required\b", config.strip())), None)
    if module is None:
        raise UnsupportedFeature(
            name,
            f"only {', '.join(_SETTINGS)} are understood, each with `required`",
            "Set the mechanism and its settings instead (sasl.mechanism, sasl.username, sasl.password, "
            "sasl.oauthbearer.…)",
        )
    found: dict[str, Any] = {}
    extensions: dict[str, str] = {}
    for option, quoted, bare in _OPTION.findall(config):
        value = re.sub(r"\\(.)", r"\1", quoted) or bare
        if module == "OAuthBearerLoginModule" and option.startswith(_EXTENSION):
            extensions[option.removeprefix(_EXTENSION)] = value
            continue
        setting = _SETTINGS[module].get(option)
        if setting is None:
            raise UnsupportedFeature(name, f"{module} has an option {option}, which is not understood", "Leave it out")
        if setting:
            found[setting] = value
    return found | ({"sasl_oauthbearer_extensions": extensions} if extensions else {})
