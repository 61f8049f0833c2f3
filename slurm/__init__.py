"""Pure logic of the cluster: sizes, names, partitions, and Slurm's configuration files. Nothing here imports Pulumi."""
