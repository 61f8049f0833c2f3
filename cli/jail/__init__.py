"""Roots in the jail's volume: which there are, who uses them, whether one fits."""
