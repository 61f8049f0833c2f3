"""Tests of the program with real processes, real programs and real time."""
