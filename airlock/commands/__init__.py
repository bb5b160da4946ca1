"""One file per command; each imports its work lazily."""
