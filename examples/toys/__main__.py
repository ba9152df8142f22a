"""Toy problems of both papers with known answers, hundreds of seeds (docs/evidence/toy.md).

    python -m examples.toys credit        steps to solve planted causal problems, with and without credit
    python -m examples.toys grid          the same with programs of lines, for every mapping of credit (minutes)
    python -m examples.toys tests         the same with credits that count some of the tests only
    python -m examples.toys sharing       the same by what lines share and how many programs an update samples
    python -m examples.toys turns         credit per turn of an agent beside GiGPO
    python -m examples.toys skills        what closed loop and rehearsal keep of skills that GRPO sharpens in turn
    python -m examples.toys projection    gain of a new skill vs. forgetting of old ones, with noisy constraints

Each prints a Markdown table and writes it with results.json, and most with a picture, to --out.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from examples.toys import counted_tests, credit, grid_study, pictures, projection, sharing, turns
from examples.toys.credit import CreditRun
from examples.toys.grid import GridRun
from examples.toys.projection import PROTECTED, ProtectionRun
from examples.toys.turns import TurnsRun


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        print(options.toy(options))
    except ValueError as error:
        print(f"examples.toys: {error}", file=sys.stderr)
        return 2
    return 0


def _credit(options: argparse.Namespace) -> str:
    run = CreditRun(
        seeds=options.seeds,
        group=options.group,
        learning_rate=options.learning_rate,
        strength=options.strength,
        limit=options.limit,
        seed=options.seed,
    )
    results = list(credit.study(run))
    table = credit.table(results)
    record = {"run": asdict(run), "results": list(map(asdict, results))}
    out = _record(options.out or "outputs/toy/credit", table, record)
    title = (
        f"learning rate {run.learning_rate:g}, strength {run.strength:g}; mean and 95% interval of {run.seeds} seeds; "
        f"{run.limit + 1}: not solved"
    )
    pictures.draw_credit(results, title, out / "steps_to_solve.png")
    return table


def _grid(options: argparse.Namespace) -> str:
    torch.set_num_threads(1)  # tensors are small, and results the same on any number of cores
    run = GridRun(seeds=options.seeds, limit=options.limit, seed=options.seed)
    out, results = options.out or "outputs/toy/grid", []
    for row in grid_study.study(run, Path(out) / "rows.jsonl"):
        results.append(row)
        print(f"{row.setting}: {row.arm}: {row.updates.text()}", file=sys.stderr, flush=True)
        if len(results) % 100 == 0:
            _record(out, grid_study.table(results), grid_study.record(run, results))
    table = grid_study.table(results)
    pictures.draw_grid(results, _record(out, table, grid_study.record(run, results)) / "grid.png")
    return table


def _of_programs(toy: Any, name: str, options: argparse.Namespace) -> str:
    """A toy whose module has a study, a table and a record of programs of lines, without a picture."""
    torch.set_num_threads(1)
    run = GridRun(seeds=options.seeds, limit=options.limit, seed=options.seed)
    results = list(toy.study(run))
    table: str = toy.table(results)
    _record(options.out or f"outputs/toy/{name}", table, toy.record(run, results))
    return table


def _turns(options: argparse.Namespace) -> str:
    torch.set_num_threads(1)
    run = TurnsRun(seeds=options.seeds, updates=options.updates, seed=options.seed)
    results = list(turns.study(run))
    table = turns.table(results)
    _record(options.out or "outputs/toy/turns", table, turns.record(run, results))
    return table


def _skills(options: argparse.Namespace) -> str:
    from examples.toys import skills  # its projections need quadprog, which the other toys do without

    torch.set_num_threads(1)
    run, results = skills.SkillsRun(seeds=options.seeds, seed=options.seed), []
    for row in skills.study(run):
        results.append(row)
        print(f"{row.arm}: {row.final.text(1)}", file=sys.stderr, flush=True)
    table = skills.table(results)
    _record(options.out or "outputs/toy/skills", table, skills.record(run, results))
    return table


def _projection(options: argparse.Namespace) -> str:
    run = ProtectionRun(seeds=options.seeds, updates=options.updates, seed=options.seed)
    results = list(projection.study(run, options.cosines, options.epsilons))
    table = projection.table(results)
    record = {"run": asdict(run), "results": list(map(asdict, results))}
    out = _record(options.out or "outputs/toy/projection", table, record)
    title = (
        f"gain of a new skill and mean forgetting of {PROTECTED} protected ones after {run.updates} updates\n"
        f"mean and 95% interval of {run.seeds} seeds; cosine: of estimated and true constraint gradients"
    )
    pictures.draw_protection(results, title, out / "gain_and_forgetting.png")
    return table


def _record(out: str, table: str, record: dict[str, Any]) -> Path:
    """Write the table and the numbers; returns the folder."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text(f"{table}\n")
    (folder / "results.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m examples.toys", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    toys = parser.add_subparsers(required=True)
    _add_credit(toys.add_parser("credit", formatter_class=argparse.ArgumentDefaultsHelpFormatter))
    for name, toy, limit in (
        ("grid", _grid, GridRun.limit),
        ("tests", partial(_of_programs, counted_tests, "tests"), GridRun.limit),
        ("sharing", partial(_of_programs, sharing, "sharing"), 400),
    ):
        _add_grid(toys.add_parser(name, formatter_class=argparse.ArgumentDefaultsHelpFormatter), toy, limit)
    _add_turns(toys.add_parser("turns", formatter_class=argparse.ArgumentDefaultsHelpFormatter))
    of_skills = toys.add_parser("skills", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    of_skills.set_defaults(toy=_skills)
    of_skills.add_argument("--seeds", type=int, default=20, help="independent runs of each arm")
    _add_projection(toys.add_parser("projection", formatter_class=argparse.ArgumentDefaultsHelpFormatter))
    for subcommand in toys.choices.values():
        subcommand.add_argument("--seed", type=int, default=0, help="seed of the random numbers")
        subcommand.add_argument("--out", help="folder of results and picture; None: outputs/toy/...")
    return parser


def _add_credit(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(toy=_credit)
    parser.add_argument("--seeds", type=int, default=CreditRun.seeds, help="independent runs of each arm")
    parser.add_argument("--group", type=int, default=CreditRun.group, help="samples of the prompt per update")
    parser.add_argument("--learning-rate", type=float, default=CreditRun.learning_rate, help="base rate of all arms")
    parser.add_argument("--strength", type=float, default=CreditRun.strength, help="strength of the credit")
    parser.add_argument("--limit", type=int, default=CreditRun.limit, help="updates after which a run ends unsolved")


def _add_grid(parser: argparse.ArgumentParser, toy: Callable[[argparse.Namespace], str], limit: int) -> None:
    parser.set_defaults(toy=toy)
    parser.add_argument("--seeds", type=int, default=GridRun.seeds, help="independent runs of each arm")
    parser.add_argument("--limit", type=int, default=limit, help="updates after which a run ends unsolved")


def _add_turns(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(toy=_turns)
    parser.add_argument("--seeds", type=int, default=TurnsRun.seeds, help="independent runs of each arm")
    parser.add_argument("--updates", type=int, default=TurnsRun.updates, help="of a run")


def _add_projection(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(toy=_projection)
    parser.add_argument("--seeds", type=int, default=ProtectionRun.seeds, help="number of random problems")
    parser.add_argument(
        "--updates", type=int, default=ProtectionRun.updates, help="for the old skills, and for the new"
    )
    parser.add_argument(
        "--cosines", type=float, nargs="+", default=projection.COSINES,
        help="cosines of estimated and true constraint gradients: 1 is no noise",
    )  # fmt: skip
    parser.add_argument(
        "--epsilons", type=float, nargs="*", default=projection.EPSILONS,
        help="slacks for qp with exact gradients, as cosines",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
