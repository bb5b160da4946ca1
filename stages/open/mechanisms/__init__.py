"""How a model is trained from a release, by mechanism."""
