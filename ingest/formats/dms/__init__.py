"""`aws-dms-json`: what AWS Database Migration Service writes to Kafka and Kinesis."""
