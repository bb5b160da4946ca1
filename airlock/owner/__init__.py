"""What only the data owner's machine has: home, keys, registry, log."""
