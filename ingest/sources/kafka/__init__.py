"""Kafka topics as a source, through aiokafka."""
