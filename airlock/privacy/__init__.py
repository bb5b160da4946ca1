"""Guarantees, accounting, exact sums and keyed noise."""
