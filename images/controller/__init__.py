"""Programs of the controller image: slurmctld, config-agent, await-config."""
