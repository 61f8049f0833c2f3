"""Grafana's dashboards: what is on them (`boards`), and their JSON (`grafana`)."""
