"""Room 1: raw records in, sealed records out."""
