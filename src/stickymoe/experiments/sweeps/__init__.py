"""Sweeps: variants x sizes x seeds, each a run of its own, and the rows that come out."""
