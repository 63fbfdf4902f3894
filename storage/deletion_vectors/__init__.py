"""Which rows of data files are deleted: sets of positions beside the files, applied by whoever reads them."""
