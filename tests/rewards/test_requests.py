"""Sampling parameters that leave out what verl does not read."""

import pickle

import pytest
from vllm.sampling_params import RequestOutputKind, SamplingParams

from rewards.requests import tokens_once

SAMPLED = {"temperature": 0.7, "top_p": 0.9, "top_k": 50, "logprobs": 0}
ONCE = {"output_kind": RequestOutputKind.FINAL_ONLY}


@pytest.mark.parametrize("mode", ["skillcredit", "sync"])
def test_vllm_is_asked_for_tokens_alone_when_the_answer_is_complete(mode):
    asked = tokens_once(SAMPLED, "vllm", mode)
    assert asked == SAMPLED | {"detokenize": False} | ONCE
    sent = SamplingParams(**pickle.loads(pickle.dumps(asked)))  # noqa: S301  (to the engine's process)
    assert sent.output_kind is RequestOutputKind.FINAL_ONLY


@pytest.mark.parametrize("mode", ["skillcredit_colocate_async", "skillcredit_separate_async", "colocate_async"])
def test_an_answer_that_may_be_interrupted_has_a_first_output(mode):
    assert tokens_once(SAMPLED, "vllm", mode) == SAMPLED | {"detokenize": False}


def test_a_stop_string_is_found_in_the_text():
    stopping = SAMPLED | {"stop": ["END"]}
    assert tokens_once(stopping, "vllm", "sync") == stopping | ONCE


def test_other_engines_are_asked_as_before():
    assert tokens_once(SAMPLED, "sglang", "skillcredit") == SAMPLED
