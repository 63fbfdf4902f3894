"""Operations on tables with Spark: changes of rows, and maintenance."""
