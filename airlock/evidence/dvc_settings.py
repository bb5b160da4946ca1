"""DVC's settings (.dvc/config), read by the parser that DVC itself uses and held to a list of what is followed.

Settings can load other parameters (hydra), run programs for a token, keep data elsewhere, link outs to the cache,
or report to another server. What is not on the list is refused.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

SHARED, LOCAL = ".dvc/config", ".dvc/config.local"
_REMOTE = re.compile(r'remote "[A-Za-z0-9_.-]+"')
_ANYWHERE: Mapping[str, frozenset[str]] = {
    "core": frozenset({"analytics", "autostage", "check_update", "checksum_jobs", "interactive", "remote"}),
    "cache": frozenset({"type"}),
    "remote": frozenset(
        {
            "url",
            "region",
            "endpointurl",
            "jobs",
            "port",
            "timeout",
            "user",
            "verify",
            "ssl_verify",
            "projectname",
        }
    ),
}
# Where the owner alone writes: places and secrets of one's own. Never a program to run, nor another file of settings.
_OWN: Mapping[str, frozenset[str]] = {
    "core": frozenset({"site_cache_dir"}),
    "cache": frozenset({"dir", "shared"}),
    "remote": frozenset(
        {
            *(
                "access_key_id",
                "account_key",
                "account_name",
                "allow_agent",
                "ask_password",
                "connect_timeout",
            ),
            *(
                "connection_string",
                "keyfile",
                "passphrase",
                "password",
                "profile",
                "read_timeout",
                "sas_token",
            ),
            *("secret_access_key", "session_token", "token"),
        }
    ),
}
_COPIES = {"copy", "reflink"}


def problems(path: str, text: str) -> Iterator[str]:
    """What is not followed, one line each."""
    if not text.strip():
        return
    from configobj import ConfigObj, ConfigObjError  # type: ignore[import-untyped]

    try:
        found: Mapping[str, Any] = ConfigObj(io.BytesIO(text.encode())).dict()
    except (ConfigObjError, UnicodeDecodeError, RecursionError):
        yield f"{path} cannot be read as DVC would: mend it"
        return
    for section, options in _sections(found):
        name = "remote" if _REMOTE.fullmatch(str(section)) else str(section)
        known = _ANYWHERE.get(name, frozenset()) | (
            _OWN.get(name, frozenset()) if path == LOCAL else frozenset()
        )
        if isinstance(options, Mapping) and not options:
            continue  # says nothing: DVC itself writes one of every kind into the folders of queued experiments
        if not isinstance(options, Mapping) or not known:
            yield f"{path}: [{section}] is not followed, it may change what DVC runs: remove it"
            continue
        for option, value in options.items():
            if str(option).lower() not in known or isinstance(value, Mapping):
                where = "" if path == LOCAL or option not in _OWN[name] else f", or put it into {LOCAL}"
                yield f"{path}: `{option}` in [{section}] is not followed: remove it{where}"
            elif name == "cache" and str(option).lower() == "type" and not set(_words(value)) <= _COPIES:
                yield f"{path}: outs must not be linked to DVC's cache: set the type to reflink,copy"


def _sections(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Sections by name. Into the folders of queued experiments DVC writes all remotes into one, `[remote]`, each in a
    section of its own within; it reads them alike.
    """
    for section, options in found.items():
        nested = section == "remote" and isinstance(options, Mapping)
        if nested and all(isinstance(one, Mapping) for one in options.values()):
            yield from ((f'remote "{name}"', one) for name, one in options.items())
        else:
            yield section, options


def _words(value: Any) -> list[str]:
    listed = value if isinstance(value, list) else str(value).split(",")
    return [str(word).strip() for word in listed]
