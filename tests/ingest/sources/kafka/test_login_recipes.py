"""The recipes of `docs/kafka-logins.md` are configurations that log in at a broker with such a listener."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import structs

from tests.ingest.sources.kafka.test_logins import Cluster, cluster, connections_end, count, endpoint, topic
from tests.support.secured_kafka import USER, USER_PASSWORD
from tests.support.token_endpoint import CLIENT_ID, CLIENT_SECRET, SigningKey, TokenEndpoint
from tidelake.ingest.access_tokens import AccessToken, ClientCredentials
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka import connection
from tidelake.ingest.sources.kafka.connection import _CREDENTIAL_NAMES

pytestmark = pytest.mark.interop

__all__ = ["cluster", "connections_end", "endpoint", "topic"]  # fixtures

PAGE = Path(__file__).parents[4] / "docs" / "kafka-logins.md"
SECRETS = {
    "TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD": USER_PASSWORD,
    "TIDELAKE_SOURCE__SASL_OAUTHBEARER_CLIENT_SECRET": CLIENT_SECRET,
}


def recipes() -> list[Any]:
    """Return (section, YAML) of each."""
    found = []
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        title = section.partition("\n")[0]
        blocks = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
        found += [pytest.param(text, id=f"{title} {number}") for number, text in enumerate(blocks, 1)]
    return found


def parsed(text: str) -> KafkaSettings:
    whole = yaml.safe_dump({**yaml.safe_load(text), "warehouse": "/lake", "tables": [{"name": "shop.orders"}]})
    source = parse_config(whole, "shop.yaml", environment=SECRETS, pipeline="shop").source
    assert isinstance(source, KafkaSettings)
    return source


@pytest.mark.parametrize("text", recipes())
async def test_a_recipe_reads_from_a_broker_with_such_a_listener(
    cluster: Cluster, endpoint: TokenEndpoint, topic: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = parsed(text)
    endpoint.scope = settings.sasl_oauthbearer_scope or endpoint.scope
    by_token = settings.sasl_mechanism in ("OAUTHBEARER", "AWS_MSK_IAM")
    listener = "MTLS" if not settings.is_sasl else "OAUTH" if by_token else "SCRAM"
    mine: dict[str, Any] = {
        "bootstrap_servers": cluster.broker.listeners[listener],
        "topics": topic,
        "until": "end",
        "ssl_cafile": cluster.files.ca,
    }
    if settings.ssl_certfile is not None:
        mine["ssl_certfile"] = await asyncio.to_thread(cluster.files.chain, "client")
    if settings.sasl_plain_username is not None:
        mine["sasl_plain_username"] = USER
    if settings.sasl_mechanism == "OAUTHBEARER":
        mine |= {"sasl_oauthbearer_token_endpoint_url": endpoint.url, "sasl_oauthbearer_client_id": CLIENT_ID}
    if settings.sasl_mechanism == "AWS_MSK_IAM":
        mine["aws_region"] = settings.msk_region
        monkeypatch.setattr(connection, "MskIamSigner", lambda *_: _OfTheBroker(cluster.key, endpoint))
    assert await count(structs.replace(settings, **mine)) == 2


class _OfTheBroker:
    """A signer whose tokens this broker accepts, unlike MSK's."""

    def __init__(self, key: SigningKey, endpoint: TokenEndpoint) -> None:
        self._source = ClientCredentials(endpoint.url, CLIENT_ID, Secret(CLIENT_SECRET), "", _CREDENTIAL_NAMES)

    def request(self) -> AccessToken:
        return self._source.request()
