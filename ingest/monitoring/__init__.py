"""What a running pipeline tells people and their tools: metrics, probes, a status page."""
