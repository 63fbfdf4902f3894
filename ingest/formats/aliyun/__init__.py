"""`aliyun-json`: what Alibaba DataWorks' synchronization to Kafka writes."""
