"""The format `ogg-json`: records of Oracle GoldenGate's JSON formatter."""
