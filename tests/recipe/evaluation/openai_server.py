"""A small HTTP server of the OpenAI protocol, in a thread, or as a process that can die: ``python openai_server.py``.

It answers "say N" with "#### N", or with "#### 0" if the request's seed is odd. A prompt with the word "long" exceeds
its context. With vLLM's command line it stands in for vLLM, whose process ends as DIES (GPUS=NUMBER of answers) says.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "little-model"
TOKENS = 5


@dataclass
class Behaviour:
    """Behaviour of the server, and the requests that it got.

    die_after: number of answers after which its process exits in the middle of a request. answers_as: model name in its
    answers. text: its answer to messages, tokens: that in tokens. finish: finish reason of its answers.
    """

    model: str = MODEL
    answers_as: str = MODEL
    die_after: int | None = None
    last_words: str = ""
    fail: bool = False
    finish: str = "stop"
    text: Callable[[list[dict[str, str]]], str] | None = None
    tokens: Callable[[list[dict[str, str]]], list[int]] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)


def reply(request: dict[str, Any], behaviour: Behaviour) -> tuple[int, dict[str, Any]]:
    prompt = request["messages"][-1]["content"]
    if behaviour.fail:
        return 500, {"error": {"message": "out of order"}}
    if request["model"] != behaviour.model:
        return 404, {"error": {"message": f"The model `{request['model']}` does not exist."}}
    if "long" in prompt:
        return 400, {"error": {"message": "This model's maximum context length is 8 tokens."}}
    right = request["temperature"] == 0 or request["seed"] % 2 == 0
    text = f"#### {prompt.split()[-1] if right else 0}"
    if behaviour.text is not None:
        text = behaviour.text(request["messages"])
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": behaviour.finish}
    if behaviour.tokens is not None and request.get("return_token_ids"):
        choice["token_ids"] = behaviour.tokens(request["messages"])
    if request.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": "t", "logprob": -0.5, "bytes": None, "top_logprobs": []}] * 2}
    usage = {"prompt_tokens": 1, "completion_tokens": min(TOKENS, request["max_tokens"]), "total_tokens": 6}
    shared = {"id": "1", "object": "chat.completion", "created": 0, "model": behaviour.answers_as}
    return 200, shared | {"choices": [choice], "usage": usage}


def make_server(behaviour: Behaviour, port: int = 0) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health":
                return self._send(200, {})
            if self.path != "/v1/models":
                return self._send(404, {"error": {"message": "not found"}})
            entry = {"id": behaviour.model, "object": "model", "created": 0, "owned_by": "us", "max_model_len": 8}
            self._send(200, {"object": "list", "data": [entry]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            behaviour.requests.append(request)
            if behaviour.die_after is not None and len(behaviour.requests) > behaviour.die_after:
                print(behaviour.last_words, flush=True)
                os._exit(9)
            self._send(*reply(request, behaviour))

        def _send(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that disconnects before its answer is not a server error."""

    return Server(("127.0.0.1", port), Handler)


def url_of(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """URL of a server in a thread of this process."""
    server = make_server(behaviour)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield url_of(server)
    finally:
        server.shutdown()
        server.server_close()


def as_vllm(words: list[str], gpus: str) -> ThreadingHTTPServer:
    """The server that `vllm serve` would start; prints its process, GPUs and options."""
    model, port = (words[words.index(name) + 1] for name in ("serve", "--port"))
    dies = dict(one.split("=") for one in os.environ.get("DIES", "").split())
    print("started", os.getpid(), gpus, *words[words.index("--port") + 2 :], flush=True)
    if dies.get(gpus) == "0":
        sys.exit("RuntimeError: no CUDA")
    die_after = int(dies[gpus]) if gpus in dies else None
    behaviour = Behaviour(model=model, answers_as=model, die_after=die_after, last_words="RuntimeError: GPU lost")
    return make_server(behaviour, int(port))


if __name__ == "__main__":
    if "serve" in sys.argv:
        mortal = as_vllm(sys.argv, os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    else:
        mortal = make_server(Behaviour(die_after=int(sys.argv[1])))
        print(url_of(mortal), flush=True)
    mortal.serve_forever()
