"""Training from ILM's release is training from AdLM's: only the noise differs."""

from stages.open.adlm import train

__all__ = ["train"]
