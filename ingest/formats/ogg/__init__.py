"""`ogg-json`: what Oracle GoldenGate's JSON formatter writes."""
