"""What a running pipeline reports: metrics, probes, a status page."""
