"""The page for people without Grafana: nodes, queue and use, seen with one's own token."""
