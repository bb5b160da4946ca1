"""A project's own folder: how it is made from the installed tool, kept up with it, handed over and taken."""
