"""Where a step of a large run waits, and how many sandbox cores it needs: a discrete simulation, in seconds.

    python benchmarks/scale.py                        # 1,024 prompts x 16 samples of up to 8,192 tokens on 256 GPUs
    python benchmarks/scale.py --replays 0 --gpus 64

Engines answer all prompts at once; each answer is judged by the next free core of any node's sandbox, then its replays,
`by group` once all of its group are judged. The update begins when nothing is left to judge. Costs of the sandbox, of
replays and of the driver are this project's measurements on a CPU (`Costs` names the benchmark); those of GPUs are
assumed, because none was at hand. Not in it: weights to the engines, validation, stragglers of a network.
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
# A step that waits less than this share of its time for the sandbox has enough cores.
TOLERATED = 0.01


@dataclass(frozen=True)
class Load:
    """A step's work.

    tokens, mean_tokens: limit and mean of an answer. slots: answers that an engine writes at a time. replays: K.
    parameters: of the policy, all trained. protected: skills with constraints. memory: prompts of each, whose samples
    serve constraints only.
    """

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
    """Seconds of a core to judge an answer and a replay, and to map a response's credits; speeds of a GPU.

    hanging: share of answers that run into the time limit, and so do their replays. written: tokens/s of one answer.
    operations: useful ones per second of a GPU. Assumed: `hanging`, `limit`, `written`, `operations`.
    """

    answer: float = 2 / 500  # benchmarks/sandbox.py speed: MBPP-like asserts on two cores
    replay: float = 2 / 160  # benchmarks/credit.py: 16 statements on two cores
    mapping: float = 0.124 / 1024  # benchmarks/credit_mapping.py, responses of 8,192 tokens
    hanging: float = 0.0
    limit: float = 10.0
    written: float = 40.0
    operations: float = 4e14


# benchmarks/credit.py --step: 128 answers with sixteen tests of four calls, then four replays of each.
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
    return [
        [min(load.tokens, max(1, round(draw.lognormvariate(middle, sigma)))) for _ in range(load.samples)]
        for _ in range(load.prompts)
    ]


def finish_times(lengths: Sequence[Sequence[int]], engines: int, slots: int, written: float) -> list[list[float]]:
    """When each answer is complete: prompts go round the engines, whose free slots take the next answer."""
    free = [[0.0] * slots for _ in range(engines)]
    found = []
    for prompt, own in enumerate(lengths):
        engine, times = free[prompt % engines], []
        for tokens in own:
            times.append(engine[0] + tokens / written)
            heapq.heapreplace(engine, times[-1])
        found.append(times)
    return found


def judged(
    finished: Sequence[Sequence[float]], cores: int, costs: Costs, replays: int, by_group: bool = False, seed: int = 0
) -> float:
    """When the last program has run, first come first served: each answer, then its replays.

    by_group: replays wait for all answers of the group, as those that look at siblings' scores or steps do.
    """
    draw = random.Random(seed)
    hangs = [[draw.random() < costs.hanging for _ in own] for own in finished]
    waiting = [
        (time, 0, prompt, hang)
        for prompt, own in enumerate(finished)
        for time, hang in zip(own, hangs[prompt], strict=True)
    ]
    heapq.heapify(waiting)
    free, left, latest = [0.0] * cores, [len(own) for own in finished], [0.0] * len(finished)
    last = 0.0
    while waiting:
        arrived, replay, prompt, hang = heapq.heappop(waiting)
        seconds = costs.limit if hang else costs.replay if replay else costs.answer
        end = max(arrived, free[0]) + seconds
        heapq.heapreplace(free, end)
        last = max(last, end)
        if replay:
            continue
        left[prompt] -= 1
        latest[prompt] = max(latest[prompt], end)
        if by_group and left[prompt]:
            continue
        ready, asked = (latest[prompt], hangs[prompt]) if by_group else (end, [hang])
        for each in asked * replays:
            heapq.heappush(waiting, (ready, 1, prompt, each))
    return last


def update_parts(load: Load, costs: Costs, tokens: int) -> dict[str, float]:
    """Seconds of the trainer's parts on all GPUs; 8 operations per weight to train a token, with checkpointing."""
    per_token = load.parameters / costs.operations / load.gpus
    memory = load.protected * load.memory / load.prompts * tokens
    return {
        "credits to tokens (driver)": load.answers * costs.mapping if load.replays else 0.0,
        "old log-probabilities": 2 * per_token * tokens,
        "constraint passes": 8 * per_token * memory * 1.2,  # padding: at most a fifth
        "update": 8 * per_token * tokens,
    }


def volumes(load: Load, tokens: int) -> dict[str, float]:
    """Bytes of a step and of a checkpoint, and rows of the transfer queue."""
    return {
        "reward workers": tokens * (5 * 8 + 4),  # verl's five fields of int64 there, a step's number per token back
        "transfer queue": tokens * (5 * 8 + 7 * 4),  # those, log-probabilities, scores, advantages, returns in float32
        "rows of the queue": load.answers,
        "checkpoint": 12 * load.parameters,  # weights and Adam's moments in float32
        "averages of constraints": 4 * load.parameters * load.protected,  # projection.average
    }


def sandbox_waits(finished: Sequence[Sequence[float]], load: Load, costs: Costs, by_group: bool) -> dict[int, float]:
    """Seconds that the GPUs wait for the sandbox, by cores per node of CORES."""
    written = max(map(max, finished))
    return {each: judged(finished, each * load.nodes, costs, load.replays, by_group) - written for each in CORES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Load):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    load = Load(**vars(parser.parse_args()))
    lengths = answer_lengths(load)
    tokens = sum(map(sum, lengths))
    finished = finish_times(lengths, load.gpus, load.slots, Costs.written)
    written, parts = max(map(max, finished)), update_parts(load, Costs(), tokens)
    print(f"{load.answers:,} answers, {tokens / 1e6:.1f} M tokens, {load.gpus} GPUs on {load.nodes} nodes")
    for name, seconds in {"generation": written, **parts}.items():
        print(f"  {name:28} {seconds:7.1f} s")
    for name, amount in volumes(load, tokens).items():
        text = f"{amount:7,}" if name.startswith("rows") else f"{amount / 1e9:7.1f} GB"
        print(f"  {name:28} {text}")
    step = written + sum(parts.values())
    print("\nseconds after generation until all is judged, by sandbox cores per node, and the cores that suffice")
    print("  ".join([f"{'programs':30}", *(f"{each:>7}" for each in CORES), "enough"]))
    for (name, costs), by_group in itertools.product(PROGRAMS.items(), (False, True)):
        found = sandbox_waits(finished, load, costs, by_group)
        enough = next((str(each) for each, wait in found.items() if wait <= TOLERATED * step), "more")
        label = f"{name}, by group" if by_group else name
        print("  ".join([f"{label:30}", *(f"{wait:7.1f}" for wait in found.values()), f"{enough:>6}"]))


if __name__ == "__main__":
    main()
