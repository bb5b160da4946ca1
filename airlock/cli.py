"""The `airlock` command: argument parsing only.

Each command's file is in airlock/commands and imports its work lazily.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import locale
import os
import resource
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import typer
from typer.exceptions import TyperException

from airlock import terminal
from airlock.errors import AirlockError
from airlock.inside import lifetime
from airlock.run import leftovers, param_changes
from airlock.wall import secrecy

COMMANDS = (
    *(
        "demo",
        "new",
        "init",
        "add",
        "forget",
        "nights",
        "data",
        "run",
        "audit",
        "budget",
        "attack",
        "compare",
        "evaluate",
        "predict",
        "explain",
        "export",
        "synthesize",
        "mock",
        "bounds",
        "report",
    ),
    *("bundle", "verify", "hand-over", "take", "upgrade", "keys", "log", "doctor", "worker"),
)

# What a plain installation leaves out, and the extra that brings it.
EXTRAS = {
    "mbi": "synthesis",
    "distributed": "cluster",
    "matplotlib": "pages",
    "onnx": "onnx",
    "prefect": "schedule",
    "psycopg": "postgres",
    "rocrate": "bundles",
}

# Commands that read a table or a model out here, which somebody else may have made (a file of a few kilobytes can
# unfold to anything), or make as many records as they are asked for.
READERS = {"add", "explain", "export", "init", "mock", "predict"}

# What a disk may answer, and nobody's code is to blame for.
DISKS = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO}
OURS = Path(__file__).parent

app = typer.Typer(
    name="airlock",
    help="Train models on sensitive records without letting the training code near them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Example: airlock data fetch wdbc && dvc repro && airlock audit",
)


def _tell_version(asked: bool) -> None:
    if asked:
        from airlock.workspaces.layout import version

        typer.echo(f"airlock {version()}")
        raise typer.Exit


@app.callback()
def options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),
    version: bool = typer.Option(
        False, "--version", callback=_tell_version, is_eager=True, help="Show the installed version."
    ),
) -> None:
    """Options that every command takes."""


def _register(asked: Sequence[str]) -> None:
    """The command that is asked for; all of them where none of that name is, for help."""
    for name in asked if asked and asked[0] in COMMANDS else COMMANDS:
        module = importlib.import_module(f"airlock.commands.{name.replace('-', '_')}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(module.command)


def main() -> None:
    """Run the command; an error becomes one line and its exit code."""
    debug = "--debug" in sys.argv
    with contextlib.suppress(locale.Error):  # files here are UTF-8, whatever an old machine's own letters are
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    lifetime.collect_seldom()
    secrecy.keep()
    terminal.guard()
    signal.signal(signal.SIGTERM, _stop)
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        if arguments and arguments[0] in READERS:
            bound_memory()
        _register(arguments[:1])
        if arguments[:1] != ["doctor"]:  # which lists them first
            leftovers.sweep()
        if param_changes.recover_after_kill(Path.cwd()):
            sys.stderr.write("airlock: params.yaml is again as it was before a run that was killed\n")
        code = app(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # whoever read it has seen enough (`| head`)
        _drop_the_rest()
        sys.exit(1)
    except (Exception, KeyboardInterrupt) as error:
        if page := _help_that_was_meant(error):
            sys.stderr.write(f"{page}\n")
            sys.exit(2)
        message, code = _told(error, " ".join(arguments[:1]))
        _fail(message, code, debug)


def _help_that_was_meant(error: BaseException) -> str:
    """The page of a group of commands that is called without one, which is no error but comes as one."""
    return str(error) if type(error).__name__ == "NoArgsIsHelpError" else ""


def _stop(*_: object) -> None:
    """As Ctrl-C: what is half made is cleared away. (By default nothing is, when a service or `timeout` ends it.)"""
    raise KeyboardInterrupt


def _told(error: BaseException, command: str) -> tuple[str, int]:
    """What is said of an error, and the exit code. Python's own words may quote a value of a record, and stay for
    `--debug`.
    """
    match error:
        case AirlockError():
            return str(error), error.exit_code
        case TyperException():
            return f"{_words(error)} (see `{_asked(error, command)} --help`)", 2
        case ModuleNotFoundError() if error.name in EXTRAS:
            extra = f"pip install 'airlock-pipeline[{EXTRAS[error.name]}]'"
            return f"this needs the package '{error.name}', which is not installed: run `{extra}`", 2
        case MemoryError():
            return f"{command} needs more than half of this machine's memory: look at what it was given", 1
        case RuntimeError() if str(error).startswith("Symlink loop"):  # as pathlib says it
            return (
                "a link leads to itself: check the paths that were given (`ls -l` shows where they lead)",
                2,
            )
        case RecursionError():
            return "a file that was read is nested too deep to be honest: `--debug` shows which", 1
        case UnicodeEncodeError() if error.encoding.lower() not in ("utf-8", "utf8"):
            return (
                f"what is to be printed has letters that {error.encoding} lacks: set PYTHONIOENCODING=utf-8",
                2,
            )
        case OSError() if error.errno in DISKS or isinstance(error, shutil.Error):
            return f"{_disk(error)}: make room or mount it writable, then run it again", 1
        case OSError() if error.filename is not None:
            said = (error.strerror or "error").lower()
            return f"{error.filename} cannot be used ({said}): check the path, and whose it is", 2
        case typer.Abort() | KeyboardInterrupt():
            return "stopped", 130
    return (
        f"nobody foresaw this ({type(error).__name__} at {_place(error)}): `--debug` shows it; please report it",
        1,
    )


def _place(error: BaseException) -> str:
    """File and line of our own code."""
    ours = [
        frame for frame in traceback.extract_tb(error.__traceback__) if OURS in Path(frame.filename).parents
    ]
    return f"{Path(ours[-1].filename).relative_to(OURS)}:{ours[-1].lineno}" if ours else "?"


def bound_memory() -> None:
    """Half of the machine's for this process, where nothing less is set already."""
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if soft == resource.RLIM_INFINITY or soft > most:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _disk(error: OSError) -> str:
    """What a disk said, of which file; a copy of a folder fails with a list of such answers."""
    if isinstance(error, shutil.Error):
        return f"a copy failed ({terminal.line(str(error.args[0][0][2]))[:120]})"
    return f"{error.filename or 'a disk'} cannot be written ({error.strerror})"


def _words(error: TyperException) -> str:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return " ".join(str(message).split()).rstrip(".")


def _asked(error: TyperException, command: str) -> str:
    """The command that was misspelled, as it was called."""
    context = getattr(error, "ctx", None)
    if context:
        return str(context.command_path)
    return f"airlock {command}" if command in COMMANDS else "airlock"


def _fail(message: str, code: int, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"airlock: {terminal.line(message)}\n")
    _drop_the_rest()
    sys.exit(code)


def _drop_the_rest() -> None:
    """What cannot be printed leads nowhere: the interpreter would try once more at its end, and say so."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
