"""A stack file from the files of an existing Slurm cluster."""
