"""Options of a catalog, for `open_catalog`."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    CREATE,
    FLINK,
    OPEN,
    PERFORMANCE_ONLY,
    Condition,
    Option,
    OptionValues,
    Refusal,
    other_than,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, DURATION, INT, LONG, SIZE, TEXT, one_of, parse_boolean

_OTHER_CATALOGS: Final = "it belongs to catalogs that are refused"


def _metastore(values: OptionValues) -> str:
    return values.get("metastore", "").strip().lower()


def _has_locks(values: OptionValues) -> bool:
    return _metastore(values) in ("jdbc", "hive")


_WITHOUT_ADDRESS: Final = Refusal(
    OPEN,
    Condition(
        "set without metastore = jdbc, hive or rest",
        "jdbc:sqlite:/data/catalog.db",
        lambda key, values: _metastore(values) not in ("jdbc", "hive", "rest"),
    ),
    "only catalogs in a database, in a Hive metastore or on a server have an address",
    "Set metastore = jdbc, hive or rest, or leave it out",
)

_HIVE_CLIENT: Final = "org.apache.hadoop.hive.metastore.HiveMetaStoreClient"

CATALOG_OPTIONS: Final[tuple[Option, ...]] = (
    supported("warehouse", TEXT, None, OPEN),
    supported(
        "metastore",
        TEXT,
        "filesystem",
        OPEN,
        Refusal(
            OPEN,
            other_than("filesystem", "jdbc", "hive", "rest", example="glue"),
            "catalogs can be in the file system, in a database, in a Hive metastore or on a server, as in Java",
            "Leave metastore out, or choose jdbc, hive or rest",
        ),
    ),
    supported(
        "lock.enabled",
        BOOLEAN,
        None,
        OPEN,
        Refusal(
            OPEN,
            Condition(
                "true without metastore = jdbc or hive",
                "true",
                lambda key, values: values.is_on(key) and not _has_locks(values),
            ),
            "commits take no lock: they create snapshots only if absent",
            "Leave it out; don't write at the same time as writers that need the lock",
        ),
    ),
    unsupported(
        "lock.type",
        TEXT,
        None,
        Refusal(
            OPEN,
            Condition(
                "other than jdbc or hive, or than the metastore",
                "zookeeper",
                lambda key, values: values[key].strip() != _metastore(values) or not _has_locks(values),
            ),
            "only catalogs in a database and in a Hive metastore have locks, each of its own type",
            "Leave it out",
        ),
    ),
    supported("case-sensitive", BOOLEAN, None, OPEN, fallbacks=("allow-upper-case",)),
    supported("table-default.*", TEXT, None, CREATE),
    supported("lock-check-max-sleep", DURATION, "8 s", OPEN),
    supported("lock-acquire-timeout", DURATION, "8 min", OPEN),
    supported("lock-key-max-length", INT, "255", OPEN),
    supported("uri", TEXT, None, OPEN, _WITHOUT_ADDRESS),
    supported("jdbc.*", TEXT, None, OPEN),
    supported("table.type", one_of("managed", "external"), "managed", OPEN),
    supported("client-pool-size", INT, "2", OPEN),
    supported("sync-all-properties", BOOLEAN, "true", OPEN),
    supported("catalog-key", TEXT, "jdbc", OPEN),
    without_effect("user", TEXT, "anonymous", _OTHER_CATALOGS),
    without_effect("password", TEXT, "anonymous", _OTHER_CATALOGS),
    supported("prefix", TEXT, None, OPEN),
    supported("hive-conf-dir", TEXT, None, OPEN),
    supported("hadoop-conf-dir", TEXT, None, OPEN),
    unsupported(
        "metastore.client.class",
        TEXT,
        _HIVE_CLIENT,
        Refusal(
            OPEN,
            other_than(_HIVE_CLIENT, example="com.amazonaws.glue.catalog.metastore.AWSCatalogMetastoreClient"),
            "a metastore is asked over plain Thrift, which AWS Glue does not speak: Java loads a class of Amazon's",
            "Use a Hive metastore with a thrift:// address, or another catalog",
        ),
    ),
    supported("location-in-properties", BOOLEAN, "false", OPEN),
    without_effect("client-pool-cache.eviction-interval-ms", LONG, "300000", PERFORMANCE_ONLY),
    supported("hive.skip-update-stats", BOOLEAN, "false", OPEN),
    without_effect("client-pool-cache.keys", TEXT, None, PERFORMANCE_ONLY),
    supported("alter-table-cascade", BOOLEAN, "true", OPEN),
    supported("token", TEXT, None, OPEN),
    supported(
        "data-token.enabled",
        BOOLEAN,
        "false",
        OPEN,
        Refusal(
            OPEN,
            Condition(
                "true without metastore = rest",
                "true",
                lambda key, values: parse_boolean(values[key]) and _metastore(values) != "rest",
            ),
            "only the server of a REST catalog issues them",
            "Leave it out",
        ),
    ),
    supported(
        "token.provider",
        TEXT,
        None,
        OPEN,
        Refusal(
            OPEN, other_than("bear", example="dlf"), "only bearer tokens are sent", "Set it to bear, and set token"
        ),
    ),
    without_effect("dlf.region", TEXT, None, _OTHER_CATALOGS),
    without_effect("dlf.token-path", TEXT, None, _OTHER_CATALOGS),
    without_effect("dlf.access-key-id", TEXT, None, _OTHER_CATALOGS),
    without_effect("dlf.access-key-secret", TEXT, None, _OTHER_CATALOGS),
    without_effect("dlf.security-token", TEXT, None, _OTHER_CATALOGS),
    without_effect("dlf.token-loader", TEXT, None, _OTHER_CATALOGS),
    without_effect(
        "dlf.token-ecs-metadata-url",
        TEXT,
        "http://100.100.100.200/latest/meta-data/Ram/security-credentials/",
        _OTHER_CATALOGS,
    ),
    without_effect("dlf.token-ecs-role-name", TEXT, None, _OTHER_CATALOGS),
    supported("header.User-Agent", TEXT, None, OPEN),
    supported("header.*", TEXT, None, OPEN),
    without_effect("dlf.oss-endpoint", TEXT, None, _OTHER_CATALOGS),
    without_effect("dlf.signing-algorithm", TEXT, "default", _OTHER_CATALOGS),
    without_effect("cache-enabled", BOOLEAN, "true", PERFORMANCE_ONLY),
    without_effect(
        "cache.expire-after-access", DURATION, "10 min", PERFORMANCE_ONLY, fallbacks=("cache.expiration-interval",)
    ),
    without_effect("cache.expire-after-write", DURATION, "30 min", PERFORMANCE_ONLY),
    without_effect("cache.partition.max-num", LONG, "0", PERFORMANCE_ONLY),
    without_effect("cache.manifest.small-file-memory", SIZE, "128 mb", PERFORMANCE_ONLY),
    without_effect("cache.manifest.small-file-threshold", SIZE, "1 mb", PERFORMANCE_ONLY),
    without_effect("cache.manifest.max-memory", SIZE, None, PERFORMANCE_ONLY),
    without_effect("cache.manifest.soft-values", BOOLEAN, "true", PERFORMANCE_ONLY),
    without_effect("cache.snapshot.max-num-per-table", INT, "20", PERFORMANCE_ONLY),
    without_effect("cache.deletion-vectors.max-num", INT, "100000", PERFORMANCE_ONLY),
    without_effect("resolving-file-io.enabled", BOOLEAN, "false", PERFORMANCE_ONLY),
    without_effect("file-io.allow-cache", BOOLEAN, "true", PERFORMANCE_ONLY),
    without_effect("local-cache.enabled", BOOLEAN, "false", PERFORMANCE_ONLY),
    without_effect("local-cache.dir", TEXT, None, PERFORMANCE_ONLY),
    without_effect("local-cache.max-size", SIZE, None, PERFORMANCE_ONLY),
    without_effect("local-cache.block-size", SIZE, "1 mb", PERFORMANCE_ONLY),
    without_effect("local-cache.whitelist", TEXT, "meta,global-index", PERFORMANCE_ONLY),
    without_effect("io-cache.enabled", BOOLEAN, "false", PERFORMANCE_ONLY),
    without_effect("io-cache.whitelist-path", TEXT, "bucket,manifest,index", PERFORMANCE_ONLY),
    without_effect("io-cache.policy", TEXT, None, PERFORMANCE_ONLY),
    supported("catalog-options-table.enabled", BOOLEAN, "false", OPEN),
    supported("format-table.enabled", BOOLEAN, "true", CREATE | OPEN),
    without_effect("default-database", TEXT, "default", FLINK),
    without_effect("disable-create-table-in-default-db", BOOLEAN, "false", FLINK),
    without_effect("lineage-use-catalog-key-as-identifier", BOOLEAN, "false", FLINK),
)
