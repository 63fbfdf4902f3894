"""The format `canal-json`: flat messages of Alibaba Canal, TiCDC and others."""
