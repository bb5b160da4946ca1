"""The report on loopback: one page and nothing beside it, under a policy by which nothing in it runs.

The page is made by code that anyone who works on the project may edit, so what it says about itself counts
for nothing here.
"""

from __future__ import annotations

import functools
import http.server
import os
import threading
from contextlib import ExitStack
from pathlib import Path

from flows.server import HOST

REPORT = "data/report/report.html"
REPORT_URL = "AIRLOCK_REPORT_URL"
HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Content-Type": "text/html; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(workspace: Path, stack: ExitStack) -> str:
    """Serve the report until the stack ends; its address."""
    server = http.server.ThreadingHTTPServer((HOST, 0), functools.partial(_Page, workspace))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    stack.callback(server.shutdown)
    return f"http://{HOST}:{server.server_port}/{Path(REPORT).name}"


def read(workspace: Path) -> bytes | None:
    """The page, if it is a file where it belongs: a link could lead to anything that the owner can read."""
    folder = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
    try:
        *folders, name = Path(REPORT).parts
        for part in folders:
            below = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = below
        with os.fdopen(
            os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder), "rb"
        ) as page:
            return page.read()
    except OSError:
        return None
    finally:
        os.close(folder)


class _Page(http.server.BaseHTTPRequestHandler):
    def __init__(self, workspace: Path, *given: object) -> None:
        self._workspace = workspace
        super().__init__(*given)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The page, or nothing."""
        page = read(self._workspace) if self.path == f"/{Path(REPORT).name}" else None
        self.send_response(404 if page is None else 200)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(page or b"")))
        self.end_headers()
        self.wfile.write(page or b"")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
