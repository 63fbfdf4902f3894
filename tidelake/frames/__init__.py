"""Tables in the hands of other libraries: pandas, Polars, DuckDB, Arrow datasets, notebooks. Each is imported when it
is asked for.
"""
