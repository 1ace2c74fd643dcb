"""A server on this machine that can cut the connection, change a file, and refuse ranges."""

import hashlib
import random
import re
import threading
import time
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

BYTES = random.Random(5).randbytes(3_000_000)
SHA256 = hashlib.sha256(BYTES).hexdigest()


class Handler(SimpleHTTPRequestHandler):
    """Serves `server.files` with ranges and validators; notes each request; breaks off where the server says so."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        if server.answers:
            status = server.answers.pop(0)
            if status != 200:
                return self.send_error(status)
        if self.path not in server.files:
            return self.send_error(404)
        content = server.files[self.path]
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        current = self.headers.get("If-Range", tag) == tag
        start = int(match[1]) if match and server.ranges and current else 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.validators:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        cut = server.cuts.pop(0) if server.cuts else len(rest)
        for at in range(0, min(cut, len(rest)), 100_000):
            try:
                self.wfile.write(rest[at : min(at + 100_000, cut)])
            except ConnectionError:
                break
            time.sleep(server.delay)
        self.close_connection = True

    def log_message(self, *words):
        pass


@contextmanager
def serving():
    """A server of `files` (path → bytes)."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.requests, server.cuts, server.answers = {"/d/x.bin": BYTES}, [], [], []
    server.ranges, server.validators, server.delay = True, True, 0.0
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def names(folder):
    """The names of all files in a folder."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
