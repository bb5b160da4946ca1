"""Networks and losses of the compared papers."""
