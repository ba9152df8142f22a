"""Rows of verl's own preprocess scripts are judged by our verifiers, as they are."""

import ast
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager

import rewards
from data_prep.micro.model import make_tokenizer
from data_prep.sources import humaneval
from rewards import compute_score, registry, verifier_inputs, verl_rows

SUM = {"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", ["7"]]}
CALLS = {"fn_name": "add", "inputs": ["1\n2", "[3]\n[4]"], "outputs": ["3", "[3, 4]"]}
DEFINED = "class Solution:\n    def add(self, a, b):\n        return a + b"
ADD = "```python\nimport sys\nprint(sum(map(int, sys.stdin.read().split())))\n```"
HUMANEVAL_SOURCES = ("humaneval", "openai/openai_humaneval")
# As published: blank lines around METADATA and check, the prompt ends in the documentation of an unfinished function.
HUMANEVAL = {
    "task_id": "HumanEval/38",
    "prompt": "from typing import List\nimport math\n\n\ndef root(n: int) -> int:\n    return math.isqrt(n)\n\n\n"
    'def roots(ns: List[int]) -> List[int]:\n    """ Whole roots.\n    >>> roots([4, 10])\n    [2, 3]\n    """\n',
    "entry_point": "roots",
    "canonical_solution": "    return [root(n) for n in ns]\n",
    "test": "\n\nMETADATA = {\n    'author': 'us',\n    'dataset': 'test'\n}\n\n\ndef check(candidate):\n"
    "    assert candidate([4, 10]) == [2, 3]\n    assert candidate([root(81)]) == [math.isqrt(9)]\n\n",
}
ROOTS = "```python\nimport math\ndef roots(ns):\n    return [math.isqrt(n) for n in ns]\n```"


def names_in_verl() -> set[str]:
    """The data sources in the source of verl's default_compute_score."""
    spec = find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "utils/reward_score/__init__.py").read_text()
    function = next(
        node for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "default_compute_score"
    )  # fmt: skip
    compared = [part for node in ast.walk(function) if isinstance(node, ast.Compare) for part in node.comparators]
    return {
        one.value for part in compared for one in ast.walk(part)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }  # fmt: skip


def test_every_text_source_of_verl_has_a_verifier():
    names = names_in_verl()
    assert {"openai/gsm8k", "math_dapo", "taco"} <= names
    without = {name for name in names if verl_rows.verifier_of(name) is None}
    assert {name for name in without if not name.startswith("searchR1_")} == {"hiyouga/geometry3k"}
    assert verl_rows.verifier_of("aime2024") == "latex"
    assert verl_rows.verifier_of("gsm8k") is None
    assert {verl_rows.verifier_of(name) for name in HUMANEVAL_SOURCES} == {"code"}
    ours = {verl_rows.verifier_of(name) for name in names - without}
    assert ours <= set(registry.names())
    assert not {*names, *HUMANEVAL_SOURCES} & set(registry.names())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "truth", "right", "wrong"),
    [
        ("openai/gsm8k", "1,234", "#### 1234", "#### 1235"),
        ("lighteval/MATH", "\\frac{1}{2}", "\\boxed{\\dfrac{1}{2}}", "no"),
        ("math_dapo", "34", "so\nAnswer: $34$", "34"),
        ("math_dapo", "34", "\\boxed{33}\nAnswer:\n34", "\\boxed{34}\nAnswer: 33"),
        ("lighteval/MATH", "34", "\\boxed{34}\nAnswer: see above", "\\boxed{33}\nAnswer: 34"),
        ("numina_olympiads", "x+1", "it is $\\boxed{x + 1}$", "\\boxed{x or x+1}"),
        ("taco", json.dumps(SUM), ADD, "print(3)"),
        ("apps", '{"inputs": [null], "outputs": ["[]"]}', "print([])", "print(input())"),
        ("apps", json.dumps(CALLS), DEFINED, "def add(a, b):\n    return 3"),
        (
            "taco",
            json.dumps(CALLS | {"assert_case": ["assert add(1, 2) == 3"]}),
            "def add(a, b):\n    return 3",
            DEFINED,
        ),
        ("humaneval", json.dumps(HUMANEVAL), ROOTS, "def roots(ns):\n    return [2, 3]"),
        (
            "openai/openai_humaneval",
            json.dumps({"test": "def check(f):\n    assert f(1, 2) == 3\n", "entry_point": "sum"}),
            "def sum(a, b):\n    return a + b",
            "def total(a, b):\n    return a + b",
        ),
    ],
)
async def test_a_row_of_verl_is_judged(source, truth, right, wrong):
    judged = [await compute_score(source, response, truth) for response in (right, wrong)]
    assert [one["acc"] for one in judged] == [1.0, 0.0]
    assert judged[1]["error"] != "infrastructure"
    assert verifier_inputs(source, right)[0] == "none"


@pytest.mark.parametrize("manager", ["naive", "dapo"])
@pytest.mark.slow  # verl takes seconds to import
async def test_verls_own_configuration_and_managers_take_our_function(manager):
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", [
            "reward.custom_reward_function.path=pkg://rewards", "reward.custom_reward_function.name=compute_score",
            f"reward.reward_manager.name={manager}",
        ])  # fmt: skip
    tokenizer = make_tokenizer()
    judged = load_reward_manager(config, tokenizer)
    rows = (("openai/gsm8k", "1,234", "#### 1234"), ("math_dapo", "34", "Answer: 34"), ("taco", json.dumps(SUM), ADD))
    for source, truth, answer in rows:
        for text, score in ((answer, 1.0), ("no", 0.0)):
            found = await judged.run_single(_generated(tokenizer, source, truth, text))
            assert (found["reward_score"], found["reward_extra_info"]["acc"]) == (score, score)


def _generated(tokenizer, source, truth, text) -> DataProto:
    """What verl hands its reward manager: a row of its preprocess scripts with a generated answer."""
    response = torch.tensor([tokenizer.encode(text)])
    fields = {"data_source": source, "reward_model": {"style": "rule", "ground_truth": truth}, "extra_info": {}}
    return DataProto(
        batch=TensorDict({"responses": response, "attention_mask": torch.ones_like(response)}, batch_size=1),
        non_tensor_batch={key: np.array([value], dtype=object) for key, value in fields.items()},
    )


@pytest.mark.parametrize(
    ("source", "truth", "right"),
    [("taco", SUM, ADD), ("math_dapo", 34, "Answer: 34"), ("gsm8k", {"answer": "34"}, "#### 34")],
)
async def test_a_ground_truth_that_is_no_text_is_judged_as_its_json(source, truth, right):
    judged = [await compute_score(source, response, truth) for response in (right, "```python\nprint(35)\n```")]
    assert [one["acc"] for one in judged] == [1.0, 0.0]
    assert judged[1]["error"] != "infrastructure"


@pytest.mark.parametrize("tests", ["{", "[]", '{"inputs": []}', json.dumps(SUM | {"fn_name": "add"}),
                                   '{"assert_case": ["assert 1"]}',
                                   '{"inputs": ["1"], "outputs": []}', '{"inputs": [], "outputs": []}'])  # fmt: skip
async def test_a_ground_truth_of_another_form_masks_the_sample(tests, monkeypatch):
    monkeypatch.setattr(rewards, "_logged_failures", set())
    assert (await compute_score("apps", ADD, tests))["error"] == "infrastructure"


@pytest.mark.parametrize("changes", [{"test": "assert roots([]) == []"}, {"test": "def check():\n    pass"},
                                     {"prompt": "def"}, {"entry_point": None}, {"test": None}])  # fmt: skip
async def test_a_humaneval_row_of_another_form_masks_the_sample(changes, monkeypatch):
    monkeypatch.setattr(rewards, "_logged_failures", set())
    kept = {key: value for key, value in (HUMANEVAL | changes).items() if value is not None}
    assert (await compute_score("humaneval", ROOTS, json.dumps(kept)))["error"] == "infrastructure"


def test_a_humaneval_row_has_the_tests_that_its_loader_makes():
    task = humaneval.convert(HUMANEVAL, "test", 0)
    verifier, truth = verl_rows.row_of("humaneval", json.dumps(HUMANEVAL))
    assert (verifier, json.loads(truth)["tests"]) == (task["verifier"], task["ground_truth"]["tests"])
    assert len(task["ground_truth"]["tests"]) == 2


def test_a_name_of_no_verifier_is_refused():
    with pytest.raises(ValueError, match="unknown verifier 'hiyouga/geometry3k'"):
        verifier_inputs("hiyouga/geometry3k", "")


@pytest.mark.parametrize(
    ("given", "out", "args", "expected", "wrapped"),
    [
        ('[1, 2]\n"a"', "[3]", [[1, 2], "a"], [3], True),
        ("", "null", [], None, False),
        ('{"1": {"2": 3}}\n{"a": 1}', "[]", [{"1": {"2": 3}}, {"a": 1}], [], False),
        ([[1, 2], "a"], ["b"], [[1, 2], "a"], ["b"], True),
    ],
)
def test_calls_are_read_in_the_form_of_the_row(given, out, args, expected, wrapped):
    row = {"fn_name": "f", "inputs": [given], "outputs": [out]}
    verifier, truth = verl_rows.row_of("taco", json.dumps(row))
    assert verifier == "calls"
    read = registry.validate_ground_truth(verifier, truth).model_dump()
    assert read == {"function": "f", "calls": [{"args": args, "expected": expected}], "visible": 0, "wrapped": wrapped}
