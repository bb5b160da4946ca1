"""What DVC runs behind the wall; nothing outside imports it."""
