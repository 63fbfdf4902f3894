"""Connects to the brokers: creates aiokafka's clients from our settings, and makes the first connection."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from ssl import SSLContext, SSLError
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context

from tidelake.errors import BadInput
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.client_internals import CONNECTION_PARAMETERS, KafkaClient, use_client


def client_arguments(settings: KafkaSettings) -> dict[str, Any]:
    """Return the arguments of every client: brokers and credentials. It reads certificate files, so it blocks."""
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
        arguments |= {
            "sasl_mechanism": settings.sasl_mechanism,
            "sasl_plain_username": settings.sasl_plain_username,
            "sasl_plain_password": settings.sasl_plain_password and settings.sasl_plain_password.reveal(),
            "sasl_kerberos_service_name": settings.sasl_kerberos_service_name,
            "sasl_kerberos_domain_name": settings.sasl_kerberos_domain_name,
        }
    if "SSL" in settings.security_protocol.split("_"):
        arguments["ssl_context"] = _ssl_context(settings)
    return arguments


def _ssl_context(settings: KafkaSettings) -> SSLContext:
    """Return the SSL context. Raises BadInput for unusable files, with their names, which OpenSSL's errors lack."""
    for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile"):
        path: Path | None = getattr(settings, name)
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise BadInput(f"`source.{name}`: can't read {path}: {error.strerror}. Use a PEM file") from error
    try:
        context: SSLContext = create_ssl_context(cafile=settings.ssl_cafile)
    except (SSLError, ValueError) as error:
        raise BadInput(
            f"`source.ssl_cafile`: {settings.ssl_cafile} can't be used: {error}. Point it at a PEM file of CA "
            "certificates"
        ) from error
    if settings.ssl_certfile is not None:
        # Never None: then OpenSSL would ask for the key's password on the terminal, and wait.
        password = "" if settings.ssl_password is None else settings.ssl_password.reveal()
        try:
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, password)
        except (SSLError, ValueError) as error:
            files = f"{settings.ssl_certfile}" + (f", {settings.ssl_keyfile}" if settings.ssl_keyfile else "")
            raise BadInput(
                f"`source.ssl_certfile`, `source.ssl_keyfile`: {files} can't be used: {error}. Give the client's "
                "certificate and its key, as PEM, and `source.ssl_password` for a key that is encrypted"
            ) from error
    context.check_hostname = settings.ssl_check_hostname
    return context


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


async def connect(client: AIOKafkaClient, arguments: Mapping[str, Any]) -> None:
    """Connect to the cluster.

    arguments: the arguments of the client.

    Raises the error of the last tried broker. aiokafka only logs it, so its callers can't distinguish a wrong password
    from a broker that is down. Only the second is worth waiting for.
    """
    try:
        await client.bootstrap()
    except KafkaConnectionError:
        for host, port, _ in client.hosts:
            (
                await create_conn(
                    host, port, **{name: arguments[name] for name in arguments if name in CONNECTION_PARAMETERS}
                )
            ).close()
        raise
