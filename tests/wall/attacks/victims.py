"""What stands around a stage and must stay out of its reach: files, a process, servers, shared memory.

Every secret is distinct.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p

PROCESS = """
import ctypes, json, os, sys, time
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1))  # let anyone trace, whatever the machine's policy
secret = ctypes.create_string_buffer(os.environ["SECRET_OF_MEMORY"].encode())
descriptor = os.open(sys.argv[1], os.O_RDONLY)
facts = {"pid": os.getpid(), "address": ctypes.addressof(secret), "length": len(secret), "descriptor": descriptor}
print(json.dumps(facts), flush=True)
sys.stdin.read()
"""


def secret(name: str) -> str:
    return f"secret-of-{name}-{secrets.token_hex(8)}"


class Files:
    """A workspace with records, and a home with keys."""

    def __init__(self, base: Path) -> None:
        self.workspace, self.home = base / "workspace", base / "home"
        self.secrets: list[str] = []
        self.targets = {
            "raw": self._write(self.workspace / "data/raw/records.csv"),
            "sealed": self._write(self.workspace / "data/sealed/train.sealed"),
            "key": self._write(self.home / "keys/master"),
            "cache": self._write(self.workspace / ".dvc/cache/files/md5/ab/cdef"),
            "git": self._write(self.workspace / "data/once.csv"),
        }
        self._write(self.workspace / ".dvc/tmp/leftover")
        self._commit_and_remove()
        self.dep = self.workspace / "data/released/release/table"
        self.site = self.workspace / "venv/lib/python3.11/site-packages"
        self.tamper = {
            "code": self.workspace / "stages/module.py",
            "dvc.yaml": self.workspace / "dvc.yaml",
            "dvc.lock": self.workspace / "dvc.lock",
            "params": self.workspace / "params.yaml",
            "dvc-config": self.workspace / ".dvc/config",
            "cache": self.workspace / ".dvc/cache/files/md5/12/3456",
            "git-config": self.workspace / ".git/config",
            "git-hook": self.workspace / ".git/hooks/pre-commit",
            "package": self.site / "package.py",
            "shell-rc": self.home / ".bashrc",
            "other-out": self.workspace / "data/released/other/table",
            "dep": self.dep,
            "raw": self.workspace / "data/raw/more.csv",
            "ledger": self.home / "ledger.db",
        }
        for path in self.tamper.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text("as it was\n")
        mark = secrets.token_hex(4)
        self.plant = {
            "git-hook": self.workspace / ".git/hooks/post-commit",
            "pth": self.site / "attack.pth",
            "sitecustomize": self.workspace / "sitecustomize.py",
            "code": self.workspace / "stages/attack.py",
            "tmp": Path(f"/tmp/airlock-attack-{mark}"),
            "shared-memory": Path(f"/dev/shm/airlock-attack-{mark}"),
            "home": self.home / ".profile",
        }

    def _write(self, path: Path) -> Path:
        self.secrets.append(secret(path.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.secrets[-1])
        return path

    def _commit_and_remove(self) -> None:
        """A secret that is only in git's history; the target is then the object itself, readable as it is."""
        git = [
            "git",
            "-c",
            "core.looseCompression=0",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "-c",
            "safe.directory=*",
        ]
        for command in (
            ["init", "-q"],
            ["add", "data/once.csv"],
            ["commit", "-q", "-m", "Once"],
            ["rm", "-q", "data/once.csv"],
        ):
            subprocess.run(
                [*git, *command],
                cwd=self.workspace,
                check=True,
                env={"PATH": os.environ["PATH"], "HOME": str(self.home)},
            )
        wanted = self.secrets[4].encode()
        objects = (self.workspace / ".git/objects").glob("??/*")
        self.targets["git"] = next(path for path in objects if wanted in path.read_bytes())

    def snapshot(self) -> dict[str, Any]:
        """All that an attack could change about the files to tamper with."""
        found = {}
        for name, path in self.tamper.items():
            beside = sorted(
                entry.name for entry in path.parent.iterdir() if entry.name.startswith(path.name + ".")
            )
            status = path.stat() if path.exists() else None
            found[name] = (
                beside,
                status and (path.read_bytes(), status.st_mode, status.st_mtime_ns, os.listxattr(path)),
            )
        return found


class Process:
    """Another process of the same user."""

    def __init__(self, files: Files) -> None:
        self.secrets = [secret("memory"), secret("argument")]
        raw = files.targets["raw"]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", PROCESS, str(raw), self.secrets[1]],
            cwd=raw.parent,
            env={"SECRET_OF_MEMORY": self.secrets[0]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.config = {"victim": json.loads(self._process.stdout.readline())}

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Servers:
    """Sockets that tell their secret to whoever asks."""

    def __init__(self, base: Path) -> None:
        self.secrets = [secret("server")]
        name = secrets.token_hex(8)
        streams = [
            self._bind(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            self._bind(socket.AF_UNIX, socket.SOCK_STREAM, str(base / "socket")),
            self._bind(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + name),
        ]
        datagrams = [
            self._bind(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            self._bind(socket.AF_UNIX, socket.SOCK_DGRAM, "\0datagram-" + name),
        ]
        self.config = {
            "tcp": streams[0].getsockname()[1],
            "udp": datagrams[0].getsockname()[1],
            "unix": str(base / "socket"),
            "abstract": name,
        }
        for plug in streams:
            plug.listen()
            threading.Thread(target=self._serve_stream, args=(plug,), daemon=True).start()
        for plug in datagrams:
            threading.Thread(target=self._serve_datagram, args=(plug,), daemon=True).start()

    @staticmethod
    def _bind(family: int, kind: int, address: Any) -> socket.socket:
        plug = socket.socket(family, kind)
        plug.bind(address)
        return plug

    def _serve_stream(self, plug: socket.socket) -> None:
        while True:
            connection, _ = plug.accept()
            with connection:
                connection.recv(16)
                connection.send(self.secrets[0].encode())

    def _serve_datagram(self, plug: socket.socket) -> None:
        while True:
            _, sender = plug.recvfrom(16)
            plug.sendto(self.secrets[0].encode(), sender)


class Memory:
    """Shared memory and queues, open to everybody."""

    def __init__(self) -> None:
        self.secrets = [secret("memory-segment"), secret("message"), secret("queue"), secret("leftover")]
        key = secrets.randbelow(1 << 30) + 1
        create, everybody = 0o1000, 0o666
        self._segment = libc.shmget(key, 4096, create | everybody)
        ctypes.memmove(libc.shmat(self._segment, None, 0), self.secrets[0].encode(), len(self.secrets[0]))
        self._messages = libc.msgget(key, create | everybody)
        message = struct.pack("<q", 1) + self.secrets[1].encode()
        libc.msgsnd(self._messages, message, len(message) - 8, 0)
        self._semaphore = libc.semget(key, 1, create | everybody)
        self._queue = f"/airlock-{key}"
        queue = libc.mq_open(self._queue.encode(), os.O_CREAT | os.O_RDWR, everybody, None)
        libc.mq_send(queue, self.secrets[2].encode(), len(self.secrets[2]), 0)
        self._leftover = Path(f"/dev/shm/airlock-leftover-{key}")
        self._leftover.write_text(self.secrets[3])
        self.config = {"sysv": key, "queue": self._queue, "leftover": self._leftover.name}

    def close(self) -> None:
        libc.shmctl(self._segment, 0, None)
        libc.msgctl(self._messages, 0, None)
        libc.semctl(self._semaphore, 0, 0)
        libc.mq_unlink(self._queue.encode())
        self._leftover.unlink()
