"""What components share: where their objects live, the pods they make, rights, jobs and volumes."""
