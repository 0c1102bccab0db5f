"""Where runs are started: on this machine, on a Ray cluster, by SLURM. One launcher a file, one registry."""
