"""Settings of the sources of an ingest configuration, with their defaults, and the types of numbers and names that all
settings share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from tidelake.ingest.secrets import Secret

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
KafkaInt = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # the Kafka protocol sends it as four bytes
KafkaLong = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
DecodeProcesses = Literal["auto"] | Annotated[int, msgspec.Meta(ge=0, le=64)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
SaslMechanism = Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]

_MSK_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


class FolderStartSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position in a folder's partitions.

    offsets: topic to partition to next offset; partitions that are not named start with their first record
    """

    offsets: Mapping[str, Mapping[NotNegative, KafkaLong]]


class FolderSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="change-log-folder"
):
    """Change-log files in a folder.

    path: the folder
    start: where a pipeline without a commit starts; afterwards its tables hold the position
    until: `end` reads the existing records, `forever` waits for more
    poll_interval_ms: how often to look for new files and lines once all are read
    max_record_bytes: maximum size of a line, uncompressed; a longer one stops the pipeline before it fills the memory
    decode_processes: how many processes decode the records; 0: the pipeline's own one does. `auto`: one for each core
        but the first, up to four. Each takes about 150 MiB. See [performance](performance.md#all-cores)
    """

    path: Path
    start: Literal["earliest"] | FolderStartSettings = "earliest"
    until: Literal["end", "forever"] = "forever"
    poll_interval_ms: Positive = 1_000
    max_record_bytes: Positive = 64 << 20
    decode_processes: DecodeProcesses = 0


class StartSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where reading starts. Set exactly one of these.

    timestamp_ms: epoch milliseconds; each partition starts with its first record that is not older
    offsets: topic to partition to next offset, for all partitions
    group: a consumer group; reading starts at its committed offsets
    """

    timestamp_ms: KafkaLong | None = None
    offsets: Mapping[str, Mapping[NotNegative, KafkaLong]] | None = None
    group: Name | None = None


class KafkaSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="kafka"
):
    """Topics of a Kafka cluster. The settings from `client_id` on are passed to the Kafka client unchanged.

    bootstrap_servers: `host:port` of one or several brokers
    topics: names of the topics to read
    topic_pattern: instead of `topics`: a regular expression that matches whole names; new topics are read, too
    start: where a pipeline without a commit starts; afterwards its tables hold the position
    until: `end` stops at the ends that the partitions have when reading starts, `forever` waits for more
    until_timestamp_ms: read each partition up to its first record of this time or later (epoch milliseconds), at most
        up to its end, then stop
    isolation_level: `read_committed` skips records of aborted transactions
    group_id: consumer group that confirmed offsets are written to, for monitoring; they are never read back
    discovery_interval_ms: how often to look for new topics and partitions
    unreachable_after_ms: how long a partition may give no answer before the pipeline stops with an error. Until then
        brokers are retried after 200 ms to 10 s, and the log says so once a minute
    max_record_bytes: maximum size of a compressed record, or of the batch it was compressed in, when uncompressed; a
        larger one stops the pipeline before it fills the memory. Uncompressed records are limited by the fetch sizes
    decode_processes: how many processes decode the records; 0: the pipeline's own one does. `auto`: one for each core
        but the first, up to four. Each takes about 150 MiB. See [performance](performance.md#all-cores)
    client_id: name of the client in the logs and quotas of brokers
    client_rack: rack of the client; replicas in the same rack are read
    request_timeout_ms: how long a broker may take to answer
    connections_max_idle_ms: when an idle connection is closed
    fetch_min_bytes: how much a broker collects before it answers
    fetch_max_bytes: maximum size of an answer
    fetch_max_wait_ms: how long a broker waits for `fetch_min_bytes`
    max_partition_fetch_bytes: maximum size of an answer for one partition
    check_crcs: check the checksums of record batches
    security_protocol: protocol of the connection to brokers
    sasl_mechanism: how the client authenticates, with a SASL protocol. `OAUTHBEARER` gets access tokens from a token
        endpoint, `AWS_MSK_IAM` signs them with the credentials of AWS (`pip install tidelake[msk]`); both renew them
    sasl_plain_username: user name for `PLAIN` and `SCRAM-…`
    sasl_plain_password: password for `PLAIN` and `SCRAM-…`
    sasl_kerberos_service_name: Kerberos service name for `GSSAPI`
    sasl_kerberos_domain_name: Kerberos domain name for `GSSAPI`
    sasl_oauthbearer_token_endpoint_url: address that gives access tokens for client id and secret (OAuth 2.0 client
        credentials), for `OAUTHBEARER`
    sasl_oauthbearer_client_id: the client's id at the token endpoint
    sasl_oauthbearer_client_secret: the client's secret
    sasl_oauthbearer_scope: what tokens are asked for; default: what the token endpoint gives this client
    sasl_oauthbearer_extensions: names and values that are sent to brokers with a token (`logicalCluster`,
        `identityPoolId` for Confluent Cloud)
    sasl_oauthbearer_cafile: PEM file of the authorities that the token endpoint is trusted by; default: those of the
        system
    aws_region: region of the cluster, for `AWS_MSK_IAM`; default: from the names of its brokers
    aws_profile: profile of AWS with the credentials; default: AWS's own search (environment, files, role of the
        machine)
    aws_role_arn: role to assume
    ssl_cafile: PEM file of the trusted authorities; default: those of the system
    ssl_certfile: PEM file of the client's certificate
    ssl_keyfile: PEM file of that certificate's key
    ssl_password: password of `ssl_keyfile`
    ssl_check_hostname: a broker's certificate must name its host
    """

    bootstrap_servers: Name | list[Name]
    topics: Name | list[Name] = []
    topic_pattern: Name | None = None
    start: Literal["earliest", "latest"] | StartSettings = "earliest"
    until: Literal["end", "forever"] = "forever"
    until_timestamp_ms: KafkaLong | None = None
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    group_id: Name | None = None
    discovery_interval_ms: Positive = 30_000
    unreachable_after_ms: Positive = 120_000
    max_record_bytes: Positive = 64 << 20
    decode_processes: DecodeProcesses = 0

    client_id: Name = "tidelake"
    client_rack: Name | None = None
    request_timeout_ms: Positive = 40_000
    connections_max_idle_ms: Positive = 540_000
    fetch_min_bytes: KafkaInt = 1
    fetch_max_bytes: KafkaInt = 52_428_800
    fetch_max_wait_ms: KafkaInt = 500
    max_partition_fetch_bytes: KafkaInt = 1_048_576
    check_crcs: bool = True
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "PLAIN"
    sasl_plain_username: str | None = None
    sasl_plain_password: Secret | None = None
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    sasl_oauthbearer_token_endpoint_url: Name | None = None
    sasl_oauthbearer_client_id: Name | None = None
    sasl_oauthbearer_client_secret: Secret | None = None
    sasl_oauthbearer_scope: Name | None = None
    sasl_oauthbearer_extensions: Mapping[Name, str] = {}
    sasl_oauthbearer_cafile: Path | None = None
    aws_region: Name | None = None
    aws_profile: Name | None = None
    aws_role_arn: Name | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_password: Secret | None = None
    ssl_check_hostname: bool = True

    @property
    def is_sasl(self) -> bool:
        """Whether the client logs in with `sasl_mechanism`."""
        return self.security_protocol.startswith("SASL")

    @property
    def msk_region(self) -> str | None:
        """The region of the cluster: the setting, or that in the names of MSK's brokers; None if it is unknown."""
        found = _MSK_BROKER.search(self.server_text)
        return self.aws_region or (found[1] if found else None)

    @property
    def topic_names(self) -> list[str]:
        return [self.topics] if isinstance(self.topics, str) else self.topics

    @property
    def server_text(self) -> str:
        return self.bootstrap_servers if isinstance(self.bootstrap_servers, str) else ",".join(self.bootstrap_servers)
