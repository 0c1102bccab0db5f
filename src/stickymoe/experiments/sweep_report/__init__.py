"""The report of a sweep, from its rows alone and without torch: tables, figures, verdicts on the paper's claims."""
