"""The format `aws-dms-json`: records that AWS Database Migration Service writes to Kafka and Kinesis."""
