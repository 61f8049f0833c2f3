"""Elastic pools as pods and commands know them."""
