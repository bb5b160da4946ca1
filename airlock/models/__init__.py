"""Trained models as values, and the mathematics that makes them."""
