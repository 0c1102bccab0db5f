"""The report of a sweep, from its result rows alone and without torch: tables, figures, verdicts on the paper's claims."""
