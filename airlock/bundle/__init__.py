"""Bundles: what a reviewer needs of one commit, in one file that anyone can check without the data.
docs/submissions.md explains it.

Not part of the wall: no stage depends on this code, so changing it makes nothing stale.
"""

FORMAT = 1
INDEX = "bundle.json"
CRATE = "ro-crate-metadata.json"
ATTESTATIONS = "attestations"
LEDGER = "ledger"
README = "README.md"
RUNS = "runs"
