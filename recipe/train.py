"""Train a model: ``python -m recipe.train experiment=NAME key=value ...``.

Composes the configuration, refuses what cannot work, and hands over to verl. ``run.name=NAME`` of an earlier run
resumes it from its last checkpoint. With ``--multirun``, each of several comma-separated values gets its own run, one
after the other; finished runs are skipped (docs/reference/skill_safe.md).
"""

import recipe.checks.packages  # refuses packages of other checkouts before their imports fail
import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import contextlib  # isort: skip
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hydra
import ray
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, open_dict
from rich.console import Console
from rich.table import Table

from recipe.checks import machine
from recipe.checks.model import remember
from recipe.preflight import compose_or_explain, examine
from recipe.records.run_directory import RunDirectory, RunDirectoryError
from recipe.records.tables import table_console
from recipe.runtime import TERMINATED
from recipe.runtime.console import ProgressReporter, TrainingState, program
from recipe.runtime.death_watch import ending_when_a_process_dies
from recipe.runtime.left_weights import remove_left_weights
from recipe.runtime.ray_session import (
    ClusterError,
    claim_own_ray,
    on_this_node,
    processor_environment,
    ray_address,
    session_logs,
    start_ray,
)
from recipe.runtime.stop_request import RunStopped, stopping_on_sigterm
from recipe.runtime.sweep import in_multirun, run_job
from recipe.runtime.visible import say
from recipe.settings import Settings, SettingsError, read_settings
from workers.cpu.processor import processor, settle_precision
from workers.ranks import RUN_FOLDER, reports_file

REFUSED, FAILED, INTERRUPTED = 2, 1, 128 + signal.SIGINT


def prepare(config: DictConfig) -> tuple[Settings, RunDirectory]:
    """Check the configuration; returns typed settings and the run's directory, which it adds to the configuration.

    Raises:
        SettingsError, RunDirectoryError: with a message for the user.
    """
    settings = read_settings(config)
    make_paths_absolute(config)
    run = RunDirectory.prepare(config.run.root, settings.run.experiment, settings.run.name)
    with open_dict(config):
        config.run.name = run.path.name
        config.run.directory = str(run.path)
        config.run.command = shlex.join([*program("train").split(), *sys.argv[1:]])
    set_steps(config, settings)
    problems = examine(config, run)
    if problems:
        why = "\n".join(str(problem) for problem in problems)
        run.refuse(why)
        raise SettingsError(why)
    return settings, run


def set_steps(config: DictConfig, settings: Settings) -> None:
    """Set the steps of a protocol with stages, and enough epochs for them."""
    if settings.stages is not None:
        steps = len(settings.stages) * settings.protocol.stage_steps
        config.trainer.total_training_steps = steps
        config.trainer.total_epochs = max(config.trainer.total_epochs, steps)


def make_paths_absolute(config: DictConfig) -> None:
    """Resolve relative paths from where the user typed them, because Ray workers and jobs run in other folders.

    ``SKILLCREDIT_HOME`` is that folder if it is not the working directory (scripts/ray_submit.sh sets it). A model path
    without such a folder is a hub name and stays as it is.
    """
    home = Path(os.environ.get("SKILLCREDIT_HOME", ".")).absolute()
    config.run.root = str(home / config.run.root)
    for key in ("train_files", "val_files"):
        value = config.data.get(key)
        if value:
            config.data[key] = (
                [str(home / path) for path in value] if isinstance(value, ListConfig) else str(home / value)
            )
    for model in (config.actor_rollout_ref.model, config.critic.model):
        if model.path and (home / model.path).exists():
            model.path = str(home / model.path)


def train(config: DictConfig, settings: Settings, run: RunDirectory) -> None:
    """Run verl's main loop for this configuration; returns when training is done, raises on failure."""
    from verl.trainer.main_ppo import run_ppo

    from recipe.records.experiment_page import source_commit, update_report
    from recipe.records.skill_record import update_skill_report
    from recipe.training.task_runner import SkillCreditTaskRunner

    weights = remember(config, run)["weights"]
    threads = processor_environment(config).get("OMP_NUM_THREADS")  # as the model, it decides how sums are rounded
    kind = processor() + (f", threads: {threads}" if threads else "")
    run.log_event("start", command=config.run.command, commit=source_commit(), weights=weights, processor=kind)
    run.write_config(config)
    os.environ[RUN_FOLDER] = str(run.path)  # for this process; Ray's workers get it with theirs
    if (reports := reports_file()) is not None:
        reports.unlink(missing_ok=True)  # of an earlier start
    with ProgressReporter(run.path / "events.jsonl", TrainingState(), settings.run.line_every_seconds):
        try:
            start_ray(config, run)
            link_logs(run)
            run.log_event("build")
            job = ray.get_runtime_context().get_job_id()
            with stopping_on_sigterm(run), ending_when_a_process_dies(session_logs(), job):
                run_ppo(config, on_this_node(SkillCreditTaskRunner))
        finally:
            keep_logs(run)
            ray.shutdown()
            if ray_address(config) == "local":
                remove_left_weights()
    update_report(run)
    update_skill_report(run, settings)
    run.log_event("end")


def link_logs(run: RunDirectory) -> None:
    """Link ``logs/ray`` to the live output of the Ray workers; the link dangles once Ray removes its folder."""
    folder = session_logs()
    link = run.path / "logs" / "ray"
    link.unlink(missing_ok=True)
    if folder is not None:
        link.symlink_to(folder)


def keep_logs(run: RunDirectory) -> None:
    """Copy the output of the Ray workers into the run directory, because all runs share Ray's folder.

    What cannot be copied, as to a full disk, is printed only: a run that failed shall end with its own error.
    """
    folder = session_logs() if ray.is_initialized() else None
    if folder is None:
        return
    try:
        for file in folder.glob("worker-*"):
            if file.stat().st_size:
                shutil.copyfile(file, run.path / "logs" / file.name)
    except OSError as error:
        print(f"the output of the workers stays in {folder}: {error.strerror} in {run.path / 'logs'}", file=sys.stderr)


def announce(run: RunDirectory, command: str, console: Console) -> None:
    """Print the run's folder and the command that resumes it: the original one with the run's name."""
    arguments = [argument for argument in shlex.split(command) if not argument.startswith("run.name=")]
    again = shlex.join([*arguments, f"run.name={run.path.name}"])
    say(console, f"run directory: {run.path}")
    say(console, f"to resume it after a stop: {again}")


def report_failure(run: RunDirectory, error: Exception, console: Console) -> None:
    """Print why a run failed, its last checkpoint, and where its logs are."""
    with contextlib.suppress(OSError):  # a full disk is one of the reasons
        run.log_event("failed", error=f"{type(error).__name__}: {error}")
    cause = getattr(error, "cause", None) or error
    say(console, f"the run failed: {type(cause).__name__}: {cause}")
    if run.last_checkpoint is not None:
        console.print(f"its last checkpoint, of step {run.last_checkpoint}, is complete: the run can resume from there")
    say(console, f"output of every process: {run.path / 'logs'}")


def write_page(run: RunDirectory, console: Console) -> None:
    """Write the run's page and print where it is. An error is printed only: recipe.report can write the page later."""
    if not (run.path / "config.yaml").exists():
        return  # it failed before its records began
    try:
        from recipe.pages.run_page import write_run_page

        say(console, f"its page: {write_run_page([run])}")
    except Exception as error:
        say(console, f"its page could not be written: {type(error).__name__}: {error}")


def print_result(run: RunDirectory, console: Console) -> None:
    """Print the table of skills before and after, what the run's health looks like, and where the results are."""
    from recipe.doctor import diagnose
    from recipe.records.experiment_page import skill_table

    table = Table("skill", "before", "after", "change (points)", title="sampled accuracy on validation prompts")
    for row in skill_table(run):
        table.add_row(row.skill, f"{row.before:.1%}", f"{row.after:.1%}", row.points)
    if table.row_count:  # a run without validations has no rows
        console.print(table)
    try:
        health = diagnose(run.path, time.time())[0]
    except Exception as error:  # the run has finished whatever its health looks like
        health = f"its health could not be read: {type(error).__name__}: {error}"
    say(console, health)
    console.print("  EXPERIMENT.md, plots/learning_curve.png, skills/, metrics.jsonl, checkpoints/")
    write_page(run, console)


def status_of(work: Callable[[], None], run: RunDirectory, errors: Console) -> int:
    """The exit status of the run's work: 0 if it finished; otherwise the cause is recorded and printed."""
    try:
        work()
    except ClusterError as error:
        run.log_event("failed", error=f"refused before training: {error}")
        say(errors, f"refused before training:\n{error}")
        status = REFUSED
    except RunStopped as stopped:
        _note_stop(run, str(stopped))
        say(errors, f"the run stopped: {stopped}; the command above resumes it")
        status = TERMINATED
    except KeyboardInterrupt:
        last = run.last_checkpoint
        kept = "without a checkpoint" if last is None else f"its last checkpoint is of step {last}"
        _note_stop(run, f"it was interrupted (SIGINT), {kept}")
        say(errors, f"the run was interrupted, {kept}; the command above resumes it")
        status = INTERRUPTED
    except Exception as error:
        report_failure(run, error, errors)
        status = FAILED
    else:
        return 0
    write_page(run, errors)
    return status


def _note_stop(run: RunDirectory, reason: str) -> None:
    with contextlib.suppress(OSError):  # a full disk may be why
        run.log_event("stopped", reason=reason)


@hydra.main(version_base=None, config_path="pkg://configs", config_name="train")
def main(config: DictConfig) -> None:
    console, errors = table_console(), Console(stderr=True)
    settle_precision(config, "run.precision")
    try:
        if in_multirun():
            run_job(config, HydraConfig.get().overrides.task)
            return
        settings, run = prepare(config)
        claim_own_ray(config)
    except (SettingsError, RunDirectoryError, ClusterError) as error:
        say(errors, f"refused before training:\n{error}")
        sys.exit(REFUSED)
    announce(run, config.run.command, console)
    for note in machine.notes(config):
        say(console, note)
    if status := status_of(lambda: train(config, settings, run), run, errors):
        sys.exit(status)
    print_result(run, console)


if __name__ == "__main__":
    compose_or_explain(sys.argv[1:])
    main()
