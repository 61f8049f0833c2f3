"""Rules: each looks at the cluster and gives findings. They ask nobody, so a test needs no cluster."""
