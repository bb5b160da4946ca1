"""DP-MAC's release is the trained network: there is nothing left to train."""

from stages.open.dp_sgd import train

__all__ = ["train"]
