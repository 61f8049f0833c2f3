"""What is known of the health of nodes, for pods and commands."""
