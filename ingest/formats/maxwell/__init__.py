"""`maxwell-json`: what Maxwell's Daemon writes."""
