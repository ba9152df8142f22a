"""Llamas with a BPE tokenizer like pretrained models', trained in seconds on the problems of their runs."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from data_prep.english import suite as english
from data_prep.micro import model as micro_model
from data_prep.micro import suite
from data_prep.micro.problems import SKILLS, MicroProblem
from data_prep.schema import Row, write_rows

PROBLEMS = 8
# Rows of a batch and batches: prompts in English are four times as long.
SHORT, LONG = (32, 150), (16, 100)


def make_bpe_start(out: Path, seed: int = 0) -> Path:
    """Write train.parquet (rows for agents) and `model`, which solves a part of them and fails on the others."""
    counts = dict.fromkeys(SKILLS, 64)
    demonstrations = suite.demonstrations("sft_train", counts, suite.WRONG_SHARES, seed=seed, difficulty=1)
    drawn = [
        problem
        for skill in SKILLS
        for problem in suite.problems(skill, "train", seed=seed, count=PROBLEMS, difficulty=1)
    ]
    rows = suite.rows("train", list(SKILLS), seed=seed, count=PROBLEMS, difficulty=1, agents=True)
    texts = (turn.content for one in demonstrations for turn in one.messages)
    return _make_start(out, seed, micro_model.learn_merges(texts, 120), drawn, rows, SHORT)


def make_english_start(out: Path, seed: int = 0) -> Path:
    """The same with rows of the English suite, of level 1."""
    levels = dict.fromkeys(english.STANDARD, (1,))
    drawn = [
        problem
        for skill in levels
        for problem in english.problems(skill, "train", seed=seed, count=PROBLEMS, levels=levels[skill])
    ]
    rows = english.rows("train", levels, seed=seed, count=PROBLEMS)
    texts = (text for problem in drawn for text in (problem.prompt, problem.gold, problem.wrong[0]))
    # Prompts of up to 140 tokens.
    return _make_start(out, seed, micro_model.learn_merges(texts, 500), drawn, rows, LONG)


def _make_start(
    out: Path,
    seed: int,
    merges: list[micro_model.Merge],
    problems: Sequence[MicroProblem],
    rows: Iterable[Row],
    batches: tuple[int, int],
) -> Path:
    _make_llama(out / "model", seed, merges)
    write_rows(out / "train.parquet", rows)
    _fit(out / "model", problems, seed, *batches)
    return out


def _make_llama(folder: Path, seed: int, merges: list[micro_model.Merge]) -> None:
    """Random weights with grouped-query attention, as SmolLM2 has it, and the micro model's tokenizer with merges."""
    micro_model.make(folder, seed=seed, merges=merges)
    micro = AutoModelForCausalLM.from_pretrained(folder).config
    config = LlamaConfig(
        vocab_size=micro.vocab_size, hidden_size=128, intermediate_size=512, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=micro.max_position_embeddings,
        rope_parameters=micro.rope_parameters, initializer_range=micro.initializer_range, tie_word_embeddings=True,
        bos_token_id=None, eos_token_id=micro.eos_token_id, pad_token_id=micro.pad_token_id, dtype="float32",
    )  # fmt: skip
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)


def _fit(folder: Path, problems: Sequence[MicroProblem], seed: int, size: int, steps: int) -> None:
    """Train on a right and a wrong answer to every problem, so that samples of a group differ."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    answers = [
        (problem.prompt, answer) for problem in problems for answer in [problem.gold, problem.gold, problem.wrong[0]]
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rng = random.Random(seed)
    for _ in range(steps):
        ids, labels = _batch(tokenizer, rng.sample(answers, size))
        loss = model(input_ids=ids, attention_mask=ids != tokenizer.pad_token_id, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)


def _batch(tokenizer: PreTrainedTokenizerBase, answers: list[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids, padded on the left, and labels (-100 outside the answer), each (answers, longest)."""
    rows = []
    for prompt, answer in answers:
        chat = [{"role": "user", "content": prompt}]
        asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        question, told = tokenizer.encode(asked), tokenizer.encode(answer + micro_model.END)
        rows.append((question + told, [-100] * len(question) + told))
    longest = max(len(ids) for ids, _ in rows)
    ids = [[tokenizer.pad_token_id] * (longest - len(row)) + row for row, _ in rows]
    labels = [[-100] * (longest - len(row)) + row for _, row in rows]
    return torch.tensor(ids), torch.tensor(labels)
