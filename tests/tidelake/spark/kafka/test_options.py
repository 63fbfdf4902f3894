"""Options of `tidelake-kafka`: those of Spark's connector, and those of a Kafka client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, TidelakeError, UnsupportedFeature
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.spark.kafka.client_options import client_options, client_settings
from tidelake.spark.kafka.connector_offsets import EARLIEST, LATEST
from tidelake.spark.kafka.kafka_options import Boundary, KafkaReadOptions

BROKERS = {"kafka.bootstrap.servers": "a:1, b:2"}
P0, P1 = TopicPartition("T", 0), TopicPartition("T", 1)


def options(**given: str) -> KafkaReadOptions:
    return KafkaReadOptions.of({**BROKERS, **({} if "assign" in given else {"subscribe": "T"}), **given})


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        pytest.param({}, "start", None, id="no start: the reader's own"),
        pytest.param({"startingOffsets": "Earliest"}, "start", Boundary(everywhere=EARLIEST), id="a word"),
        pytest.param({"endingOffsets": "latest"}, "end", Boundary(everywhere=LATEST), id="an end"),
        pytest.param(
            {"startingOffsets": '{"T": {"0": 7, "1": -2}}'},
            "start",
            Boundary(offsets={P0: 7, P1: EARLIEST}),
            id="offsets of partitions",
        ),
        pytest.param({"startingTimestamp": "9"}, "start", Boundary(timestamp_ms=9), id="a time"),
        pytest.param(
            {"startingOffsetsByTimestamp": '{"T":{"0":9}}'}, "start", Boundary(timestamps_ms={P0: 9}), id="times"
        ),
        pytest.param({"headers": "a, b"}, "header_names", frozenset({"a", "b"}), id="some headers"),
        pytest.param({"headers": "a"}, "has_headers", True, id="headers are there where some are named"),
        pytest.param({"startingGroup": "G"}, "start", Boundary(group="G"), id="a group"),
        pytest.param({"startingOffsetsByTimestampStrategy": "latest"}, "needs_match", False, id="no match needed"),
        pytest.param({"assign": '{"T": [0, 1]}'}, "assigned", frozenset({P0, P1}), id="partitions"),
        pytest.param({"maxTriggerDelay": "30s"}, "max_delay_ms", 30_000, id="a duration"),
        pytest.param({"failOnDataLoss": "false"}, "fails_on_loss", False, id="losses are borne"),
        pytest.param(
            {"fetchOffset.numRetries": "9", "kafka.group.id": "g"}, "start", None, id="waits of the connector"
        ),
    ],
)
def test_options_have_the_meaning_of_sparks_connector(given: dict[str, str], field: str, value: Any) -> None:
    assert getattr(options(**given), field) == value


def test_option_names_are_case_insensitive_and_values_are_not() -> None:
    found = KafkaReadOptions.of({"KAFKA.Bootstrap.Servers": "a:1", "SubscribePattern": "Shop[.].*"})
    assert (found.settings.bootstrap_servers, found.settings.topic_pattern) == (["a:1"], "Shop[.].*")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"subscribePattern": "T"}, "set exactly one of the options", id="two subscriptions"),
        pytest.param({"subscribe": " , "}, "names no topic", id="no topic"),
        pytest.param({"startingOffset": "earliest"}, "did you mean 'startingOffsets'", id="a slip"),
        pytest.param({"startingOffsets": "first"}, r"expected JSON such as", id="no offsets"),
        pytest.param({"startingOffsets": "latest", "startingTimestamp": "1"}, "have the same effect", id="two starts"),
        pytest.param({"endingOffsets": "earliest"}, "a read can't end at the earliest", id="ends before it begins"),
        pytest.param({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger.*whole number from 1", id="no records"),
        pytest.param({"headers": "a", "includeHeaders": "false"}, "includeHeaders = false", id="headers, and none"),
        pytest.param({"kafka.auto.offset.reset": "latest"}, "startingOffsets decides where", id="decided here"),
        pytest.param({"kafka.fetch.min.byte": "1"}, "did you mean 'kafka.fetch.min.bytes'", id="a client's slip"),
        pytest.param({"kafka.fetch.min.bytes": "x"}, "option kafka.fetch.min.bytes", id="a client's value"),
        pytest.param(
            {"kafka.ssl.keystore.location": "/k.jks"},
            "only PEM files.*keytool -importkeystore -srckeystore /k.jks .*Set kafka.ssl.certificate.location to /k",
            id="a store of Java's",
        ),
        pytest.param(
            {"kafka.ssl.truststore.type": "PKCS12", "kafka.ssl.truststore.location": "/t.p12"},
            "openssl pkcs12 -in /t.p12 -nokeys -out /t.pem`, and set kafka.ssl.ca.location to /t.pem",
            id="a PKCS12 store",
        ),
        pytest.param(
            {"kafka.sasl.jaas.config": "Krb5LoginModule required;"}, "OAuthBearerLoginModule", id="another login"
        ),
        pytest.param(
            {"kafka.sasl.jaas.config": 'PlainLoginModule required username="u" user_u="p";'},
            "PlainLoginModule has an option user_u",
            id="an option of a login",
        ),
        pytest.param({"kafka.sasl.oauthbearer.method": "default"}, "only oidc is understood", id="unsecured tokens"),
        pytest.param(
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"},
            "needs a token endpoint.*Add kafka.sasl.oauthbearer.token.endpoint.url and kafka.sasl.oauthbearer.client.id"
            "; the secret is best set as kafka.sasl.oauthbearer.client.secret",
            id="a login without its settings",
        ),
        pytest.param({"kafka.sasl.oauthbearer.extensions": "a"}, "write name=value", id="no pairs"),
    ],
)
def test_contradictory_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(TidelakeError, match=message):
        options(**given)


def test_brokers_are_needed() -> None:
    with pytest.raises(BadInput, match=r"kafka\.bootstrap\.servers is missing"):
        KafkaReadOptions.of({"subscribe": "t"})


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        pytest.param({}, {"isolation_level": "read_uncommitted"}, id="a client's own isolation"),
        pytest.param(
            {"kafka.sasl.jaas.config": r'x.ScramLoginModule required username="u" password="p\"q";'},
            {"sasl_plain_username": "u", "sasl_plain_password": Secret('p"q')},
            id="Java's login",
        ),
        pytest.param(
            {
                "kafka.sasl.jaas.config": "x.oauthbearer.OAuthBearerLoginModule required "
                'clientId="etl" clientSecret="s;3" scope=a extension_logicalCluster="lkc-1";',
                "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.secured."
                "OAuthBearerLoginCallbackHandler",
            },
            {
                "sasl_oauthbearer_client_id": "etl",
                "sasl_oauthbearer_client_secret": Secret("s;3"),
                "sasl_oauthbearer_scope": "a",
                "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1"},
            },
            id="Java's login with tokens",
        ),
        pytest.param(
            {
                "kafka.sasl.oauthbearer.client.credentials.client.id": "etl",
                "kafka.sasl.oauthbearer.client.credentials.client.secret": "s",
                "kafka.sasl.oauthbearer.method": "oidc",
                "kafka.sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=p=1",
            },
            {
                "sasl_oauthbearer_client_id": "etl",
                "sasl_oauthbearer_client_secret": Secret("s"),
                "sasl_oauthbearer_extensions": {"logicalCluster": "lkc-1", "identityPoolId": "p=1"},
            },
            id="names of newer clients",
        ),
        pytest.param(
            {
                "kafka.sasl.jaas.config": 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="etl";',
                "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
            },
            {"aws_profile": "etl"},
            id="Java's login at MSK",
        ),
        pytest.param(
            {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": "/ca.pem"},
            {"ssl_cafile": Path("/ca.pem")},
            id="Java's PEM store",
        ),
        pytest.param(
            {"kafka.ssl.endpoint.identification.algorithm": ""}, {"ssl_check_hostname": False}, id="names go unchecked"
        ),
    ],
)
def test_java_client_options_are_translated(given: dict[str, str], fields: dict[str, Any]) -> None:
    found = client_settings({**BROKERS, **given})
    assert {name: getattr(found, name) for name in fields} == fields


def test_all_client_settings_of_a_pipeline_pass_through_the_options() -> None:
    elsewhere = {"topics", "topic_pattern", "start", "until", "until_timestamp_ms"}
    elsewhere |= {"group_id", "unreachable_after_ms", "max_record_bytes", "decode_processes"}
    others: dict[str, Any] = {
        "bootstrap_servers": ["a:1", "b:2"],
        "isolation_level": "read_uncommitted",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": Secret("p"),
        "sasl_oauthbearer_client_secret": Secret("s"),
        "sasl_oauthbearer_extensions": {"a": "b", "c": "d=e"},
        "sasl_oauthbearer_cafile": Path("/endpoint-ca"),
        "ssl_password": Secret("q"),
        "ssl_cafile": Path("/ca"),
        "ssl_certfile": Path("/cert"),
        "ssl_keyfile": Path("/key"),
    }
    plain = KafkaSettings(bootstrap_servers="x")
    for setting in structs.fields(KafkaSettings):
        if setting.name not in elsewhere and setting.name not in others:
            value = getattr(plain, setting.name)
            others[setting.name] = (
                not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "other"
            )
    settings = structs.replace(plain, **others)
    assert client_settings(client_options(settings)) == settings


def test_a_refused_option_is_an_unsupported_feature_and_names_itself() -> None:
    with pytest.raises(UnsupportedFeature, match=r"kafka\.key\.deserializer"):
        options(**{"kafka.key.deserializer": "x"})
