"""Parts of a pipeline that are made from its configuration alone."""
