"""A broker as companies run it: a listener for each kind of login, with TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.certificates import Certificates
from tests.support.kafka_broker import KafkaBroker
from tests.support.token_endpoint import AUDIENCE, ISSUER, SigningKey

USER, USER_PASSWORD = "etl", "pa$$;w0rd"

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_LOGIN = "org.apache.kafka.common.security"


def secured_broker(data: Path, key: SigningKey, files: Certificates, **settings: str) -> KafkaBroker:
    """Return a broker that is not started.

    Its listeners: OAUTH (OAUTHBEARER over TLS), OAUTH_CLEAR (without TLS), SCRAM (SCRAM and PLAIN over TLS), and MTLS,
    which asks clients for a certificate.
    """
    jwks = key.jwks.as_uri()
    oauth = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        "oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required ;",
        "oauthbearer.connections.max.reauth.ms": "3600000",  # so that a session ends with its token
    }
    scram = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
        "scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        "plain.sasl.jaas.config": f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{USER_PASSWORD}";',
        "scram-sha-256.connections.max.reauth.ms": "2000",
    }
    tls = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files.chain("server")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files.ca),
    }
    of_listeners = {
        "oauth": {**oauth, **tls},
        "oauth_clear": oauth,
        "scram": {**scram, **tls},
        "mtls": {**tls, "ssl.client.auth": "required"},
    }
    return KafkaBroker(
        data,
        {
            "sasl.oauthbearer.jwks.endpoint.url": jwks,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            **{f"listener.name.{name}.{key}": value for name, of in of_listeners.items() for key, value in of.items()},
            **settings,
        },
        {"OAUTH": "SASL_SSL", "OAUTH_CLEAR": "SASL_PLAINTEXT", "SCRAM": "SASL_SSL", "MTLS": "SSL"},
        {USER: USER_PASSWORD},
        [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}"],
    )


def tls_settings(files: Certificates, protocol: str) -> dict[str, Any]:
    """Return the settings of a client that trusts the broker."""
    return {"security_protocol": protocol, "ssl_cafile": files.ca}
