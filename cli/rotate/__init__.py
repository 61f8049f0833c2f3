"""Rotation of keys: another key into the cluster's Secrets, and those who read the old one start again."""
