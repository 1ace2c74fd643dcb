"""A server that speaks OpenAI's protocol, for the tests of language models: what it answers is up to each test."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def completion(text, logprobs=None):
    """A chat completion as servers write it."""
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    if logprobs:
        top = [
            {"token": token, "logprob": value, "bytes": None} for token, value in logprobs.items()
        ]
        choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    usage = {"prompt_tokens": 100, "completion_tokens": 3, "total_tokens": 103}
    whole = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "tiny-gpt",
        "choices": [choice],
    }
    return whole | {"usage": usage}


@contextmanager
def serving():
    """A server: `respond(request, number)` gives status and body of each, `requests` are what it was asked.

    A request is the header `Authorization` and the body; `paths` are where it was asked.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                httpd.paths.append(self.path)
                httpd.requests.append((self.headers["Authorization"], body))
                number = len(httpd.requests)
            status, answer = httpd.respond(body, number)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("retry-after-ms", "10")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    lock = threading.Lock()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.requests, httpd.paths = [], []
    httpd.url = f"http://127.0.0.1:{httpd.server_port}/v1"
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield httpd
    finally:
        httpd.shutdown()
        httpd.server_close()
