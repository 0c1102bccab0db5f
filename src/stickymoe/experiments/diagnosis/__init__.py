"""Why an expert cache misses and what would help: numbers, a terminal summary and a report, from trace or counts."""
