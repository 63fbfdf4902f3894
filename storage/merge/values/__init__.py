"""Values as aggregate functions need them: wide integers, equality, arrays and maps as entries, Java's hash order."""
