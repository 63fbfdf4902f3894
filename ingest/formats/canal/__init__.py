"""`canal-json`: what Alibaba Canal, TiCDC and others write as Canal's flat messages."""
