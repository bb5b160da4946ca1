"""A real browser for tests: Chromium driven over the WebDriver protocol, with nothing beyond the standard
library.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

MISSING = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
FLAGS = [
    "headless",
    "disable-gpu",
    "disable-quic",
    "no-first-run",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
]


class Browser:
    """One Chromium. Everything it asks the network for, and everything it complains about, is recorded."""

    def __init__(self, folder: Path) -> None:
        self.direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.driver.stdout is not None
        port = next(
            found[1]
            for line in self.driver.stdout
            if (found := re.search(r"successfully on port (\d+)", line))
        )
        self.root = f"http://127.0.0.1:{port}"
        flags = [*FLAGS, f"user-data-dir={folder}", *(["no-sandbox"] if os.geteuid() == 0 else [])]
        options = {"binary": shutil.which("chromium"), "args": [f"--{flag}" for flag in flags]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            self.root += (
                "/session/"
                + self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            )
        except BaseException:
            self.driver.terminate()
            raise

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.root + path, data, {"Content-Type": "application/json"}, method=method
        )
        with self.direct.open(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, page: Path) -> None:
        self.visit(page.as_uri())

    def visit(self, address: str) -> None:
        self._call("POST", "/url", {"url": address})

    def text(self) -> str:
        """What a reader of the page sees."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": []})

    def tell(self, command: str, **parameters: Any) -> Any:
        """A command of the DevTools protocol."""
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def logs(self, kind: str) -> list[Any]:
        return list(self._call("POST", "/se/log", {"type": kind}))

    def requests(self) -> list[str]:
        """Every address that was asked for since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.logs("performance")]
        return [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def look(self, *, scheme: str = "light", media: str = "screen", width: int = 1200) -> None:
        """Change the colour scheme, the medium or the width."""
        self.tell(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def photograph(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.tell("Page.getLayoutMetrics")["cssContentSize"]
        picture = self.tell("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self) -> None:
        try:
            self._call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(timeout=30)
