"""Readers of the trace formats in the field, one a file."""
