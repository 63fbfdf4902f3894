"""One JSON value to one value of a column: the rules, a family of types a module; `dispatch.value_decoder_for` picks.

A value decoder takes the raw JSON text of a value that is not null, and gives what an Arrow array of the column's
in-memory type is made of, or raises `BadValue`. Value decoders say what is right; those of `column_decoders` are their
fast equals.
"""
