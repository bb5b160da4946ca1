"""Running a stage: outside the wall, with keys, ledger and network."""
