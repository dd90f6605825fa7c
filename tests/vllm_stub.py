"""A server with vLLM's routes that misbehaves on request. What a healthy one does is tested on the real one."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Stub:
    """Serves on a free port of localhost; set `load`, `completion`, `stream`, `root` and read `requests`.

    Attributes:
        load: `(status, body)` of a load, or None for success.
        lists: list a loaded adapter in /v1/models.
        list, version: what /v1/models and /version say instead; no version: no such route.
        completion: (adapter name) -> `(status, body)` of a completion that is not streamed.
        stream: lines of a streamed completion, or `(status, body)`.
    """

    def __init__(self):
        self.load, self.lists, self.root, self.models = None, True, "/models/base", {}
        self.list, self.version = None, "0.0.stub"
        self.completion = lambda name: (200, {"choices": [{"logprobs": {"top_logprobs": [{name: -1.0}]}}]})
        self.stream = [
            {"choices": [{"token_ids": [5, 6], "finish_reason": None}]},
            {"choices": [{"token_ids": [2], "finish_reason": "stop", "stop_reason": 2}]},
        ]
        self.requests: list[tuple[str, dict]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def bodies(self, path: str) -> list[dict]:
        return [body for where, body in self.requests if where == path]

    def _handler(stub):
        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def do_GET(self):
                if self.path == "/version":
                    return self.answer(200, {"version": stub.version}) if stub.version else self.answer(404, "?")
                if stub.list is not None:
                    return self.answer(200, stub.list)
                base = {"id": "base", "root": stub.root, "parent": None, "max_model_len": 2048}
                more = [{"id": n, "root": p, "parent": "base"} for n, p in stub.models.items() if stub.lists]
                self.answer(200, {"data": [base, *more]})

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.removeprefix("/v1")
                stub.requests.append((path, body))
                if path == "/load_lora_adapter":
                    if stub.load is not None:
                        return self.answer(*stub.load)
                    if body["lora_name"] in stub.models:
                        said = f"The lora adapter '{body['lora_name']}' has already been loaded."
                        return self.answer(400, {"error": {"message": said}})
                    stub.models[body["lora_name"]] = body["lora_path"]
                    return self.answer(200, "Success")
                if path == "/unload_lora_adapter":
                    stub.models.pop(body["lora_name"], None)
                    return self.answer(200, "Success")
                if not body.get("stream"):
                    return self.answer(*stub.completion(body["model"]))
                if isinstance(stub.stream, tuple):
                    return self.answer(*stub.stream)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                for chunk in stub.stream:
                    self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

            def answer(self, status, body):
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler
