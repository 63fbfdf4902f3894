"""The format `debezium-bson`: change records of Debezium's MongoDB connector, with documents in extended JSON."""
