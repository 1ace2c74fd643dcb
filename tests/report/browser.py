"""Headless Chromium through its DevTools protocol: opens a file, presses keys, records problems and requests."""

import base64
import json
import shutil
import subprocess
import time
from contextlib import contextmanager

from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0", "--window-size=1300,900",
]  # fmt: skip
CODES = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40, "End": 35, "Home": 36}


class Tab:
    """One page: `problems` gathers errors and warnings of its console, `requests` the addresses it asks for."""

    def __init__(self, socket):
        self.socket, self.count, self.problems, self.requests = socket, 0, [], []
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """A command's result; events that come before it are noted."""
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("id") == self.count:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._note(message)

    def _note(self, event):
        method, params = event["method"], event["params"]
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(
                params["exceptionDetails"].get("exception", {}).get("description", "exception")
            )
        elif method == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.problems.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])

    def open(self, path):
        answer = self.call("Page.navigate", url=path.as_uri())
        assert "errorText" not in answer, answer
        self.until("document.readyState === 'complete'")

    def __call__(self, script):
        """The value of an expression in the page, promises awaited."""
        options = {
            "returnByValue": True,
            "awaitPromise": True,
            "allowUnsafeEvalBlockedByCSP": False,
        }
        answer = self.call("Runtime.evaluate", expression=script, **options)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script, seconds=30):
        """Wait for an expression to hold."""
        end = time.monotonic() + seconds
        while not self(script):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.02)

    def press(self, key, times=1):
        for _ in range(times):
            event = {"key": key, "code": key, "windowsVirtualKeyCode": CODES[key]}
            self.call(
                "Input.dispatchKeyEvent",
                type="keyDown",
                text={"Enter": "\r", " ": " "}.get(key, ""),
                **event,
            )
            self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def media(self, **features):
        """What the system asks of pages: `prefers_color_scheme="dark"`; `media="print"` for paper."""
        kind = features.pop("media", "")
        emulated = [
            {"name": name.replace("_", "-"), "value": value} for name, value in features.items()
        ]
        self.call("Emulation.setEmulatedMedia", media=kind, features=emulated)

    def picture(self, path, height=None):
        """A PNG of the page from its top."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": height or size["height"],
            "scale": 1,
        }
        screenshot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(screenshot["data"]))


@contextmanager
def browser(profile):
    """A tab of a Chromium of its own, with an empty profile in a folder."""
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        port_file, end = profile / "DevToolsActivePort", time.monotonic() + 60
        while not (port_file.exists() and port_file.read_text().count("\n")):
            assert process.poll() is None, "chromium ended"
            assert time.monotonic() < end, "chromium does not answer"
            time.sleep(0.05)
        port, path = port_file.read_text().split("\n")[:2]
        address = f"ws://127.0.0.1:{port}"
        with connect(f"{address}{path}", max_size=None, proxy=None) as main:
            main.send(
                json.dumps(
                    {"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}
                )
            )
            target = json.loads(main.recv(timeout=60))["result"]["targetId"]
            with connect(f"{address}/devtools/page/{target}", max_size=None, proxy=None) as socket:
                yield Tab(socket)
    finally:
        process.terminate()
        process.wait(timeout=30)
