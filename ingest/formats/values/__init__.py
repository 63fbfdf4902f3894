"""Decoders of JSON values, with a module for each family of column types.

A value decoder takes the raw JSON text of a value that is not null. It returns a Python value from which an Arrow array
of the column's in-memory type can be built, or raises `BadValue`. `dispatch.value_decoder_for` chooses the decoder.
Value decoders define which values are valid. The decoders in `column_decoders` are faster and give the same results.
"""
