"""Evaluate a model: ``python -m recipe.evaluate --model FOLDER --data FILE.parquet ... --out DIR``.

Queries OpenAI-compatible servers (``--url``, balanced over several), or starts vLLM on ``--platform``: on a CPU one
server, on GPUs one per visible GPU, or per ``--tensor-parallel-size`` of ``--vllm``. Every sample is saved as soon as
it is judged; the same command resumes an evaluation that was stopped.
"""

import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import argparse  # isort: skip
import asyncio
import contextlib
import functools
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

import yaml
from hydra import compose, initialize_config_module

from data_prep.files import file_hash
from data_prep.schema import DataFileError
from data_prep.sources.source import positive
from recipe.checks.model import ModelError, model_folder, template_text
from recipe.evaluation import ServerError
from recipe.evaluation.budgets import Budget, BudgetName
from recipe.evaluation.collecting import Collector, note_stalls
from recipe.evaluation.folder import EvaluationFolder, FolderError
from recipe.evaluation.metrics import Metrics, by_data_set, measure, table
from recipe.evaluation.samples import Problem, Sample, SampleJournal, data_files, read_data_sets
from recipe.evaluation.servers import Endpoints
from recipe.evaluation.vllm_servers import VLLM_PLATFORMS, vllm_servers
from recipe.records.digests import weights_digest
from recipe.records.tables import cut_warnings, table_console
from recipe.runtime.console import EvaluationState, ProgressReporter, program
from recipe.settings import AgentsSettings, SettingsError, read_agents
from rewards import setting_names
from rewards.environments import ENVIRONMENTS
from rewards.settings import JudgeSettings
from workers.cpu.processor import Precision, hardware_precision, precision_note

REFUSED, FAILED = 2, 1
SECONDS_BETWEEN_LINES = 10.0
CONCURRENCY = 64
"""Concurrent requests per server."""
SECONDS_OF_AN_ANSWER, SLOWEST = 600.0, 10.0
"""A request's time limit: at least this many seconds, and at this many tokens per second; answers are not streamed."""


class RequestError(ValueError):
    """The request is invalid; the message addresses the user."""


def parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """Parser with the options of every command that evaluates."""
    options = argparse.ArgumentParser(prog=program(command), description=description)
    options.add_argument(
        "--model", help="a Hugging Face folder or a hub name; with --url: the model's name on the servers"
    )
    options.add_argument("--data", nargs="+", required=True, metavar="[NAME=]FILE", help="parquet files of rows")
    options.add_argument("--out", type=Path, required=True, help="folder of the evaluation; resumes an unfinished one")
    options.add_argument("--limit", type=positive, help="maximal number of problems per file")
    servers = options.add_argument_group("servers")
    servers.add_argument("--url", nargs="+", default=[], help="OpenAI-compatible servers of one model")
    servers.add_argument("--platform", choices=VLLM_PLATFORMS, default="cpu", help="without --url: where vLLM starts")
    servers.add_argument(
        "--vllm", default="", metavar="OPTIONS", help="more options of `vllm serve`, as one quoted string"
    )
    servers.add_argument(
        "--precision", choices=get_args(Precision),
        help="of vLLM's products on a CPU (default: run.precision of the experiment, else auto)",
    )  # fmt: skip
    servers.add_argument("--concurrency", type=positive, help="concurrent requests (default 64 per server)")
    servers.add_argument("--retries", type=int, default=5, help="of a failed request, with growing pauses (default 5)")
    sampling = options.add_argument_group("sampling")
    sampling.add_argument("--samples", type=positive, help="answers per problem (eval@k; default 16)")
    sampling.add_argument("--temperature", type=float, help="default: 0 for eval@1, else 1")
    sampling.add_argument("--top-p", type=float, default=1.0)
    sampling.add_argument("--max-tokens", type=positive, default=2048, help="per answer (default 2048)")
    sampling.add_argument("--seed", type=int, default=0)
    sampling.add_argument(
        "--thinking", choices=("on", "off"), help="enable_thinking of the chat template (default: the template's own)"
    )
    judge = options.add_argument_group("judge")
    judge.add_argument("--experiment", metavar="NAME", help="judge as in training with configs/experiment/NAME.yaml")
    judge.add_argument(
        "--judge", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
        help="override fields of rewards' JudgeSettings",
    )  # fmt: skip
    judge.add_argument(
        "--agents", nargs="+", metavar=("NAME", "agents.KEY=VALUE"),
        help="answer rows for agents in several turns, with the settings of configs/agents/NAME.yaml",
    )  # fmt: skip
    return options


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = parser("evaluate", __doc__)
    options.add_argument("--sampling", choices=get_args(BudgetName), default="eval@1")
    options.add_argument("--budget", type=positive, help="generated tokens per problem (eval@budget)")
    options.add_argument("--k", type=positive, nargs="+", help="report pass@k for these (eval@k; default: --samples)")
    options.add_argument("--entropy", action="store_true", help="estimate the entropy from log-probabilities")
    options.add_argument("--wandb", metavar="PROJECT", help="send the metrics to this project of W&B")
    return options.parse_args(arguments)


def budget_of(options: argparse.Namespace, name: BudgetName, **others: Any) -> Budget:
    """The budget from these options; RequestError if they are incompatible."""
    sampled = name != "eval@1"
    samples = options.samples or (16 if name == "eval@k" else 1)
    temperature = options.temperature if options.temperature is not None else float(sampled)
    shared = {"top_p": options.top_p, "max_tokens": options.max_tokens, "seed": options.seed}
    if options.thinking:
        others["thinking"] = options.thinking == "on"
    try:
        return Budget(name, samples, temperature=temperature, **shared, **others)
    except ValueError as error:
        raise RequestError(str(error)) from None


def judge_settings(name: str | None, texts: Sequence[str]) -> JudgeSettings:
    """Settings of the named experiment (None: the defaults), overridden by `KEY=VALUE` texts with values in YAML.

    Raises:
        RequestError: unknown experiment or key, or invalid value.
    """
    try:
        settings = JudgeSettings.of_experiment(name)
    except ValueError as error:
        raise RequestError(f"--experiment: {error}") from None
    given = {}
    for text in texts:
        key, _, value = text.partition("=")
        if key not in setting_names():
            raise RequestError(f"--judge {text}: unknown setting '{key}'; valid ones: {', '.join(setting_names())}")
        try:
            given[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise RequestError(f"--judge {text}: the value is not YAML") from None
    try:
        return replace(settings, **given)
    except ValueError as error:
        raise RequestError(f"--judge: {error}") from None


def precision_of(options: argparse.Namespace) -> str | None:
    """The precision in which a vLLM on a CPU multiplies; None where none is started on one."""
    if options.url or options.platform != "cpu":
        return None
    chosen = options.precision or experiment_precision(options.experiment)
    return hardware_precision() if chosen == "auto" else chosen


@functools.cache
def experiment_precision(name: str | None) -> Precision:
    """`run.precision` of an experiment that exists; None: the default of all."""
    with initialize_config_module("configs", version_base=None):
        config = compose("train", [f"experiment={name}"] if name else [])
    precision: Precision = config.run.precision
    return precision


def agents_settings(arguments: Sequence[str] | None, problems: Sequence[Problem]) -> AgentsSettings | None:
    """The settings selected by `--agents`; RequestError if they are invalid or no problem is for an agent."""
    if arguments is None:
        return None
    if not any(problem.agent in ENVIRONMENTS for problem in problems):
        raise RequestError(
            "--agents: no row is for an agent; make such rows with python -m data_prep.sources.agents FILE --out FILE"
        )
    try:
        return read_agents(arguments[0], arguments[1:])
    except SettingsError as error:
        raise RequestError(f"--agents: {error}") from None


def local_model(options: argparse.Namespace) -> Path:
    """Folder of the model to start vLLM with; RequestError without one."""
    if not options.model:
        raise RequestError("name a model (--model FOLDER) or servers that serve one (--url http://HOST:PORT)")
    try:
        return model_folder(options.model)
    except ModelError as error:
        raise RequestError(f"--model {options.model}: {error}") from None


@contextlib.contextmanager
def serving(options: argparse.Namespace) -> Iterator[tuple[list[str], str | None]]:
    """URLs of the servers and the model's name there: the given ones, or vLLM's, started for this block."""
    if options.url:
        yield options.url, options.model
        return
    name = str(local_model(options))
    options.out.mkdir(parents=True, exist_ok=True)
    log, more, precision = options.out / "vllm.log", shlex.split(options.vllm), precision_of(options)
    if precision is not None:
        print(precision_note(precision, "--precision"), file=sys.stderr)
    with vllm_servers(name, options.platform, log, more, precision) as urls:
        yield urls, name


def evaluate(options: argparse.Namespace, budget: Budget) -> tuple[EvaluationFolder, list[Problem], list[Sample]]:
    """Collect every sample of an evaluation into its folder.

    Raises:
        DataFileError, FolderError, RequestError, ServerError: with a message for the user; samples judged so far are
            kept.
    """
    judge = judge_settings(options.experiment, options.judge)
    problems = read_data_sets(options.data, options.limit)
    hashes = {name: file_hash(path) for name, path in data_files(options.data).items()}
    agents = agents_settings(options.agents, problems)
    settings = {"sampling": asdict(budget), "judge": judge.record(), "data": hashes, "limit": options.limit}
    settings["agents"] = agents and agents.model_dump()
    if not options.url:
        settings["weights"] = weights_digest(local_model(options))
        if options.thinking and "enable_thinking" not in template_text(local_model(options)):
            raise RequestError(f"--thinking: the chat template of {options.model} has no enable_thinking; omit it")
    settings["precision"] = precision_of(options)
    folder = EvaluationFolder(options.out)
    folder.check(settings, unknown=("model",))  # before a server takes minutes to start
    with serving(options) as (urls, name):
        journal = asyncio.run(_collect(options, folder, settings, problems, budget, judge, agents, urls, name))
    return folder, problems, journal.of(problem.key for problem in problems)


async def _collect(
    options: argparse.Namespace,
    folder: EvaluationFolder,
    settings: dict[str, Any],
    problems: Sequence[Problem],
    budget: Budget,
    judge: JudgeSettings,
    agents: AgentsSettings | None,
    urls: Sequence[str],
    name: str | None,
) -> SampleJournal:
    seconds = max(SECONDS_OF_AN_ANSWER, options.max_tokens / SLOWEST)
    key = os.environ.get("OPENAI_API_KEY", "none")
    endpoints = Endpoints(urls, key=key, retries=options.retries, timeout=seconds)
    try:
        servers = await endpoints.find_model(name)
        files = {dataset: str(path.absolute()) for dataset, path in data_files(options.data).items()}
        journal = folder.begin(settings | {"model": endpoints.model}, servers, files, options.experiment)
        concurrency = options.concurrency or CONCURRENCY * len(urls)
        collector = Collector(endpoints, budget, journal, judge=judge, concurrency=concurrency, agents=agents)
        chains = len(problems) * len(budget.chains)
        state = EvaluationState(chains if budget.budget is None else 0, len(journal.samples))
        stalls = asyncio.create_task(note_stalls(folder.path / "stalled.txt", lambda: len(journal.samples)))
        try:
            with ProgressReporter(journal.path, state, SECONDS_BETWEEN_LINES):
                await collector.collect(problems)
        finally:
            stalls.cancel()
    finally:
        await endpoints.close()
    for url, reason in endpoints.lost.items():
        print(f"warning: {url} was dropped ({reason}); the other servers took over its requests", file=sys.stderr)
    return journal


def summarize(metrics: Metrics) -> dict[str, Any]:
    """Headline metrics of each data set, and counts of samples without verdict over all of them."""
    names = ("accepted@1", "score", "pass_ratio", "exec_success_rate", "recovery_rate")
    return {
        "data_sets": {
            dataset: {"problems": found["problems"], "samples": found["samples"], "errors": found["errors"]}
            | {name: found[name] and found[name]["estimate"] for name in names}
            for dataset, found in metrics.items()
        },
        # NAME/SKILL counts the samples of NAME again.
        "not_judged": sum(found["not_judged"] for name, found in metrics.items() if "/" not in name),
        "prompt_too_long": sum(found["prompt_too_long"] for name, found in metrics.items() if "/" not in name),
    }


def send_to_wandb(project: str, folder: EvaluationFolder, metrics: Metrics) -> None:
    """Log the metrics to one W&B run, flattened to `data set/metric`."""
    import pandas as pd
    import wandb

    flat = pd.json_normalize(metrics, sep="/").to_dict(orient="records")[0]
    with wandb.init(project=project, name=folder.path.name, config=folder.run_info, dir=str(folder.path)) as run:
        run.log({key: value for key, value in flat.items() if isinstance(value, int | float)})


def explain(error: Exception, out: Path) -> int:
    """Print why an evaluation stopped and what it kept; returns the exit status."""
    journal = out / "samples.jsonl"
    if isinstance(error, OSError):
        print(f"stopped: {out} cannot be written: {error.strerror}", file=sys.stderr)
    else:
        print(f"stopped: {error}", file=sys.stderr)
    if journal.exists() and not isinstance(error, FolderError):
        print(f"samples judged so far are in {journal}; the same command resumes from there", file=sys.stderr)
    return FAILED if isinstance(error, OSError | ServerError) else REFUSED


def evaluate_model(model: str | Path, data: Sequence[str], out: Path, *more: str) -> int:
    """Run `recipe.evaluate` in a separate process; returns its exit status."""
    command = [sys.executable, "-m", "recipe.evaluate", "--model", str(model), "--data", *data, "--out", str(out)]
    return subprocess.run([*command, *more]).returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    options = _arguments(arguments)
    try:
        budget = budget_of(options, options.sampling, budget=options.budget, entropy=options.entropy)
        ks = options.k or [budget.samples]
        if budget.name == "eval@k" and max(ks) > budget.samples:
            raise RequestError(f"--k {max(ks)} needs as many --samples, not {budget.samples}")
        folder, problems, samples = evaluate(options, budget)
        metrics = {name: measure(found, budget, ks) for name, found in by_data_set(samples).items()}
        summary = summarize(metrics)
        folder.write_qa(problems, samples, budget.seed)
        folder.finish(metrics, summary)
        if options.wandb:
            send_to_wandb(options.wandb, folder, metrics)
    except (DataFileError, FolderError, RequestError, ServerError, OSError) as error:
        return explain(error, options.out)
    table_console().print(table(metrics))
    print(f"{folder.path}: metrics.json, summary.json, run_info.json, samples.jsonl, qa_logs/")
    for count, reason in (("not_judged", "could not be judged"), ("prompt_too_long", "do not fit into the context")):
        if summary[count]:
            print(f"warning: {summary[count]} samples {reason}; no metric includes them", file=sys.stderr)
    for line in cut_warnings(metrics):
        print(line, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
