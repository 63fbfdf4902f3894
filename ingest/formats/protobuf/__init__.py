"""Records in Protobuf. Only this package imports Protobuf's library, an optional package."""
