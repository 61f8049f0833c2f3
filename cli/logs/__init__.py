"""What Slurm and Kubernetes wrote about a component, a node or a job, in the order of time."""
