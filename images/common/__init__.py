"""Shared by the programs of all images."""
