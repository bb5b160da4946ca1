"""Public data sets by name: where they come from, how they are checked and converted."""
