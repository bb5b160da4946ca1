"""A trained model in forms that other programs read."""
