"""The release is the trained network: there is nothing left to train."""

from stages.open.optimized_noise import train

__all__ = ["train"]
