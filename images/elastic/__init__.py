"""elastic: the pods of pools whose nodes Slurm starts and ends."""
