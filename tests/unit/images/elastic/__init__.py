"""Tests of images/elastic."""
