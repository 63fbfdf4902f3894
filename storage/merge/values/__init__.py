"""Values for aggregate functions: wide integers, equality, entries of arrays and maps, Java's hash order."""
