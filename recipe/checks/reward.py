"""Are the reward settings valid, and can credit be assigned to the tokens of the run's tokenizer?

Without these checks verl's workers fail after the first answers.
"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from recipe.checks import PreflightFinding
from recipe.checks.model import KEY
from recipe.records.run_directory import RunDirectory
from rewards.counterfactual.segments import Unit, segment
from rewards.counterfactual.tokens import token_offsets, token_steps
from rewards.settings import REWARD_KWARGS, JudgeSettings

FIX = "use a model whose tokenizer preserves the text, or credit=off"

# A bare program, and one within an explanation, with multi-byte characters and a tab.
ANSWERS = (
    "def f(a, b):\n    total = a\n    for i in range(b):\n        total += i\n    return total",
    "The idea: put both in one text.\n\n```python\ndef f(s):\n\tend = 'été 漢字 😀'\n\treturn s + end\n```\nDone.",
)


def check_settings(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Refuse unknown reward settings and invalid values, such as a shape that does not exist."""
    try:
        JudgeSettings.of_config(config)
    except ValueError as error:
        return [PreflightFinding(str(error), REWARD_KWARGS, "see the settings in docs/reference/rewards.md")]
    return []


def check_tokenizer(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """On a few answers, require that each step survives encoding and decoding, and has tokens.

    A tokenizer that does not load is ignored here: `recipe.checks.model` reports it.
    """
    if config.credit.kind == "off":
        return []
    from verl.utils import hf_tokenizer

    model = config.actor_rollout_ref.model
    path = str(Path(model.get("tokenizer_path") or model.path).expanduser())
    try:
        tokenizer = hf_tokenizer(path, trust_remote_code=bool(model.get("trust_remote_code")))
    except Exception:
        return []
    try:
        lost = [text for answer in ANSWERS if (text := lost_steps(tokenizer, answer, config.credit.unit))]
    except Exception as error:  # the tokenizer would raise it for every sample
        lost = [f"{type(error).__name__}: {error}"]
    return [
        PreflightFinding(f"credit cannot be assigned with the tokenizer of {path}: {why}", KEY, FIX) for why in lost[:1]
    ]


def lost_steps(tokenizer: Any, answer: str, unit: Unit) -> str:
    """A message about steps of an answer that are lost by encoding and decoding; "" if all are kept."""
    written = segment(answer, unit)
    ids = tokenizer.encode(answer, add_special_tokens=False)
    if tokenizer.eos_token_id is not None:
        ids = [*ids, tokenizer.eos_token_id]
    text = tokenizer.decode(ids, skip_special_tokens=True)
    steps = segment(text, unit)
    if len(steps) != len(written):
        return f"{answer!r} has {len(written)} steps ({unit}), but {len(steps)} after decoding: {text!r}"
    owners = set(token_steps(token_offsets(tokenizer, ids), [(step.start, step.end) for step in steps]).tolist())
    bare = [text[step.start : step.end] for number, step in enumerate(steps) if number not in owners]
    return f"no token belongs to {bare[0]!r} in {text!r}" if bare else ""
