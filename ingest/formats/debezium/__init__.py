"""The format `debezium-json`, and the rules that all formats of Debezium's records share."""
