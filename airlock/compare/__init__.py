"""Claimed, proven and attacked guarantees side by side."""
