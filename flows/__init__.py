"""Schedules and sweeps."""
