"""Where tensors are: the processor, or an accelerator if there is one, whatever its make."""

from __future__ import annotations

from airlock.errors import ParamsError


def choose_device(wanted: str, name: str) -> str:
    """`auto` is the accelerator if there is one.

    Args:
        wanted: auto, cpu, or an accelerator as torch calls it (cuda, mps, xpu, ...), perhaps with a number.
        name: of the parameter, for the message.

    Raises:
        ParamsError: the wanted device is not there.
    """
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if wanted == "auto":
        return "cpu" if found is None else found.type
    if wanted != "cpu" and (found is None or wanted.split(":")[0] != found.type):
        raise ParamsError(f"params.yaml: {name} '{wanted}' is not on this machine: use auto or cpu")
    return wanted
