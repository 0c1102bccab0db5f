"""Writers of trace formats that others read, one a file."""
