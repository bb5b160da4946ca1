"""Mechanisms of the compared papers."""
