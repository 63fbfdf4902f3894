"""One JSON value to one value of a column: the rules, a family of types a module; `dispatch.cell_for` picks.

A cell takes the raw JSON text of a value that is not null, and gives what an Arrow array of the column's in-memory type
is made of, or raises `BadValue`. Cells say what is right; the kernels of `column_kernels` are their fast equals.
"""
