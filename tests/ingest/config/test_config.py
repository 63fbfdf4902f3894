"""Configurations: three layers, checked together, with messages that name place, reason and remedy."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tidelake.errors import ConfigError
from tidelake.ingest.config.config import load_config, parse_config, shown
from tidelake.ingest.secrets import Secret
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import FolderSettings, KafkaSettings, StartSettings

GOOD = """\
warehouse: /lake
source:
  type: kafka
  bootstrap_servers: broker:9092
  topics: [a, b]
  sasl_plain_password: hunter2
tables:
  - name: shop.orders
    match: x.orders
    primary_key: [id]
    options: {bucket: 4, file.format: orc}
"""


def parse(text: str = GOOD, *flags: str, **environment: str) -> Config:
    return parse_config(text, "shop.yaml", flags, environment, "shop")


def test_a_minimal_configuration_is_valid() -> None:
    config = parse("warehouse: /lake\nsource: {type: change-log-folder, path: /in}\ntables: [{name: shop.orders}]")
    assert config.pipeline == "shop"
    assert config.format == "debezium-json"
    assert config.source == FolderSettings(path=Path("/in"), until="forever", poll_interval_ms=1_000)
    assert config.tables[0].match_patterns == ["orders"]
    assert config.tables[0].topic_patterns == ["*"]
    assert (config.checkpoint.interval_ms, config.errors.tolerance) == (10_000, "none")


def test_a_kafka_source_with_its_options() -> None:
    source = parse().source
    assert isinstance(source, KafkaSettings)
    assert (source.topic_names, source.isolation_level, source.start) == (["a", "b"], "read_committed", "earliest")
    assert source.sasl_plain_password == Secret("hunter2")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", "latest"),
        ("{timestamp_ms: 1700000000000}", StartSettings(timestamp_ms=1_700_000_000_000)),
        ("{group: etl}", StartSettings(group="etl")),
        ("{offsets: {a: {0: 5, 1: 7}}}", StartSettings(offsets={"a": {0: 5, 1: 7}})),
    ],
)
def test_the_start_setting_is_parsed(start: str, expected: object) -> None:
    source = parse(GOOD, f"source.start={start}").source
    assert isinstance(source, KafkaSettings)
    assert source.start == expected


@pytest.mark.parametrize(("text", "expected"), [("none", "none"), ("all", "all"), ("0", 0), ("25", 25)])
def test_the_tolerance_setting_is_parsed(text: str, expected: object) -> None:
    assert parse(GOOD, f"errors.tolerance={text}").errors.tolerance == expected


@pytest.mark.parametrize(
    "servers",
    [
        "kafka",
        "kafka:9092",
        "'[::1]:9092'",
        "'::1'",
        "10.0.0.1:9092",
        "[a:9092, b:9092]",
        "'a:9092, b:9092'",
        "k-0.k_a:1",
    ],
)
def test_brokers_are_named_as_kafka_s_clients_name_them(servers: str) -> None:
    assert isinstance(parse(GOOD.replace("broker:9092", servers)).source, KafkaSettings)


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    assert parse(GOOD + "checkpoint: {interval_ms: 1}").checkpoint.interval_ms == 1
    environment = {"TIDELAKE_CHECKPOINT__INTERVAL_MS": "2"}
    assert parse(GOOD + "checkpoint: {interval_ms: 1}", **environment).checkpoint.interval_ms == 2
    assert parse(GOOD, "checkpoint.interval_ms=3", **environment).checkpoint.interval_ms == 3


def test_lists_and_mappings_in_variables_and_flags_are_yaml() -> None:
    config = parse(GOOD, "tables=[{name: d.t, options: {bucket: 2}}]", TIDELAKE_SOURCE__TOPICS="[c]")
    assert isinstance(config.source, KafkaSettings)
    assert (config.source.topic_names, config.tables[0].options) == (["c"], {"bucket": 2})


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HOME", "/root"),
        ("TIDELAKE_GOLDEN", "/elsewhere"),
        ("TIDELAKE_TEST_DAY", "7"),
        # Kubernetes sets these for services named tidelake-metrics and tidelake-source.
        ("TIDELAKE_METRICS_PORT", "tcp://10.0.0.1:9404"),
        ("TIDELAKE_METRICS_PORT_9404_TCP", "tcp://10.0.0.1:9404"),
        ("TIDELAKE_METRICS_PORT_9404_TCP_PORT", "9404"),
        ("TIDELAKE_METRICS_PORT_9404_TCP_PROTO", "tcp"),
        ("TIDELAKE_METRICS_SERVICE_HOST", "10.0.0.1"),
        ("TIDELAKE_METRICS_SERVICE_PORT", "9404"),
        ("TIDELAKE_METRICS_SERVICE_PORT_HTTP", "9404"),
    ],
)
def test_other_environment_variables_are_ignored(variable: str, text: str) -> None:
    assert parse(**{variable: text}) == parse()


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TIDELAKE_CHEKPOINT__INTERVAL_MS", "TIDELAKE_CHECKPOINT__INTERVAL_MS"),
        ("TIDELAKE_CHECKPOINTS__INTERVAL_MS", "TIDELAKE_CHECKPOINT__INTERVAL_MS"),
        ("TIDELAKE_EROORS__TOLERANCE", "TIDELAKE_ERRORS__TOLERANCE"),
        ("TIDELAKE_CHECKPOINT_INTERVAL_MS", "TIDELAKE_CHECKPOINT__INTERVAL_MS"),
        ("TIDELAKE__CHECKPOINT__INTERVAL_MS", "TIDELAKE_CHECKPOINT__INTERVAL_MS"),
        ("tidelake_checkpoint__interval_ms", "TIDELAKE_CHECKPOINT__INTERVAL_MS"),
        ("TIDELAKE_SOURCE_BOOTSTRAP_SERVERS", "TIDELAKE_SOURCE__BOOTSTRAP_SERVERS"),
        ("TIDELAKE_SOURCE_TYPE", "TIDELAKE_SOURCE__TYPE"),
        ("TIDELAKE_METRICS_PORT", "TIDELAKE_METRICS__PORT"),
        ("TIDELAKE_WAREHOSE", "TIDELAKE_WAREHOUSE"),
        ("TIDELAKE_WAREHOUSE_OPTION__S3_ENDPOINT", "TIDELAKE_WAREHOUSE_OPTIONS__S3_ENDPOINT"),
        ("TIDELAKE_FOO__BAR", None),
    ],
)
def test_a_misspelt_environment_variable_is_refused(variable: str, meant: str | None) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(**{variable: "hunter2"})
    assert str(refused.value).startswith(f"environment variable {variable}: no setting `")
    assert (f"Did you mean `{meant}`?" if meant else "Possible: TIDELAKE_BOOTSTRAP, ") in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_the_file_name_is_the_pipeline_name(tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(GOOD)
    assert load_config(tmp_path / "orders.yaml", environment={}).pipeline == "orders"


def test_an_unreadable_file_raises(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: can't be read"):
        load_config(tmp_path / "nowhere.yaml", environment={})


def test_merge_keys_work() -> None:
    text = (
        GOOD.replace("  - name: shop.orders", "  - &common\n    name: shop.orders")
        + "  - {<<: *common, name: shop.items}\n"
    )
    assert [(t.name, t.primary_key) for t in parse(text).tables] == [("shop.orders", ["id"]), ("shop.items", ["id"])]


# ---------------------------------------------------------------- secrets


def test_a_secret_is_never_printed() -> None:
    config = parse(GOOD + "warehouse_options: {s3.secret-key: hunter2, region: eu}\n")
    assert isinstance(config.source, KafkaSettings)
    password = config.source.sasl_plain_password
    assert password is not None
    assert password.reveal() == "hunter2"
    for text in (repr(config), str(password), f"{password}", repr(shown(config))):
        assert "hunter2" not in text
    assert shown(config)["warehouse_options"] == {"s3.secret-key": "***", "region": "eu"}
    assert shown(config)["source"]["ssl_password"] is None


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("sasl_plain_password", "sasl_plain_passwrd"),
        GOOD.replace("hunter2", "[hunter2]"),
        GOOD.replace("hunter2", "|\n    hunter2\n    hunter2\n  topisc: a"),
        GOOD.replace("topics: [a, b]", "topisc: [a, b]").replace(
            "\n  sasl", "\n  x: {password: hunter2, y: 1}\n  sasl"
        ),
        GOOD.replace("hunter2", "{hunter2"),
        GOOD.replace(
            "  sasl_plain_password: hunter2", "  sasl_plain_password hunter2: : x\n sasl_plain_password: hunter2"
        ),
        GOOD.replace("sasl_plain_password: hunter2", "sasl_plain_password: hunter2\n  sasl_plain_password: hunter2"),
    ],
)
def test_a_message_that_quotes_a_secret_hides_it(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(text)
    assert "hunter2" not in str(raised.value)


def test_a_secret_in_a_variable_or_flag_is_hidden_and_used_unchanged() -> None:
    config = parse(GOOD, TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD="[hunter3")
    assert isinstance(config.source, KafkaSettings)
    assert config.source.sasl_plain_password == Secret("[hunter3")
    for arguments in (
        {"flags": ["source.sasl_password=hunter3"]},
        {"environment": {"TIDELAKE_SOURCE__SASL_PASSWORD": "hunter3"}},
    ):
        with pytest.raises(ConfigError) as raised:
            parse_config(GOOD, "shop.yaml", pipeline="shop", **arguments)
        assert "hunter3" not in str(raised.value)


# ---------------------------------------------------------------- messages


FOLDER = """\
warehouse: /lake
source: {type: change-log-folder, path: /changes}
tables: [{name: shop.orders}]
"""


@dataclass(frozen=True)
class MessageCase:
    id: str
    text: str
    message: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


MESSAGES = [
    MessageCase(
        "a name with a typo",
        GOOD.replace("topics:", "topcis:"),
        """\
        shop.yaml:5: no setting `topcis` in `source`
            topcis: [a, b]
        Did you mean `topics`?""",
    ),
    MessageCase(
        "a name nobody knows",
        GOOD + "errors: {zebra: 1}",
        """\
        shop.yaml:12: no setting `zebra` in `errors`
            errors: {zebra: 1}
        Possible: tolerance, dead_letters, log_include_messages, waiting_ms_max, waiting_bytes_max.""",
    ),
    MessageCase(
        "an unknown source",
        GOOD.replace("kafka", "kafak"),
        """\
        shop.yaml:3: `source.type` can't be `kafak`
            type: kafak
        Did you mean `kafka`?""",
    ),
    MessageCase(
        "a value that either source refuses",
        "warehouse: /lake\nsource: {type: change-log-folder, path: /in, until: xyz}\ntables: [{name: shop.orders}]\n",
        """\
        shop.yaml:2: `source.until` can't be `xyz`
            source: {type: change-log-folder, path: /in, until: xyz}
        Possible: end, forever.""",
    ),
    MessageCase(
        "a start that only the other source has",
        "warehouse: /lake\nsource: {type: change-log-folder, path: /in, start: latest}\ntables: [{name: shop.o}]\n",
        """\
        shop.yaml:2: `source.start` can't be `latest`
            source: {type: change-log-folder, path: /in, start: latest}
        Possible: earliest.""",
    ),
    MessageCase(
        "a setting of the other source",
        GOOD.replace("topics: [a, b]", "path: /in"),
        """\
        shop.yaml:5: no setting `path` in `source`
            path: /in
        Possible: POSSIBLE.""".replace("POSSIBLE", ", ".join(KafkaSettings.__struct_fields__)),
    ),
    MessageCase(
        "a missing setting",
        GOOD.replace("warehouse: /lake\n", ""),
        """\
        shop.yaml: `warehouse` is missing
        Add `warehouse: …`.""",
    ),
    MessageCase(
        "a missing setting inside",
        GOOD.replace("name: shop.orders\n    match", "match"),
        """\
        shop.yaml:8: `tables[0].name` is missing
            - match: x.orders
        Add `name: …`.""",
    ),
    MessageCase(
        "another kind of value",
        GOOD.replace("[id]", "id"),
        """\
        shop.yaml:10: `tables[0].primary_key`: expected `array`, got `str`
            primary_key: id
        Correct the value.""",
    ),
    MessageCase(
        "what YAML takes for something else",
        GOOD.replace("[id]", "[id, no]"),
        """\
        shop.yaml:10: `tables[0].primary_key[1]`: expected `str`, got `bool`
            primary_key: [id, no]
        Put it in quotes.""",
    ),
    MessageCase(
        "no pattern at all, which would take nothing, or everything",
        GOOD.replace("match: x.orders", "match: []"),
        """\
        shop.yaml:9: `tables[0].match`: expected `array` of length >= 1
            match: []
        Correct the value.""",
    ),
    MessageCase(
        "a number out of range, from a flag",
        GOOD,
        """\
        flag checkpoint.interval_ms: `checkpoint.interval_ms`: expected `int` >= 1
            0
        Correct the value.""",
        flags=("checkpoint.interval_ms=0",),
    ),
    MessageCase(
        "a choice with a typo, from the environment",
        GOOD,
        """\
        environment variable TIDELAKE_SOURCE__UNTIL: `source.until` can't be `ends`
            ends
        Did you mean `end`?""",
        environment={"TIDELAKE_SOURCE__UNTIL": "ends"},
    ),
    MessageCase(
        "a flag that says nothing",
        GOOD,
        """\
        flag checkpoint: a setting must be given as name=value
        Example: checkpoint.interval_ms=5000""",
        flags=("checkpoint",),
    ),
    MessageCase(
        "a flag below a value",
        GOOD,
        """\
        flag warehouse.path: `warehouse` is not a group of settings
            /x
        Set `warehouse` as a whole.""",
        flags=("warehouse.path=/x",),
    ),
    MessageCase(
        "the same name twice",
        GOOD + "warehouse: /other\n",
        """\
        shop.yaml:12: `warehouse` is given twice
            warehouse: /other
        Keep one of them.""",
    ),
    MessageCase(
        "no YAML",
        GOOD.replace("[a, b]", "[a, b"),
        """\
        shop.yaml:6:22: not YAML: expected ',' or ']', but got ':'
            sasl_plain_password: ***
        Correct the line.""",
    ),
    MessageCase(
        "no settings",
        "- a\n- b\n",
        """\
        shop.yaml:1: this is not a group of settings
        Begin with settings such as `pipeline: …`.""",
    ),
    MessageCase(
        "a table without database",
        GOOD.replace("shop.orders", "orders"),
        """\
        shop.yaml:8: `tables[0].name` is not the name of a table
            - name: orders
        Write `database.table`.""",
    ),
    MessageCase(
        "a source type that is none",
        GOOD.replace("    options", "    source_types: {mask: bitz}\n    options"),
        """\
        shop.yaml:11: shop.orders: source type 'bitz' of column mask: not one of bigint unsigned, decimal base64, \
bits, bits varying, base64, hex, date, set, time s, time ms, time us, time ns, timestamp s, timestamp ms, \
timestamp us, timestamp ns, bits(n)
            source_types: {mask: bitz}
        Correct the value.""",
    ),
    MessageCase(
        "dead letters among what is read",
        FOLDER + "errors: {tolerance: all, dead_letters: 'file:///changes/../changes'}\n",
        """\
        shop.yaml:4: the source would read the folder that dead letters are written to
            errors: {tolerance: all, dead_letters: 'file:///changes/../changes'}
        Name another folder, or another pipeline.""",
    ),
    MessageCase(
        "a source that is the folder of dead letters",
        FOLDER.replace("/changes", "/lake/shop.dead-letters"),
        """\
        shop.yaml:2: the source would read the folder that dead letters are written to
            source: {type: change-log-folder, path: /lake/shop.dead-letters}
        Name another folder, or another pipeline.""",
    ),
    MessageCase(
        "no topic",
        GOOD.replace("[a, b]", "[]"),
        """\
        shop.yaml:2: no topic is named
            source:
        Add `topics: […]` or `topic_pattern: …`.""",
    ),
    MessageCase(
        "a pattern that is none",
        GOOD.replace("topics: [a, b]", "topic_pattern: '*.orders'"),
        """\
        shop.yaml:5: not a regular expression: nothing to repeat at position 0
            topic_pattern: '*.orders'
        Example: `shop\\.public\\..*`.""",
    ),
    MessageCase(
        "two starts",
        GOOD.replace("topics: [a, b]", "topics: a\n  start: {timestamp_ms: 1, group: g}"),
        """\
        shop.yaml:6: `start` names timestamp_ms and group
            start: {timestamp_ms: 1, group: g}
        Set exactly one of timestamp_ms, offsets, group.""",
    ),
    MessageCase(
        "SASL without a user",
        GOOD.replace("topics: [a, b]", "topics: a\n  security_protocol: SASL_SSL"),
        """\
        shop.yaml:6: SASL_SSL with PLAIN needs a user and a password
            security_protocol: SASL_SSL
        Add `sasl_plain_username`; the password is best set as TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD.""",
    ),
    MessageCase(
        "a port that is none",
        GOOD.replace("broker:9092", "'broker:99999'"),
        """\
        shop.yaml:4: 'broker:99999' is not the address of a broker
            bootstrap_servers: 'broker:99999'
        Example: `kafka:9092`.""",
    ),
    MessageCase(
        "an address with a protocol",
        GOOD.replace("broker:9092", "SSL://broker:9092"),
        """\
        shop.yaml:4: 'SSL://broker:9092' begins with a protocol
            bootstrap_servers: SSL://broker:9092
        Write `host:port`, and set the protocol with `security_protocol`.""",
    ),
    MessageCase(
        "certificates that would not be used",
        GOOD.replace("topics: [a, b]", "topics: a\n  ssl_cafile: /etc/ca.pem"),
        """\
        shop.yaml:6: `ssl_cafile`: with `security_protocol` PLAINTEXT it would not be used
            ssl_cafile: /etc/ca.pem
        Set `security_protocol` to SSL or SASL_SSL, or leave it out.""",
    ),
    MessageCase(
        "a user that would not be used",
        GOOD.replace("topics: [a, b]", "topics: a\n  sasl_plain_username: etl"),
        """\
        shop.yaml:6: `sasl_plain_username`: with `security_protocol` PLAINTEXT it would not be used
            sasl_plain_username: etl
        Set `security_protocol` to SASL_SSL or SASL_PLAINTEXT, or leave it out.""",
    ),
    MessageCase(
        "a key has no effect without its certificate",
        GOOD.replace("topics: [a, b]", "topics: a\n  security_protocol: SSL\n  ssl_keyfile: /etc/key.pem"),
        """\
        shop.yaml:7: a key has no effect without its certificate
            ssl_keyfile: /etc/key.pem
        Add `ssl_certfile`.""",
    ),
    MessageCase(
        "more than a request to a broker can say",
        GOOD.replace("topics: [a, b]", "topics: a\n  max_partition_fetch_bytes: 2147483648"),
        """\
        shop.yaml:6: `source.max_partition_fetch_bytes`: expected `int` <= 2147483647
            max_partition_fetch_bytes: 2147483648
        Correct the value.""",
    ),
    MessageCase(
        "a time that Kafka's clock never shows",
        GOOD.replace("topics: [a, b]", "topics: a\n  start: {timestamp_ms: 9223372036854775808}"),
        """\
        shop.yaml:6: `source.start.timestamp_ms`: expected `int` <= 9223372036854775807
            start: {timestamp_ms: 9223372036854775808}
        Correct the value.""",
    ),
    MessageCase(
        "a name that no file can have",
        GOOD + "pipeline: a/b",
        """\
        shop.yaml:12: pipeline 'a/b' is blank, or contains a slash or a zero byte; choose a name that a file can have
            pipeline: a/b
        It is part of the names of its files, and of its consumer in each table.""",
    ),
    MessageCase(
        "a table twice",
        GOOD + "  - name: shop.orders\n",
        """\
        shop.yaml:12: table shop.orders is configured twice
            - name: shop.orders
        Write one entry per table; `match` may be a list.""",
    ),
    MessageCase(
        "a partition column outside of the key",
        GOOD.replace("    options", "    partition_by: [day]\n    options"),
        """\
        shop.yaml:11: the primary key of shop.orders lacks the partition columns day
            partition_by: [day]
        Add them to `primary_key`, or set `bucket: -1` in `options`: then keys move between partitions.""",
    ),
]


@pytest.mark.parametrize("case", MESSAGES, ids=lambda case: case.id)
def test_configuration_errors_have_the_expected_messages(case: MessageCase) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(case.text, "shop.yaml", case.flags, case.environment, "shop")
    assert str(raised.value) == dedent(case.message)


# ---------------------------------------------------------------- logins at Kafka

OAUTH = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "https://login.example.com/token",
    "sasl_oauthbearer_client_id": "etl",
    "sasl_oauthbearer_client_secret": "hunter2",
}


def kafka_source(**source: Any) -> str:
    """Return a configuration with this source, as JSON, which is YAML."""
    given = {"type": "kafka", "bootstrap_servers": "kafka:9092", "topics": "t", **source}
    return json.dumps({"warehouse": "/lake", "source": given, "tables": [{"name": "shop.orders"}]})


def test_the_token_endpoint_is_shown_and_the_secret_is_not() -> None:
    source = shown(parse(kafka_source(**OAUTH)))["source"]
    assert source["sasl_oauthbearer_token_endpoint_url"] == "https://login.example.com/token"
    assert source["sasl_oauthbearer_client_secret"] == "***"
    assert "hunter2" not in repr(parse(kafka_source(**OAUTH)))


def test_user_and_password_of_a_registry_are_not_shown() -> None:
    text = json.dumps({**json.loads(kafka_source()), "format_options": {"basic_auth_user_info": "me:hunter2"}})
    assert "hunter2" not in str(shown(parse(text)))


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in OAUTH.items() if name not in names}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        pytest.param(
            without("sasl_oauthbearer_token_endpoint_url", "sasl_oauthbearer_client_secret"),
            "needs a token endpoint, a client id and a client secret.*Add `sasl_oauthbearer_token_endpoint_url`; the "
            "secret is best set as TIDELAKE_SOURCE__SASL_OAUTHBEARER_CLIENT_SECRET",
            id="no endpoint",
        ),
        pytest.param(
            {**OAUTH, "sasl_oauthbearer_token_endpoint_url": "login.example.com"},
            "it is not an http or https URL",
            id="no URL",
        ),
        pytest.param(
            {**OAUTH, "sasl_oauthbearer_token_endpoint_url": "https://me:s3cret@login"},
            "it contains a user or a password",
            id="a password in the URL",
        ),
        pytest.param(
            {**OAUTH, "sasl_oauthbearer_extensions": {"logical-cluster": "x"}},
            "`logical-cluster` can't be sent with a token",
            id="a name that SASL doesn't allow",
        ),
        pytest.param(
            {**OAUTH, "security_protocol": "SSL"},
            "`sasl_oauthbearer_token_endpoint_url`: with `security_protocol` SSL it would not be used",
            id="no SASL",
        ),
        pytest.param(
            {**OAUTH, "sasl_mechanism": "PLAIN", "sasl_plain_username": "u", "sasl_plain_password": "p"},
            "with `sasl_mechanism` PLAIN it would not be used.*Set `sasl_mechanism` to OAUTHBEARER",
            id="another mechanism",
        ),
        pytest.param(
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"},
            "AWS_MSK_IAM needs the region of the cluster.*Add `aws_region`",
            id="no region",
        ),
        pytest.param(
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "AWS_MSK_IAM", "aws_region": "eu-west-1"},
            "MSK takes tokens over TLS only",
            id="MSK without TLS",
        ),
        pytest.param(
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "AWS_MSK_IAM",
                "aws_region": "eu-west-1",
                "aws_profile": "a",
                "aws_role_arn": "b",
            },
            "`aws_profile` and `aws_role_arn` are two ways",
            id="two credentials",
        ),
    ],
)
def test_contradictory_logins_are_refused(source: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"(?s){message}") as raised:
        parse(kafka_source(**source))
    assert not {secret for secret in ("hunter2", "s3cret") if secret in str(raised.value)}


@pytest.mark.parametrize(
    ("more", "targets", "ruling", "interval_ms"),
    [
        pytest.param("", [None], None, 10_000, id="none"),
        pytest.param("freshness: {target_ms: 8000}", [8_000], ("shop.orders", 8_000), 6_000, id="of the pipeline"),
        pytest.param(
            "freshness: {target_ms: 8000}\ntables: [{name: a.a}, {name: a.b, freshness: {target_ms: 4000}}]",
            [8_000, 4_000],
            ("a.b", 4_000),
            3_000,
            id="the smallest rules",
        ),
        pytest.param(
            "tables: [{name: a.a}, {name: 'a.x_{table}', freshness: {target_ms: 400}}]",
            [None, 400],
            ("a.x_{table}", 400),
            300,
            id="of an entry of many tables",
        ),
        pytest.param(
            "tables: [{name: a.a}, {name: a.b, paused: true, freshness: {target_ms: 400}}]",
            [None, None],
            None,
            10_000,
            id="a paused table promises nothing",
        ),
    ],
)
def test_the_smallest_target_of_freshness_rules(
    more: str, targets: list[int | None], ruling: tuple[str, int] | None, interval_ms: int
) -> None:
    text = GOOD if "tables:" not in more else GOOD[: GOOD.index("tables:")]
    config = parse(f"{text}{more}")
    assert [config.freshness_target_of(table) for table in config.tables] == targets
    assert (config.ruling_target, config.first_interval_ms) == (ruling, interval_ms)


@pytest.mark.parametrize(
    ("more", "flags", "message"),
    [
        pytest.param(
            "freshness: {target_ms: 5000}\ncheckpoint: {interval_ms: 10000}",
            (),
            "shop.yaml:13: `freshness.target_ms` of shop.orders is 5000, and chooses the interval\n"
            "    checkpoint: {interval_ms: 10000}\nLeave out one of the two.",
            id="an interval, also the default one",
        ),
        pytest.param(
            "freshness: {target_ms: 5000}",
            ("checkpoint.interval_ms=500",),
            "flag checkpoint.interval_ms: `freshness.target_ms` of shop.orders is 5000, and chooses the interval\n"
            "    500\nLeave out one of the two.",
            id="an interval in a flag",
        ),
        pytest.param(
            "freshness: {price_an_hour_max: 1}",
            (),
            "shop.yaml:12: without a target nothing is chosen that it could limit\n"
            "    freshness: {price_an_hour_max: 1}\nAdd `freshness.target_ms`.",
            id="a price without a target",
        ),
        pytest.param(
            "freshness: {target_ms: 5000, price_an_hour_max: 1}",
            (),
            "shop.yaml:12: nobody charges for requests at /lake\n"
            "    freshness: {target_ms: 5000, price_an_hour_max: 1}\nLeave it out.",
            id="a price on a disk",
        ),
        pytest.param(
            "freshness: {target_ms: 50}",
            (),
            "shop.yaml:12: `freshness.target_ms`: expected `int` >= 200\n    freshness: {target_ms: 50}\n"
            "Correct the value.",
            id="a target that no commit keeps",
        ),
    ],
)
def test_what_contradicts_a_target_of_freshness_is_refused(more: str, flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(f"{GOOD}{more}", *flags)
    assert str(refused.value) == message


def test_a_price_limit_is_taken_for_an_object_store() -> None:
    text = GOOD.replace("/lake", "s3://bucket/lake")
    config = parse(f"{text}freshness: {{target_ms: 5000, price_an_hour_max: 0.25}}")
    assert config.freshness.price_an_hour_max == 0.25
    assert parse(f"{text}freshness: {{target_ms: 5000}}\ncheckpoint: {{bytes_max: 7}}").checkpoint.bytes_max == 7
