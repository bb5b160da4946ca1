"""Training from the moments of neurons is training from moments: the lower network is one of the released steps."""

from stages.open.coefficients import train

__all__ = ["train"]
