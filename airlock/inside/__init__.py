"""All of the runner's side that a confined stage may import."""
