"""Do vLLM and transformers compute the same model? Greedy answers of both, and what a first difference means.

Two programs add float32 numbers in another order, so tokens that are nearly as probable may change places: a near tie.
After a larger difference of their log-probabilities, one of the two does not compute the model that the folder holds.
"""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai

from recipe.evaluation import ServerError
from recipe.evaluation.servers import base_url
from recipe.evaluation.vllm_servers import vllm_servers

Messages = list[dict[str, str]]

NEAR_TIE = 0.01
"""Largest difference of two log-probabilities, in nats, that the order of float32 additions explains."""


@dataclass(frozen=True)
class Prompt:
    """A prompt, its tokens by the model's template, and the number of tokens that an answer may have."""

    messages: Messages
    tokens: list[int]
    room: int


@dataclass(frozen=True)
class GreedyAnswer:
    """text: without special tokens. tokens: with the one that ends it. log_probs: (tokens, vocabulary) by transformers;
    None for vLLM."""

    text: str
    tokens: list[int]
    log_probs: Any = None


@dataclass(frozen=True)
class Difference:
    """The first token in which two answers differ. gap: of the two tokens' log-probabilities by transformers, nats."""

    prompt: int
    transformers: str
    vllm: str
    gap: float

    @property
    def is_near_tie(self) -> bool:
        return self.gap <= NEAR_TIE

    def __str__(self) -> str:
        texts = f"transformers {self.transformers[:200]!r}, vLLM {self.vllm[:200]!r}"
        return f"prompt {self.prompt}: {texts}; the first tokens that differ are {self.gap:.2g} nats apart"


def prepared(model: Path, prompts: Sequence[Messages], max_tokens: int) -> list[Prompt]:
    """The prompts that leave room for an answer in the model's context."""
    from transformers import AutoConfig, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    context = getattr(AutoConfig.from_pretrained(model).get_text_config(), "max_position_embeddings", None) or math.inf
    fitting = []
    for messages in prompts:
        tokens = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        if (room := min(max_tokens, context - len(tokens))) >= 1:
            fitting.append(Prompt(messages, tokens, int(room)))
    return fitting


def of_transformers(model: Path, prompts: Sequence[Prompt]) -> Iterator[GreedyAnswer]:
    """Greedy answers of transformers in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    network.to("cuda" if torch.cuda.is_available() else "cpu")
    for prompt in prompts:
        ids = torch.tensor([prompt.tokens], device=network.device)
        output = network.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=prompt.room, do_sample=False,
            output_scores=True, return_dict_in_generate=True,
        )  # fmt: skip
        tokens = output.sequences[0, ids.shape[1] :].tolist()
        log_probs = torch.cat(output.scores).float().log_softmax(-1).cpu()
        yield GreedyAnswer(tokenizer.decode(tokens, skip_special_tokens=True), tokens, log_probs)


def of_vllm(
    model: Path, prompts: Sequence[Prompt], platform: str, log: Path, options: Sequence[str]
) -> list[GreedyAnswer]:
    """Greedy answers of a vLLM server in float32, whose context is no longer than they need."""

    async def ask_all(url: str) -> list[Any]:
        async with openai.AsyncOpenAI(base_url=base_url(url), api_key="none", timeout=600) as client:
            create: Any = client.chat.completions.create
            same = {"model": str(model), "temperature": 0, "extra_body": {"return_token_ids": True}}
            answers = [create(messages=one.messages, max_tokens=one.room, **same) for one in prompts]
            return [answer.choices[0] for answer in await asyncio.gather(*answers)]

    longest = max(len(prompt.tokens) + prompt.room for prompt in prompts)
    options = ["--max-model-len", str(longest), *options]
    with vllm_servers(str(model), platform, log, options, "float32", most=1) as (url,):
        try:
            choices = asyncio.run(ask_all(url))
        except openai.APIError as error:
            raise ServerError(f"vLLM refuses a prompt: {error}") from error
    return [GreedyAnswer(choice.message.content or "", choice.token_ids) for choice in choices]


def difference(number: int, ours: GreedyAnswer, theirs: GreedyAnswer) -> Difference | None:
    """How vLLM's answer to prompt `number` differs from transformers'; None if the texts are equal.

    Ignores a character cut by the token limit, which vLLM omits and transformers decodes as U+FFFD.
    """
    if ours.text.rstrip("\ufffd") == theirs.text.rstrip("\ufffd"):
        return None
    pairs = enumerate(zip(ours.tokens, theirs.tokens, strict=False))
    place, pair = next(((place, pair) for place, pair in pairs if pair[0] != pair[1]), (0, None))
    # Equal tokens with other texts, or an end without an end token, are no tie.
    gap = math.inf if pair is None else float(ours.log_probs[place, pair[0]] - ours.log_probs[place, pair[1]])
    return Difference(number, ours.text, theirs.text, gap)


def differences(model: Path, prompts: Sequence[Prompt], platform: str, options: Sequence[str]) -> list[Difference]:
    """Where greedy answers of vLLM and transformers differ; ServerError if vLLM does not start or answer."""
    log = model.with_name(f"{model.name}.vllm.log")
    theirs = of_vllm(model, prompts, platform, log, options)
    log.unlink()
    pairs = zip(of_transformers(model, prompts), theirs, strict=True)
    return [found for number, pair in enumerate(pairs) if (found := difference(number, *pair))]
