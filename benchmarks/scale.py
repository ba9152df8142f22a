"""Where a step of a large run waits, and how many sandbox cores it needs: a discrete simulation.

    python -m benchmarks.scale        # 1,024 prompts x 16 samples of up to 8,192 tokens on 256 GPUs (--help: others)

An answer is judged by the next free core of any node's sandbox, then its replays; `by group` once its whole group is
judged. The update begins when nothing is left to judge. Costs of sandbox, replays and driver are this project's
measurements on a CPU; those of GPUs are assumed, for none was at hand. Left out: weights to the engines, validation,
and prompts, which with 1,024 tokens each would add a quarter to the tokens of passes and of the queue.
"""

import argparse
import dataclasses
import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

CORES = (1, 2, 4, 8, 16, 32)
TOLERATED = 0.01  # share of a step that may be spent on waiting for the sandbox


@dataclass(frozen=True)
class Load:
    """A step's work. slots: answers that an engine writes at a time. memory: prompts for each protected skill."""

    prompts: int = 1024
    samples: int = 16
    tokens: int = 8192
    mean_tokens: int = 4096
    gpus: int = 256
    gpus_per_node: int = 8
    slots: int = 64
    replays: int = 4
    parameters: float = 7.6e9
    protected: int = 4
    memory: int = 32

    @property
    def nodes(self) -> int:
        return -(-self.gpus // self.gpus_per_node)

    @property
    def answers(self) -> int:
        return self.prompts * self.samples


@dataclass(frozen=True)
class Costs:
    """Core seconds; hanging: share of answers that, with their replays, take the limit. The last four are assumed.

    written: tokens/s of an answer. operations: useful ones per second of a GPU.
    """

    answer: float = 2 / 500  # benchmarks/sandbox.py speed: asserts on two cores
    replay: float = 2 / 160  # benchmarks/credit.py: 16 statements on two cores
    mapping: float = 0.124 / 1024  # benchmarks/credit_mapping.py: credits to tokens
    hanging: float = 0.0
    limit: float = 10.0
    written: float = 40.0
    operations: float = 4e14


# benchmarks/credit.py --step: 128 answers, sixteen tests of four calls; then four replays of each.
MANY_TESTS = Costs(answer=2.85 / 128, replay=(18.5 - 2.85) / 512)
PROGRAMS = {
    "short": Costs(),
    "many tests": MANY_TESTS,
    "many tests, 2% hang": dataclasses.replace(MANY_TESTS, hanging=0.02),
}


def answer_lengths(load: Load, seed: int = 0) -> list[list[int]]:
    """Tokens of each sample of each prompt: log-normal, cut at the limit."""
    draw, sigma = random.Random(seed), 0.6
    middle = math.log(load.mean_tokens) - sigma**2 / 2

    def one() -> int:
        return min(load.tokens, max(1, round(draw.lognormvariate(middle, sigma))))

    return [[one() for _ in range(load.samples)] for _ in range(load.prompts)]


def finish_times(lengths: Sequence[Sequence[int]], engines: int, slots: int, written: float) -> list[list[float]]:
    """When each answer is complete: prompts go round the engines, whose next free slot takes an answer."""
    free = [[0.0] * slots for _ in range(engines)]

    def place(engine: list[float], tokens: int) -> float:
        end = engine[0] + tokens / written
        heapq.heapreplace(engine, end)
        return end

    return [[place(free[prompt % engines], tokens) for tokens in own] for prompt, own in enumerate(lengths)]


def judged(
    finished: Sequence[Sequence[float]], cores: int, costs: Costs, replays: int, by_group: bool = False
) -> float:
    """When the last program has run, first come first served."""
    draw = random.Random(0)
    hangs = [[draw.random() < costs.hanging for _ in own] for own in finished]
    waiting = [
        (time, 0, prompt, hang)
        for prompt, own in enumerate(finished)
        for time, hang in zip(own, hangs[prompt], strict=True)
    ]
    heapq.heapify(waiting)
    free, left, latest = [0.0] * cores, [len(own) for own in finished], [0.0] * len(finished)
    while waiting:
        arrived, replay, prompt, hang = heapq.heappop(waiting)
        end = max(arrived, free[0]) + (costs.limit if hang else costs.replay if replay else costs.answer)
        heapq.heapreplace(free, end)
        if replay:
            continue
        left[prompt] -= 1
        latest[prompt] = max(latest[prompt], end)
        if by_group and left[prompt]:
            continue
        ready, asked = (latest[prompt], hangs[prompt]) if by_group else (end, [hang])
        for each in asked * replays:
            heapq.heappush(waiting, (ready, 1, prompt, each))
    return max(free)


def pass_tokens(lengths: Sequence[Sequence[int]], load: Load) -> int:
    """Tokens of the rank with the most, summed over the passes for constraints: two per skill, one for each half.

    lengths: of each prompt's answers. The answers of a half are dealt over the ranks, the longest first.
    """
    total = 0
    for skill in range(load.protected):
        own = sorted(itertools.chain(*lengths[skill * load.memory : (skill + 1) * load.memory]), reverse=True)
        for half in (own[::2], own[1::2]):
            ranks = [0] * load.gpus
            for length in half:
                heapq.heapreplace(ranks, ranks[0] + length)
            total += max(ranks)
    return total


def update_parts(load: Load, costs: Costs, lengths: Sequence[Sequence[int]]) -> dict[str, float]:
    """Seconds of the trainer's parts; 8 operations per weight to train a token, with checkpointing."""
    tokens = sum(map(sum, lengths))
    per_token = load.parameters / costs.operations / load.gpus
    memory = load.protected * load.memory / load.prompts  # share of the prompts, which no loss is trained on
    return {
        "credits to tokens (driver)": load.answers * costs.mapping if load.replays else 0.0,
        "old log-probabilities": 2 * per_token * tokens,
        "constraint passes": 8 * per_token * load.gpus * pass_tokens(lengths, load),
        "update": 8 * per_token * tokens * (1 - memory),
    }


def volumes(load: Load, tokens: int) -> dict[str, float]:
    """GB of a step, and of a checkpoint: weights and Adam's moments in float32."""
    return {
        "reward traffic": tokens * 44e-9,  # five fields of int64 there, a step's number per token back
        "transfer queue": tokens * 68e-9,  # those, and seven of float32
        "checkpoint": 12e-9 * load.parameters,
        "its averages of constraints": 4e-9 * load.parameters * load.protected,
    }


def sandbox_waits(finished: Sequence[Sequence[float]], load: Load, costs: Costs, by_group: bool) -> dict[int, float]:
    """Seconds that the GPUs wait for the sandbox, by cores per node."""
    written = max(map(max, finished))
    return {each: judged(finished, each * load.nodes, costs, load.replays, by_group) - written for each in CORES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Load):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    load = Load(**vars(parser.parse_args()))
    if load.mean_tokens >= load.tokens:
        parser.error("--mean-tokens must be below --tokens, or most answers would be cut")
    if load.protected * load.memory >= load.prompts:
        parser.error("memory prompts of all protected skills must leave other prompts")
    lengths = answer_lengths(load)
    tokens = sum(map(sum, lengths))
    finished = finish_times(lengths, load.gpus, load.slots, Costs.written)
    seconds = {"generation": max(map(max, finished)), **update_parts(load, Costs(), lengths)}
    print(f"{load.answers:,} answers (rows of the transfer queue), {tokens / 1e6:.1f} M tokens, {load.nodes} nodes")
    print(f"  {'replays':28} {load.answers * load.replays:7,}, {load.replays} of each answer")
    for unit, numbers in {"s": seconds, "GB": volumes(load, tokens)}.items():
        for name, number in numbers.items():
            print(f"  {name:28} {number:7.1f} {unit}")
    print("\nseconds that the GPUs wait for the sandbox, by its cores per node; how many suffice")
    print("  ".join([f"{'programs':30}", *(f"{each:>7}" for each in CORES)]))
    for (name, costs), by_group in itertools.product(PROGRAMS.items(), (False, True)):
        waits = sandbox_waits(finished, load, costs, by_group)
        enough = [each for each, wait in waits.items() if wait <= TOLERATED * sum(seconds.values())]
        label = name + ", by group" * by_group
        print(
            "  ".join([f"{label:30}", *(f"{wait:7.1f}" for wait in waits.values()), str(min(enough, default="more"))])
        )


if __name__ == "__main__":
    main()
