"""The first stage: that params.yaml names a data set which is here.

DVC looks for the files of `ingest` before any command is run, and what it says of a missing one is a path. This stage
depends on no file of a data set, so it is run, and before it starts the runner says which data sets there are and how
to get the one that was asked for.
"""

from __future__ import annotations

from airlock.inside.room import Room


def main(room: Room) -> None:
    """Nothing is made: the runner has looked."""
