"""A modeller's pipelines: what only the owner can run stands in owner/dvc.yaml, frozen, so that a plain `dvc repro`
runs training and what follows, and never looks for sealed records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from airlock.evidence import zones

TOP, OWNERS = "dvc.yaml", "owner/dvc.yaml"
FILES = tuple(path.removesuffix("yaml") + end for path in (TOP, OWNERS) for end in ("yaml", "lock"))
_STAGE = re.compile(r"  ([a-z][a-z0-9-]*):\s*")


def rearranged(texts: Mapping[str, str], graph: zones.Graph, dataset: str) -> dict[str, str]:
    """The four files as a modeller has them.

    Args:
        texts: dvc.yaml, dvc.lock and those of owner/, where they exist.
        graph: all stages.
        dataset: the name that `${dataset}` stands for; only the top folder's file may have it.
    """
    moved = {stage.name for stage in graph if stage.zone != "open" or stage.frozen}
    found = dict(texts)
    for end, change in (("yaml", lambda block: _frozen(block, dataset)), ("lock", lambda block: block)):
        top, owners = TOP.removesuffix("yaml") + end, OWNERS.removesuffix("yaml") + end
        if top not in texts:
            continue
        head, blocks = _blocks(texts[top])
        theirs = [change(block) for name, block in blocks.items() if name in moved]
        ours = "".join(block for name, block in blocks.items() if name not in moved)
        found[top] = head + ours if ours else head.replace("stages:\n", "stages: {}\n")
        start = texts.get(owners) or head
        found[owners] = start.rstrip("\n") + "\n" + "".join(theirs)
    return {path: text for path, text in found.items() if text.strip()}


def _blocks(text: str) -> tuple[str, dict[str, str]]:
    """What stands before the first stage, and each stage's lines."""
    head, blocks, name = "", dict[str, str](), ""
    for line in text.splitlines(keepends=True):
        if match := _STAGE.fullmatch(line.rstrip("\n")):
            name = match[1]
        if name:
            blocks[name] = blocks.get(name, "") + line
        else:
            head += line
    return head, blocks


def _frozen(block: str, dataset: str) -> str:
    lines = block.replace("${dataset}", dataset).splitlines()
    command = next(number for number, line in enumerate(lines) if line.startswith("    cmd:"))
    kept = [line for line in lines if line.strip() not in ("wdir: ..", "frozen: true")]
    return (
        "\n".join([*kept[:command], "    wdir: ..", "    frozen: true", *kept[command:]]).rstrip("\n") + "\n"
    )
