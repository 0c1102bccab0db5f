"""The policies, one a file: arrays for a state and a compiled function for each rule of `rules_kernel`."""
