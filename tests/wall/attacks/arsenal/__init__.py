"""Attacks on the wall. Each is a small function that runs inside a stage and returns what it got hold of.

Run as `python -m arsenal CONFIG`: every attack in a process of its own; one JSON line each on stdout. What
counts as success is decided outside, by whoever knows the secrets.
"""
