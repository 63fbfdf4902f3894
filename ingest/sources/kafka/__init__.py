"""Kafka topics as a source, with aiokafka."""
