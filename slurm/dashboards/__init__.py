"""Grafana's dashboards: what is on them (`boards`, `panels`), and their JSON (`grafana`)."""
