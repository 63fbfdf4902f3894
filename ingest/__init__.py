"""From a log to committed tables: sources, decoders, the pipeline, the Spark sink."""
