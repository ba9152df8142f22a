"""One uniform variate per token samples the distribution that vLLM samples, from each request's own generator."""

from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.sampling import measure
from workers.cpu import sampling
from workers.cpu.sampling import InverseSampler, invert

pytestmark = pytest.mark.slow

WEIGHTS = st.lists(st.integers(0, 1000), min_size=1, max_size=30).filter(any)
VARIATES = st.integers(0, 2**20 - 1).map(lambda count: count / 2**20)
BELOW_ONE = 1 - 2**-53
ROWS, ENTRIES = 6, 700


def rows_of(weights: list[int], uniforms: list[float]) -> tuple[Tensor, Tensor]:
    return torch.tensor([weights] * len(uniforms)).float(), torch.tensor(uniforms, dtype=torch.float64)


@given(weights=WEIGHTS, uniforms=st.lists(VARIATES, min_size=1, max_size=5), block=st.sampled_from([1, 3, 8, 256]))
def test_the_entry_is_the_first_whose_cumulative_probability_is_above(
    weights: list[int], uniforms: list[float], block: int
):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "BLOCK", block)
        found = invert(*rows_of(weights, uniforms)).tolist()
    sums = list(accumulate(weights))
    targets = [Fraction(uniform) * sums[-1] for uniform in uniforms]
    assert found == [next(entry for entry, total in enumerate(sums) if total > target) for target in targets]


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), entries=st.integers(1, 2000), spread=st.floats(0, 20))
def test_random_probabilities_are_inverted_as_numpy_does(seed: int, entries: int, spread: float):
    generator = np.random.default_rng(seed)
    logits = spread * generator.standard_normal((4, entries))
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True)).astype(np.float32)
    uniforms = generator.random(4)
    found = invert(torch.from_numpy(probabilities), torch.from_numpy(uniforms)).numpy()
    cumulative = probabilities.astype(np.float64).cumsum(axis=1)
    target, row = uniforms * cumulative[:, -1], np.arange(4)
    rounding = 1e-12 * cumulative[:, -1]
    assert (cumulative[row, found] > target - rounding).all()
    assert (cumulative[row, found] - probabilities[row, found] <= target + rounding).all()


@given(
    weights=WEIGHTS,
    zeros=st.tuples(st.integers(0, 600), st.integers(0, 600)),
    uniform=st.one_of(st.sampled_from([0.0, 2**-53, 0.5, BELOW_ONE]), st.floats(0, BELOW_ONE)),
)
def test_an_entry_of_probability_zero_is_never_chosen(weights: list[int], zeros: tuple[int, int], uniform: float):
    row = [0] * zeros[0] + weights + [0] * zeros[1]
    (found,) = invert(*rows_of(row, [uniform])).tolist()
    assert row[found] > 0
    positive = [entry for entry, weight in enumerate(row) if weight]
    if uniform == 0:
        assert found == positive[0]
    if uniform == BELOW_ONE:
        assert found == positive[-1]


@given(seed=st.integers(0, 2**32 - 1), zero=st.integers(0, 9))
def test_rounded_sums_choose_no_entry_of_probability_zero(seed: int, zero: int):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.rand(8, 1000, generator=generator) ** zero
    probabilities[torch.rand(8, 1000, generator=generator) < zero / 10] = 0
    assume(bool((probabilities.sum(dim=1) > 0).all()))
    for uniform in (0.0, BELOW_ONE):
        found = invert(probabilities, torch.full((8,), uniform, dtype=torch.float64))
        assert (probabilities[torch.arange(8), found] > 0).all()


@given(weights=WEIGHTS, uniform=VARIATES, power=st.integers(-20, 20))
def test_probabilities_need_not_sum_to_one(weights: list[int], uniform: float, power: int):
    row, uniforms = rows_of(weights, [uniform])
    assert torch.equal(invert(row, uniforms), invert(row * 2.0**power, uniforms))


def sampler(mode: str = "raw_logprobs") -> InverseSampler:
    return InverseSampler(mode)  # type: ignore[arg-type]


def random_logits(rows: int = ROWS) -> Tensor:
    return 2 * torch.randn(rows, ENTRIES, generator=torch.Generator().manual_seed(0))


def generators(seeds: list[int]) -> dict[int, torch.Generator]:
    return {row: torch.Generator().manual_seed(seed) for row, seed in enumerate(seeds)}


def sampled(logits: Tensor, own: dict[int, torch.Generator], k: Tensor | None = None, p: Tensor | None = None) -> list:
    tokens, _ = sampler().forward_cpu(logits.clone(), own, k, p)
    return tokens.tolist()


def test_vllms_layer_calls_our_forward():
    tokens, _ = sampler()(random_logits(), generators([*range(ROWS)]), None, None)
    assert tokens.tolist() == sampled(random_logits(), generators([*range(ROWS)]))


def test_the_same_seed_samples_the_same_tokens():
    first, second = generators([5] * ROWS), generators([5] * ROWS)
    steps = [random_logits() + step for step in range(3)]
    assert [sampled(logits, first) for logits in steps] == [sampled(logits, second) for logits in steps]
    states = {bytes(one.get_state().numpy()) for one in [*first.values(), *second.values()]}
    assert len(states) == 1


def test_another_seed_samples_other_tokens():
    logits = torch.zeros(1, ENTRIES)
    assert len({sampled(logits, generators([seed]))[0] for seed in range(30)}) > 20


@given(order=st.permutations(range(ROWS)), kept=st.integers(1, ROWS))
def test_a_rows_token_depends_on_its_own_logits_and_generator(order: list[int], kept: int):
    alone = [sampled(random_logits()[[row]], generators([row]))[0] for row in range(ROWS)]
    rows = order[:kept]
    assert sampled(random_logits()[rows], generators(rows)) == [alone[row] for row in rows]


def test_requests_without_a_seed_do_not_change_those_with_one():
    whole = sampled(random_logits(), generators([*range(ROWS)]))
    own = {row: one for row, one in generators([*range(ROWS)]).items() if row % 2}
    mixed = sampled(random_logits(), own)
    assert [mixed[row] for row in own] == [whole[row] for row in own]


def test_requests_without_a_seed_follow_torchs_own():
    torch.manual_seed(3)
    first = [sampled(torch.zeros(4, ENTRIES), {}) for _ in range(2)]
    torch.manual_seed(3)
    assert [sampled(torch.zeros(4, ENTRIES), {}) for _ in range(2)] == first
    assert len({token for step in first for token in step}) > 4


@pytest.mark.parametrize("seeded", [True, False])
def test_frequencies_are_the_probabilities(seeded: bool):
    probabilities = torch.tensor([0.5, 0.25, 0.0, 0.15, 0.06, 0.04])
    draws = 20_000
    torch.manual_seed(0)
    own = dict.fromkeys(range(draws), torch.Generator().manual_seed(0)) if seeded else {}
    counts = np.bincount(sampled(probabilities.log().repeat(draws, 1), own), minlength=6)
    assert counts[2] == 0
    expected = draws * probabilities.numpy()[[0, 1, 3, 4, 5]]
    assert ((counts[[0, 1, 3, 4, 5]] - expected) ** 2 / expected).sum() < 18.5  # chi-square(4) exceeds it in 0.1%


@settings(max_examples=50)
@given(k=st.integers(1, ENTRIES), seed=st.integers(0, 1000))
def test_a_token_is_one_of_the_top_k(k: int, seed: int):
    logits = random_logits()
    tokens = sampled(logits, generators([seed + row for row in range(ROWS)]), k=torch.full((ROWS,), k))
    ranks = logits.argsort(dim=1, descending=True).argsort(dim=1)
    assert (ranks[torch.arange(ROWS), tokens] < k).all()


@settings(max_examples=50)
@given(p=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
def test_a_token_is_one_of_the_smallest_set_of_probability_p(p: float, seed: int):
    logits = random_logits()
    tokens = sampled(logits, generators([seed + row for row in range(ROWS)]), p=torch.full((ROWS,), p))
    ordered, entries = logits.softmax(dim=1).sort(dim=1, descending=True)
    before = (ordered.cumsum(dim=1) - ordered).gather(1, entries.argsort(dim=1))  # more probable entries' probability
    assert (before[torch.arange(ROWS), tokens] < p + 1e-5).all()


def test_the_most_probable_token_is_the_only_one_of_top_1():
    logits = random_logits()
    assert sampled(logits, generators([0] * ROWS), k=torch.ones(ROWS, dtype=torch.long)) == logits.argmax(1).tolist()


def test_returned_log_probabilities_are_those_sampled_from():
    logits, k = random_logits(), torch.full((ROWS,), 5)
    _, plain = sampler("processed_logprobs").forward_cpu(logits.clone(), {}, None, None)
    torch.testing.assert_close(plain, logits.log_softmax(dim=1), rtol=0, atol=0)
    _, cut = sampler("processed_logprobs").forward_cpu(logits.clone(), {}, k, None)
    assert cut is not None
    assert (cut > -torch.inf).sum(dim=1).tolist() == [5] * ROWS
    torch.testing.assert_close(cut.exp().sum(dim=1), torch.ones(ROWS))


def test_returned_logits_are_the_processed_ones_and_raw_modes_return_none():
    logits, k = random_logits(), torch.full((ROWS,), 5)
    _, cut = sampler("processed_logits").forward_cpu(logits.clone(), {}, k, None)
    assert cut is not None
    torch.testing.assert_close(cut[cut > -torch.inf].sort().values, logits.topk(5).values.flatten().sort().values)
    for mode in ("raw_logprobs", "raw_logits"):
        assert sampler(mode).forward_cpu(logits.clone(), {}, k, None)[1] is None


def test_the_benchmark_times_vllms_sampler_and_ours_with_and_without_seeds():
    with torch.compiler.set_stance("force_eager"):  # vLLM's compiles for 20 s
        times = measure(rows=2, vocabulary=600, repeats=3)
    assert times.keys() == {"vLLM", "vLLM, seeded", "ours", "ours, seeded"}
    assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in times.values())
