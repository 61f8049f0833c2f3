"""Tests in guest machines."""
