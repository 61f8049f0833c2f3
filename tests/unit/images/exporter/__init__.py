"""Tests of images/exporter."""
