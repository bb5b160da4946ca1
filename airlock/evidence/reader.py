"""The one reader of the pipeline: what is checked is what DVC resolves.

DVC's own YAML parser and its own resolver are asked about texts. Before that, a text is held to bounds and to
a plain subset of YAML, on which all parsers agree; and `airlock` itself, which reads params.yaml with another
parser, must find the same in it.
"""

from __future__ import annotations

import io
import math
import posixpath
from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import yaml

from airlock.errors import BoundaryError

SIZE, DEPTH = 1 << 20, 24
# What `dvc exp run -S` writes without quotes, and `airlock.params` knows for the words that they are.
WORDS = {True: ("yes", "on"), False: ("no", "off")}
PARAMS = "params.yaml"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Line breaks of YAML 1.1 that YAML 1.2 takes for text, the mark of another encoding, and what no editor
# writes.
STRANGE_CHARACTERS = {
    "\x85": "NEL",
    "\u2028": "LS",
    "\u2029": "PS",
    "\ufeff": "BOM",
    "\x00": "NUL",
    "\x0b": "VT",
    "\x0c": "FF",
}


def check_text(text: str, source: str) -> None:
    """Refuse a YAML text that is large, deep, grows when it is read, or is read differently by different
    parsers.

    Raises:
        BoundaryError: naming what it is.
    """
    if len(text) > SIZE:
        raise BoundaryError(
            f"{source} has more than {SIZE >> 20} MiB: nothing that is read here needs as much"
        )
    if "\r" in text.replace("\r\n", "\n") or any(mark in text for mark in STRANGE_CHARACTERS):
        raise BoundaryError(
            f"{source} has line breaks or marks that YAML parsers disagree on: save it as plain UTF-8 text"
        )
    depth, documents = 0, 0
    try:
        for event in yaml.parse(text, Loader=LOADER):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if depth > DEPTH:
                raise BoundaryError(f"{source} is nested more than {DEPTH} levels deep: write it flat")
            if getattr(event, "anchor", None) or getattr(event, "value", None) == "<<":
                raise BoundaryError(f"{source} has YAML anchors or merges (&, *, <<): write the values out")
            if getattr(event, "tag", None) or documents > 1:
                raise BoundaryError(f"{source} has YAML tags (!) or several documents (---): leave them out")
    except (yaml.YAMLError, RecursionError, ValueError):
        raise BoundaryError(f"{source} is not valid YAML: mend the syntax") from None


def load(text: str, source: str) -> dict[str, Any]:
    """A YAML text as DVC reads it; one that was read before in this process is not parsed again.

    Raises:
        BoundaryError: it is not plain (see `check_text`), has a key twice, or another parser reads something
            else in it.
    """
    return deepcopy(_loaded(text, source))


@lru_cache(maxsize=32)
def _loaded(text: str, source: str) -> dict[str, Any]:
    from dvc.utils.serialize import YAMLFileCorruptedError, parse_yaml  # type: ignore[import-untyped]

    check_text(text, source)
    try:
        document = parse_yaml(text, source)
    except (YAMLFileCorruptedError, RecursionError, ValueError):
        raise BoundaryError(f"{source} is not valid YAML, or has a key twice: mend the syntax") from None
    if not isinstance(document, dict):
        raise BoundaryError(f"{source} must be a mapping")
    if place := next(_differences(document, yaml.load(text, Loader=LOADER) or {}, ""), None):
        raise BoundaryError(
            f"{source}: YAML parsers disagree on '{place}': put its value in quotes, or write true or false"
        )
    return document


def _differences(left: Any, right: Any, place: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        for key, value in left.items():
            yield from _differences(value, right[key], f"{place}.{key}".lstrip("."))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (ours, theirs) in enumerate(zip(left, right, strict=True)):
            yield from _differences(ours, theirs, f"{place}.{number}".lstrip("."))
    elif not _same(left, right):
        yield place


def _same(left: Any, right: Any) -> bool:
    """One value, or one number: YAML 1.1 takes `1e-5` for text, which is made a number later, and `off` for
    false.
    """
    if type(left) is type(right):
        return bool(left == right) or (left != left and right != right)
    if isinstance(left, str) and isinstance(right, bool):
        return left.lower() in WORDS[right]
    try:
        return (
            not isinstance(left, bool)
            and not isinstance(right, bool)
            and math.isclose(float(left), float(right))
        )
    except (TypeError, ValueError):
        return False


def resolve(path: str, document: Mapping[str, Any], params_yaml: str) -> dict[str, dict[str, Any]]:
    """The stages of one dvc.yaml as DVC would run them, `${...}` filled in.

    Args:
        path: where it stands; DVC fills in from the params.yaml beside it, and only the top folder has one.
        document: what `load` found in it.
        params_yaml: text of the top folder's params.yaml.

    Raises:
        BoundaryError: DVC itself refuses it.
    """
    from dvc.exceptions import DvcException  # type: ignore[import-untyped]
    from dvc.parsing import DataResolver  # type: ignore[import-untyped]

    repo = SimpleNamespace(fs=_Texts({PARAMS: params_yaml}), config={})
    try:
        resolver = DataResolver(repo, posixpath.dirname(path), document)
        return {name: dict(resolver.resolve_one(name)[name]) for name in resolver.get_keys()}
    except (DvcException, TypeError, AttributeError, AssertionError, KeyError, ValueError) as error:
        words = " ".join(str(error).split())[:200]
        raise BoundaryError(f"{path} is not a pipeline that DVC can read ({words}): mend it") from None


class _Texts:
    """As much of a file system as DVC's resolver asks for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    join = staticmethod(posixpath.join)
    normpath = staticmethod(posixpath.normpath)
    relpath = staticmethod(posixpath.relpath)

    @staticmethod
    def suffix(path: str) -> str:
        return posixpath.splitext(path)[1]

    def exists(self, path: str) -> bool:
        return posixpath.normpath(path) in self._texts

    def isdir(self, path: str) -> bool:
        return False

    def open(self, path: str, *_: Any, **__: Any) -> io.StringIO:
        return io.StringIO(self._texts[posixpath.normpath(path)])
