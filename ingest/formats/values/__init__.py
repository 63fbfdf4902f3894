"""How the values of records are read into columns, with a module for each family of column types.

A module has all rules of its types, for one value and for many: `decimals` reads a DECIMAL from one JSON value, from a
column of JSON values, and from a column of Avro. `dispatch` chooses by the column's type.

A value decoder takes the raw JSON text of a value that is not null. It returns a Python value from which an Arrow array
of the column's in-memory type can be built, or raises `BadValue`. Value decoders define which values are valid, and
what they mean. The decoders of columns are faster and give the same results.
"""
