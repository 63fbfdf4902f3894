"""VARIANT: values that contain their own type. Its two parts are the value, and the field names of its objects.

    value       header byte: 2 bits basic type (primitive, short text, object, array), 6 bits subtype or length
    metadata    version, number of names, where each begins, the names

Encoding: https://github.com/apache/parquet-format/blob/master/VariantEncoding.md.
"""
