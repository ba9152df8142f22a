"""OpenAI-compatible servers of one model: load balancing and failover."""

import time
from collections.abc import Sequence
from typing import Any

import openai

from recipe.evaluation import ServerError
from recipe.evaluation.budgets import Budget
from recipe.evaluation.samples import TOO_LONG, Answer


class Endpoints:
    """Clients of several servers of the same model. Each request goes to the server with the fewest pending requests.

    retries: number of retries of a failed request before its server is given up.
    """

    def __init__(self, urls: Sequence[str], *, key: str = "none", retries: int = 5, timeout: float = 600):
        self.clients = {
            base_url(url): openai.AsyncOpenAI(
                base_url=base_url(url), api_key=key, max_retries=retries, timeout=openai.Timeout(timeout, connect=10)
            )
            for url in urls
        }
        self.pending = dict.fromkeys(self.clients, 0)
        self.lost: dict[str, str] = {}
        self.model = ""

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()

    async def find_model(self, name: str | None) -> dict[str, dict[str, Any]]:
        """Select the model for all later requests; return each server's description of it, by url.

        name: the requested model; None: the only one that the servers serve.
        Raises ServerError: a server does not respond, or serves another model.
        """
        reported = {url: await self._served(url, name) for url in self.clients}
        names = {entry["id"] for entry in reported.values()}
        if len(names) != 1:
            served = ", ".join(f"{url}: {entry['id']}" for url, entry in reported.items())
            raise ServerError(f"the servers serve different models ({served}); name urls of one model")
        (self.model,) = names
        return reported

    async def _served(self, url: str, name: str | None) -> dict[str, Any]:
        try:
            models = [model.to_dict() for model in (await self.clients[url].models.list()).data]
        except openai.NotFoundError:
            raise ServerError(
                f"{url}/models returns 404: not an OpenAI-compatible server; give its base url (http://HOST:PORT/v1)"
            ) from None
        except openai.APIError as error:
            raise ServerError(f"{url} does not respond ({_reason(error)}); is the server up?") from error
        names = [str(model["id"]) for model in models]
        if name is None and len(models) == 1:
            return models[0]
        if name not in names:
            requested = "no model was named" if name is None else f"'{name}' was requested"
            raise ServerError(f"{url} serves {', '.join(names) or 'no model'}, but {requested}; give --model NAME")
        return models[names.index(name)]

    async def ask(self, messages: Sequence[dict[str, str]], budget: Budget, *, seed: int, max_tokens: int) -> Answer:
        """One answer, from the least busy server that still responds.

        Raises ServerError: every server has failed, or a server serves another model or refuses the request.
        """
        request = {
            "model": self.model,
            "messages": list(messages),
            "temperature": budget.temperature,
            "top_p": budget.top_p,
            "seed": seed,
            "logprobs": True if budget.entropy else openai.omit,
        }
        if budget.thinking is not None:
            request["extra_body"] = {"chat_template_kwargs": {"enable_thinking": budget.thinking}}
        while available := [url for url in self.clients if url not in self.lost]:
            url = min(available, key=lambda name: self.pending[name])
            self.pending[url] += 1
            try:
                return await self._answer(url, request, max_tokens)
            except openai.NotFoundError as error:
                raise ServerError(f"{url} does not know the model '{self.model}': {_reason(error)}") from error
            except openai.BadRequestError as error:
                raise ServerError(f"{url} refuses a request: {_reason(error)}") from error
            except openai.APIError as error:
                self.lost[url] = _reason(error)
            finally:
                self.pending[url] -= 1
        reasons = "; ".join(f"{url}: {reason}" for url, reason in self.lost.items())
        raise ServerError(f"all servers have failed ({reasons})")

    async def _answer(self, url: str, request: dict[str, Any], max_tokens: int) -> Answer:
        started = time.time()
        create = self.clients[url].chat.completions.create
        try:
            completion = await create(**request, max_tokens=max_tokens)
        except openai.BadRequestError as error:
            if not _exceeds_context(error):
                raise
            # Prompt and max_tokens exceed the context together: ask for what the context leaves, if anything.
            try:
                completion = await create(**request)
            except openai.BadRequestError as again:
                if not _exceeds_context(again):
                    raise
                return Answer("", 0, TOO_LONG, None, started, time.time())
        return self._read(url, completion, started)

    def _read(self, url: str, completion: Any, started: float) -> Answer:
        if completion.model != self.model:
            raise ServerError(f"{url} answers as '{completion.model}', not as '{self.model}': its model has changed")
        choice = completion.choices[0]
        logprobs = [token.logprob for token in (choice.logprobs.content or [])] if choice.logprobs else []
        entropy = -sum(logprobs) / len(logprobs) if logprobs else None
        tokens = completion.usage.completion_tokens
        return Answer(choice.message.content or "", tokens, choice.finish_reason, entropy, started, time.time())


def base_url(url: str) -> str:
    """The url with the suffix `/v1`, under which vLLM and similar servers respond."""
    url = url.rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def _exceeds_context(error: openai.BadRequestError) -> bool:
    return "context" in str(error).lower()


def _reason(error: openai.APIError) -> str:
    return " ".join(str(error.message or type(error).__name__).split())[:300]
