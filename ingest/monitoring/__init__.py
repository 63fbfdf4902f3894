"""The monitoring of a running pipeline: metrics, probes, a status page."""
