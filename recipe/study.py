"""A study from its data to its table: ``python -m recipe.study NAME ARGUMENT ...``; the launchers of scripts/ call it.

Its options are environment variables (`recipe.runtime.options`), such as TRAIN, SEEDS, LENGTH; one of another study is
refused. With DRY_RUN=1 its commands are shown and none runs. A study that was stopped resumes.
"""

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

from recipe.runtime.options import OptionError, Options
from recipe.studies import coding, credit, lm_eval, npg_muse, papers, pretrained, pretrained_evidence, safe, tasks
from recipe.studies.steps import REFUSED, CommandFailed, Steps, Stopped, say

INTERRUPTED = 130

STUDIES: dict[str, Callable[..., str | None]] = {
    "task": tasks.task,
    "smoke": tasks.smoke,
    "coding.all": coding.pipeline,
    "coding.micro": coding.micro,
    "coding.phase0_baseline": coding.phase0,
    "coding.phase1_sft": coding.phase1,
    "coding.phase2_dpo": coding.phase2,
    "coding.phase3_grpo": coding.phase3,
    "coding.phase4_repair": coding.phase4,
    "coding.ablate_rewards": coding.ablate_rewards,
    "npg_muse.sft": npg_muse.sft,
    "npg_muse.mixed": npg_muse.mixed,
    "npg_muse.curriculum": npg_muse.curriculum,
    "npg_muse.choose_data_volume": npg_muse.choose_data_volume,
    "npg_muse.compare_curriculum": npg_muse.compare_curriculum,
    "npg_muse.ablate_rewards": npg_muse.ablate_rewards,
    "npg_muse.train_all_series": npg_muse.train_all_series,
    "npg_muse.train_ablation": npg_muse.train_ablation,
    "npg_muse.evaluate": npg_muse.evaluate,
    "npg_muse.smoke": npg_muse.smoke,
    "npg_muse.cross_domain": lm_eval.cross_domain,
    "npg_muse.lm_eval_agreement": lm_eval.agreement,
    "evidence_a": papers.evidence_a,
    "evidence_b": papers.evidence_b,
    "evidence_b_strengths": papers.evidence_b_strengths,
    "evidence_credit": credit.evidence_credit,
    "evidence_safe": safe.evidence_safe,
    "evidence_pretrained": pretrained_evidence.evidence_pretrained,
    "paper_b": papers.paper_b,
    "learning": papers.learning,
    "hacking": papers.hacking,
    "pretrained": pretrained.pretrained,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status. What a study chose is the only line on the standard output."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nStudies: {', '.join(STUDIES)}")
        return 0
    try:
        study, values = _study(given)
        chosen = study(Steps(declared_options(study).of(os.environ)), *values)
    except CommandFailed as error:
        say(f"failed: {error}")
        return error.status
    except OptionError as error:
        say(f"stopped: {error}")
        return REFUSED
    except Stopped as error:
        say("\n".join(f"stopped: {line}" for line in str(error).splitlines()))
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    if chosen is not None:
        print(chosen)
    return 0


def declared_options(study: Callable[..., str | None]) -> type[Options]:
    """The options that a study declares: its function's first parameter is ``Steps`` of them."""
    options: type[Options]
    (options,) = get_args(inspect.signature(study).parameters["steps"].annotation)
    return options


def _study(given: Sequence[str]) -> tuple[Callable[..., str | None], list[str]]:
    """The study that is named, and its arguments; Stopped for another name or number of arguments."""
    if not Path("configs/experiment").is_dir():
        raise Stopped(f"{Path.cwd()} is not this project's folder: change to it")
    name, values = (given[0], list(given[1:])) if given else ("", [])
    if name not in STUDIES:
        raise Stopped(f"unknown study '{name}'; valid ones: {', '.join(STUDIES)}")
    signature = inspect.signature(STUDIES[name])
    try:
        signature.bind(None, *values)
    except TypeError as error:
        hidden = 1 if name == "task" else 0  # its launcher names the task
        raise Stopped(f"{name}: {error}; wanted: {_usage(signature, hidden)}") from None
    return STUDIES[name], values


def _usage(signature: inspect.Signature, hidden: int) -> str:
    parameters = list(signature.parameters.values())[1 + hidden :]
    words = [f"[{one.name} ...]" if one.kind is one.VAR_POSITIONAL else one.name.upper() for one in parameters]
    model = "; MODEL is a Hugging Face folder or a hub name (owner/model)" if "MODEL" in words else ""
    return " ".join(words) + model


if __name__ == "__main__":
    sys.exit(main())
