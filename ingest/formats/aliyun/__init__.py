"""The format `aliyun-json`: records of Alibaba DataWorks' synchronization to Kafka."""
