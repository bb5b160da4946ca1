"""The kernel's walls around a stage."""
