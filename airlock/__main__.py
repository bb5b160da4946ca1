"""`python -m airlock`, the same as the command."""

from airlock.cli import main

main()
