"""Programs of others that use Slurm, as users install them. Their first run fetches them from the registries."""
