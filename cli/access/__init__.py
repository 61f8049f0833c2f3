"""Ways to a cluster and into it: its kubeconfig, and sessions on its login nodes."""
