"""Creates aiokafka's clients from our settings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from ssl import SSLContext
from typing import Any, Final

from aiokafka import AIOKafkaConsumer

from tidelake.errors import BadInput
from tidelake.ingest.access_tokens import ClientCredentials, CredentialNames, TokenCache
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.client_internals import KafkaClient, use_client
from tidelake.ingest.sources.kafka.login import TokenLogin, install_logins
from tidelake.ingest.sources.kafka.msk_iam import MskIamSigner, check_signer
from tidelake.ingest.tls import TlsFiles, TlsNames, client_context

_TLS_NAMES: Final = TlsNames(
    "`source.ssl_cafile`", "`source.ssl_certfile`", "`source.ssl_keyfile`", "`source.ssl_password`"
)
_CREDENTIAL_NAMES: Final = CredentialNames(
    "`source.sasl_oauthbearer_token_endpoint_url`",
    "`source.sasl_oauthbearer_client_id`",
    "`source.sasl_oauthbearer_client_secret`",
    "`source.sasl_oauthbearer_scope`",
    "`source.sasl_oauthbearer_cafile`",
)
_ENDPOINT_TLS_NAMES: Final = TlsNames(_CREDENTIAL_NAMES.cafile, "", "", "")
_OAUTH_REMEDY: Final = (
    "Compare issuer, audience and scope with what the cluster expects (`source.sasl_oauthbearer_scope`), and the "
    "clocks of brokers and token endpoint"
)
_MSK_REMEDY: Final = (
    "Check `source.aws_region`, the policy of the role (kafka-cluster:Connect), and the clock of this machine"
)


def client_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Return the arguments of every client: brokers and credentials. It reads certificate files, so it blocks."""
    install_logins()
    arguments: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers,
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        "connections_max_idle_ms": settings.connections_max_idle_ms,
        "security_protocol": settings.security_protocol,
    }
    if "SASL" in settings.security_protocol:
        if settings.sasl_mechanism == "GSSAPI" and find_spec("gssapi") is None:
            raise BadInput("`source.sasl_mechanism` GSSAPI needs the package gssapi: pip install gssapi")
        by_token = settings.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM")
        arguments |= {
            "sasl_mechanism": "OAUTHBEARER" if by_token else settings.sasl_mechanism,
            "sasl_oauth_token_provider": _token_login(settings) if by_token else None,
            "sasl_plain_username": settings.sasl_plain_username,
            "sasl_plain_password": settings.sasl_plain_password and settings.sasl_plain_password.reveal(),
            "sasl_kerberos_service_name": settings.sasl_kerberos_service_name,
            "sasl_kerberos_domain_name": settings.sasl_kerberos_domain_name,
        }
    if "SSL" in settings.security_protocol.split("_"):
        arguments["ssl_context"] = _ssl_context(settings)
    return arguments


def _ssl_context(settings: KafkaSettings) -> SSLContext:
    files = TlsFiles(settings.ssl_cafile, settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_password)
    context = client_context(files, _TLS_NAMES)
    context.check_hostname = settings.ssl_check_hostname
    return context


def _token_login(settings: KafkaSettings) -> TokenLogin:
    """Return the login with access tokens. Raises BadInput for missing settings, files or packages."""
    if settings.sasl_mechanism == "AWS_MSK_IAM":
        check_signer()
        if settings.msk_region is None:
            raise BadInput(
                "`source.sasl_mechanism` AWS_MSK_IAM needs the region of the cluster: set `source.aws_region`"
            )
        signer = MskIamSigner(settings.msk_region, settings.aws_profile, settings.aws_role_arn)
        return TokenLogin(TokenCache(signer), {}, _MSK_REMEDY)
    endpoint, client_id, secret = (
        settings.sasl_oauthbearer_token_endpoint_url,
        settings.sasl_oauthbearer_client_id,
        settings.sasl_oauthbearer_client_secret,
    )
    if endpoint is None or client_id is None or secret is None:
        raise BadInput(
            f"`source.sasl_mechanism` OAUTHBEARER: set {_CREDENTIAL_NAMES.endpoint}, {_CREDENTIAL_NAMES.client_id} and "
            f"{_CREDENTIAL_NAMES.client_secret}"
        )
    files = TlsFiles(settings.sasl_oauthbearer_cafile)
    context = client_context(files, _ENDPOINT_TLS_NAMES) if endpoint.startswith("https:") else None
    credentials = ClientCredentials(
        endpoint, client_id, secret, settings.sasl_oauthbearer_scope or "", _CREDENTIAL_NAMES, context
    )
    return TokenLogin(TokenCache(credentials), settings.sasl_oauthbearer_extensions, _OAUTH_REMEDY)


def consumer_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Return the additional arguments of the consumer. No group assigns partitions, and offsets are never reset
    silently, because the tables hold the positions.
    """
    return {
        "group_id": settings.group_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "isolation_level": settings.isolation_level,
        "check_crcs": settings.check_crcs,
        "client_rack": settings.client_rack,
        "fetch_min_bytes": settings.fetch_min_bytes,
        "fetch_max_bytes": settings.fetch_max_bytes,
        "fetch_max_wait_ms": settings.fetch_max_wait_ms,
        "max_partition_fetch_bytes": settings.max_partition_fetch_bytes,
        "metadata_max_age_ms": settings.discovery_interval_ms,
    }


def consumer_of(settings: KafkaSettings, arguments: Mapping[str, Any]) -> AIOKafkaConsumer:
    """Create the consumer.

    arguments: the arguments of the client.
    """
    consumer = AIOKafkaConsumer(**arguments, **consumer_arguments(settings))
    use_client(consumer, KafkaClient(**arguments, metadata_max_age_ms=settings.discovery_interval_ms))
    return consumer
