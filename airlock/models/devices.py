"""Where tensors are: the processor, or a GPU if there is one."""

from __future__ import annotations

from airlock.errors import ParamsError


def choose_device(wanted: str, name: str) -> str:
    """`auto` is the GPU if there is one.

    Args:
        wanted: auto, cpu, cuda or cuda:NUMBER.
        name: of the parameter, for the message.

    Raises:
        ParamsError: the wanted device is not there.
    """
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted.split(":")[0] not in ("cpu", "cuda") or (wanted != "cpu" and not torch.cuda.is_available()):
        raise ParamsError(f"params.yaml: {name} '{wanted}' is not on this machine: use auto or cpu")
    return wanted
