"""From encoded records to integer rows of bounded norm."""
