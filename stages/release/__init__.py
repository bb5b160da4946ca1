"""Room 2: sealed records in, releases out."""
