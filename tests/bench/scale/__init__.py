"""Many slurmd on one machine, against one slurmctld with the files of a rendered stack."""
