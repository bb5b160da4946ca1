"""Comparisons on this machine; results are in bench/results."""
