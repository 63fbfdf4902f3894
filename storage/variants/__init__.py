"""VARIANT: values that each carry their own type. Parts: the value itself, and the names that its objects use.

    value       header byte: 2 bits basic type (primitive, short text, object, array), 6 bits which, or a length
    metadata    version, number of names, where each begins, the names

Encoding: https://github.com/apache/parquet-format/blob/master/VariantEncoding.md.
"""
