"""OpenLineage events of a pipeline's runs. Only this package imports OpenLineage's client, an optional package."""
