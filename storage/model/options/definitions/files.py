"""Options of data files and their statistics."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    LAYOUT,
    PERFORMANCE_ONLY,
    READING,
    ROW_OPERATIONS,
    USE_JAVA,
    WRITE,
    Option,
    Refusal,
    is_set,
    other_than,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, FRACTION, INT, LONG, MAP, SIZE, TEXT, WORD, one_of

_SHREDDING: Final = "it belongs to the shredding of variants, which writing refuses"
_BLOB: Final = "it belongs to BLOB columns with values from other places, which writing does not fetch"
_BY_ENGINES_DDL: Final = "only CREATE TABLE in SQL engines uses it; here columns have explicit types"
_VECTOR: Final = "it belongs to vector.file.format, which writing refuses"
_NO_FORMAT: Final = other_than("parquet", "orc", "avro", example="csv")

FILES_OPTIONS: Final[tuple[Option, ...]] = (
    supported(
        "file.format",
        WORD,
        "parquet",
        FILE_WRITING_OPERATIONS,
        Refusal(
            FILE_WRITING_OPERATIONS, _NO_FORMAT, "files can be written as parquet, orc or avro", "Choose one of them"
        ),
    ),
    supported("file.format.per.level", MAP, None, FILE_WRITING_OPERATIONS),
    supported("file.compression", WORD, "zstd", FILE_WRITING_OPERATIONS),
    supported("file.compression.per.level", MAP, None, FILE_WRITING_OPERATIONS),
    supported("file.compression.zstd-level", INT, "1", FILE_WRITING_OPERATIONS),
    supported("file.block-size", SIZE, None, FILE_WRITING_OPERATIONS),
    supported("file.suffix.include.compression", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    supported("data-file.prefix", TEXT, "data-", FILE_WRITING_OPERATIONS),
    supported("data-file.thin-mode", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    supported("target-file-size", SIZE, None, FILE_WRITING_OPERATIONS),
    supported("target-file-row-num", LONG, "9223372036854775807", FILE_WRITING_OPERATIONS),
    supported("metadata.stats-mode", WORD, "truncate(16)", FILE_WRITING_OPERATIONS),
    supported("metadata.stats-mode.per.level", MAP, None, FILE_WRITING_OPERATIONS),
    supported("metadata.stats-dense-store", BOOLEAN, "true", FILE_WRITING_OPERATIONS),
    supported("metadata.stats-keep-first-n-columns", INT, "-1", FILE_WRITING_OPERATIONS),
    supported("parquet.enable.dictionary", BOOLEAN, None, FILE_WRITING_OPERATIONS),
    supported("orc.dictionary.key.threshold", FRACTION, "0.8", FILE_WRITING_OPERATIONS),
    without_effect("orc.column.encoding.direct", INT, None, LAYOUT),
    unsupported(
        "orc.timestamp-ltz.legacy.type",
        BOOLEAN,
        "true",
        Refusal(
            FILE_WRITING_OPERATIONS,
            other_than("true", example="false"),
            "TIMESTAMP_LTZ would be written as Java does with true",
            "Unset it",
        ),
    ),
    supported("parquet.enable.dictionary#<column>", BOOLEAN, None, FILE_WRITING_OPERATIONS, release="file format"),
    supported("parquet.compression.codec.zstd.level", INT, None, FILE_WRITING_OPERATIONS, release="file format"),
    supported("parquet.page.size", SIZE, None, FILE_WRITING_OPERATIONS, release="file format"),
    supported("parquet.block.size", SIZE, None, FILE_WRITING_OPERATIONS, release="file format"),
    supported("orc.compress", WORD, None, FILE_WRITING_OPERATIONS, release="file format"),
    supported("orc.stripe.size", SIZE, None, FILE_WRITING_OPERATIONS, release="file format"),
    supported("avro.codec", WORD, None, FILE_WRITING_OPERATIONS, release="file format"),
    without_effect("parquet.*", TEXT, None, LAYOUT, release="file format"),
    without_effect("orc.*", TEXT, None, LAYOUT, release="file format"),
    without_effect("avro.*", TEXT, None, LAYOUT, release="file format"),
    without_effect("async-file-write", BOOLEAN, "true", PERFORMANCE_ONLY),
    without_effect("write.batch-size", INT, "1024", PERFORMANCE_ONLY, fallbacks=("orc.write.batch-size",)),
    without_effect("write.batch-memory", SIZE, "128 mb", PERFORMANCE_ONLY),
    without_effect("read.batch-size", INT, "1024", PERFORMANCE_ONLY),
    without_effect("file-reader-async-threshold", SIZE, "10 mb", PERFORMANCE_ONLY),
    unsupported(
        "variant.shreddingSchema",
        TEXT,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("{}"), "variants are written unshredded", "Unset it"),
        fallbacks=("parquet.variant.shreddingSchema",),
    ),
    unsupported(
        "variant.inferShreddingSchema",
        BOOLEAN,
        "false",
        Refusal(FILE_WRITING_OPERATIONS, IS_TRUE, "variants are written unshredded", "Unset it"),
    ),
    without_effect("variant.shredding.inferenceMode", one_of("per-file", "adaptive"), "per-file", _SHREDDING),
    without_effect("variant.shredding.maxSchemaWidth", INT, "300", _SHREDDING),
    without_effect("variant.shredding.maxSchemaDepth", INT, "50", _SHREDDING),
    without_effect("variant.shredding.minFieldCardinalityRatio", FRACTION, "0.1", _SHREDDING),
    without_effect("variant.shredding.maxInferBufferRow", INT, "4096", _SHREDDING),
    without_effect("variant.shredding.adaptive.maxInferBufferRow", INT, "256", _SHREDDING),
    without_effect("variant.shredding.adaptive.retentionRatio", FRACTION, "0.05", _SHREDDING),
    without_effect("blob-field", TEXT, None, _BY_ENGINES_DDL, immutable=True),
    unsupported(
        "blob-descriptor-field",
        TEXT,
        None,
        Refusal(
            FILE_WRITING_OPERATIONS,
            is_set("photo"),
            "descriptors of other files can be read, but not written",
            USE_JAVA,
        ),
        fallbacks=("blob.stored-descriptor-fields",),
        immutable=True,
    ),
    unsupported(
        "blob-view-field",
        TEXT,
        None,
        Refusal(ROW_OPERATIONS, is_set("photo"), "its values refer to other tables", USE_JAVA),
        immutable=True,
    ),
    without_effect("blob-view.resolve.enabled", BOOLEAN, "true", "it belongs to blob-view-field, which is refused"),
    supported(
        "blob-as-descriptor",
        BOOLEAN,
        "false",
        READING,
        Refusal(WRITE, IS_TRUE, "values are written as they are, not as descriptors of others", "Unset it for writing"),
    ),
    without_effect("blob-descriptor.source-table", TEXT, None, _BLOB),
    without_effect("blob-write-null-on-missing-file", BOOLEAN, "false", _BLOB),
    without_effect("blob-write-null-on-fetch-failure", BOOLEAN, "false", _BLOB),
    supported("blob.target-file-size", SIZE, None, WRITE),
    without_effect(
        "blob.split-by-file-size", BOOLEAN, None, "splits are built from rows, and a blob is read with its row"
    ),
    without_effect("blob.copy-buffer-size", SIZE, "4 kb", PERFORMANCE_ONLY),
    without_effect("blob-compaction.enabled", BOOLEAN, "false", "only Java Paimon compacts tables with blobs"),
    unsupported(
        "blob-descriptor.*",
        TEXT,
        None,
        Refusal(
            READING,
            is_set("x"),
            "files that descriptors name are read with the table's own store and its options",
            "Unset it, or set blob-as-descriptor = true and read the files yourself",
        ),
    ),
    unsupported(
        "vector.file.format",
        TEXT,
        None,
        Refusal(
            FILE_WRITING_OPERATIONS,
            is_set("lance"),
            "vectors would be written to the files of the other columns",
            "Unset it",
        ),
    ),
    without_effect("vector-field", TEXT, None, _BY_ENGINES_DDL),
    without_effect("vector.target-file-size", SIZE, None, _VECTOR),
)
