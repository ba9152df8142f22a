"""Rows of verl's own preprocess scripts: their data sources and ground truths in the terms of our verifiers. Pure.

With `reward.custom_reward_function.path=pkg://rewards` verl passes such rows to `compute_score` as they are.
"""

import json
from functools import lru_cache
from typing import Any

# The names that verl 0.9.1's default_compute_score knows, except those of images and of search.
_VERIFIERS = {
    "openai/gsm8k": "gsm8k",
    **dict.fromkeys(("lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"), "latex"),
    **dict.fromkeys(("math", "math_dapo", "math_dapo_reasoning"), "latex"),
    **dict.fromkeys(("numina_aops_forum", "numina_synthetic_math", "numina_amc_aime"), "latex"),
    **dict.fromkeys(("numina_synthetic_amc", "numina_cn_k12", "numina_olympiads"), "latex"),
    **dict.fromkeys(("codecontests", "apps", "codeforces", "taco"), "stdio"),
}
_AIME = "aime"


def verifier_of(data_source: str) -> str | None:
    """The verifier of a data source of verl's; None if the name is none of those."""
    return "latex" if data_source.startswith(_AIME) else _VERIFIERS.get(data_source)


@lru_cache(maxsize=256)
def truth_of(data_source: str, ground_truth: str) -> str:
    """The ground truth of a row of verl's, as JSON for the verifier; ValueError if it is not of the known form.

    The answer is text in mathematics; for programs `{"inputs": [...], "outputs": [...]}`, each a text or its lines.
    """
    if verifier_of(data_source) != "stdio":
        return json.dumps({"answer": ground_truth})
    tests = json.loads(ground_truth)
    if not isinstance(tests, dict) or not {"inputs", "outputs"} <= tests.keys():
        raise ValueError(f"{data_source}: the ground truth needs 'inputs' and 'outputs'")
    if tests.get("fn_name") is not None:
        raise ValueError(f"{data_source}: tests that call {tests['fn_name']!r} are not supported, only printed output")
    cases = zip(tests["inputs"], tests["outputs"], strict=True)
    return json.dumps({"cases": [{"stdin": joined(given), "expected": joined(printed)} for given, printed in cases]})


def joined(lines: Any) -> str:
    """A text that is given as such or as its lines."""
    return "\n".join(map(str, lines)) if isinstance(lines, list) else str(lines)
