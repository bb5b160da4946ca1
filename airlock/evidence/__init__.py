"""Zones, receipts and what follows from them."""
