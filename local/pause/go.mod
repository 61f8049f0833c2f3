module slurmstack/pause

go 1.24.0
