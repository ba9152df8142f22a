"""The steps that studies share. Each is shown before it runs; with DRY_RUN=1 it is only shown.

A folder of results keeps what it was made with (`recipe.studies.manifest`): a step that finds something else there is
refused, and what an earlier run finished is used.
"""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TextIO, TypeVar

from data_prep.made_from import MadeFiles, MadeFilesError, alone
from recipe.checks.model import ModelError, model_folder, opens_thinking
from recipe.runtime import TERMINATED
from recipe.runtime.options import KeptOptions, Options
from recipe.runtime.stop_request import passing_sigterm_on
from recipe.runtime.supervised_folder import last_model
from recipe.studies import manifest
from recipe.studies.files import ROWS, config_files, judge_files, left_out_rows, stated

REFUSED = 2
CONFIGS = Path("configs")
"""A study runs in the project's folder; relative, as its claims show files."""


class Stopped(Exception):
    """A study cannot continue: why and how to fix it, and the exit status."""

    def __init__(self, why: str, status: int = REFUSED):
        super().__init__(why)
        self.status = status


class CommandFailed(Stopped):
    """A command ended with a status other than 0; it printed the reason."""


@dataclass(frozen=True)
class MadeWith:
    """What a folder of results is made with: models, files and settings by name."""

    folder: str
    models: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = (("--model", self.models), ("--data", self.data), ("--set", self.settings))
        named = [(option, [f"{name}={value}" for name, value in found.items()]) for option, found in kinds if found]
        return shlex.join([self.folder, *(word for option, pairs in named for word in (option, *pairs))])


Given = TypeVar("Given", bound=Options, covariant=True)


@dataclass
class Steps(Generic[Given]):
    """Runs or shows a study's steps. Given: the options that the study declares.

    study: what all of them share; claimed before each. environment: further variables of their commands.
    failed: status of the last multirun in which a run failed.
    """

    options: Given
    study: MadeWith | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    failed: int = 0

    @property
    def dry(self) -> bool:
        return bool(self.options.dry_run)

    @property
    def python(self) -> str:
        return self.options.python or os.path.relpath(sys.executable)

    @property
    def platform(self) -> str:
        return self.options.platform or "cpu"

    @property
    def on_gpus(self) -> bool:
        return self.platform != "cpu"

    @property
    def serving(self) -> str:
        """The platform of commands that start vLLM alone."""
        return "gpu" if self.on_gpus else "cpu"

    @property
    def thinking(self) -> list[str]:
        """The option of evaluation and probe for THINKING."""
        return ["--thinking", self.options.thinking] if self.options.thinking else []

    @property
    def template_overrides(self) -> list[str]:
        """The override of a training for THINKING."""
        switch = {"on": "true", "off": "false"}.get(self.options.thinking)
        return [f"+data.apply_chat_template_kwargs.enable_thinking={switch}"] if switch else []

    def changed(self, **options: str) -> "Steps[Given]":
        """Steps of another study, with other options."""
        return Steps(replace(self.options, **options), environment=self.environment)

    def with_environment(self, **variables: str) -> "Steps[Given]":
        """The same steps, whose commands get further variables."""
        return replace(self, environment={**self.environment, **variables})

    def run(self, *command: str) -> None:
        """Show a command and run it, its output on the error stream; CommandFailed unless it ends well."""
        _show(command)
        if self.dry:
            return
        self._start(command, sys.stderr)

    def module(self, name: str, *arguments: str) -> None:
        """`python -m name arguments`, as `run`."""
        self.run(self.python, "-m", name, *arguments)

    def attempt(self, name: str, *arguments: str) -> bool:
        """As `module`, but the study outlives one that fails: it prints and counts it. Whether it ended well."""
        try:
            self.module(name, *arguments)
        except CommandFailed as error:
            if error.status == TERMINATED:
                raise  # it was asked to stop
            say(f"{error}; the study continues")
            self.failed = error.status
            return False
        return True

    def answer(self, name: str, *arguments: str) -> str:
        """What `python -m name arguments` prints; "" in a dry run."""
        if self.dry:
            return ""
        command = (self.python, "-m", name, *arguments)
        _show(command)
        return self._start(command, subprocess.PIPE).strip()

    def _start(self, command: Sequence[str], output: int | TextIO) -> str:
        try:
            process = subprocess.Popen(command, stdout=output, env=os.environ | self.environment, text=True)
        except OSError as error:
            raise Stopped(f"cannot start {command[0]}: {error.strerror}") from error
        try:
            with passing_sigterm_on(process) as asked:
                answer, _ = process.communicate()
        except KeyboardInterrupt:
            process.wait()  # the terminal interrupts the command, too, which may have something to save
            raise
        if asked:  # however the command ended: nothing else begins
            raise CommandFailed(f"{' '.join(command[:3])}: asked to stop", TERMINATED)
        if process.returncode:
            raise _failure(" ".join(command[:3]), process.returncode)
        return answer or ""

    def serve(self, *command: str, all_gpus: bool = True) -> None:
        """Run a command that starts vLLM: here, or where the Ray cluster has a free GPU, or all that are free there."""
        elsewhere = (self.python, "-m", "recipe.cluster", "run", *(["--all-gpus"] if all_gpus else []))
        self.run(*(elsewhere if self.platform == "gpu_ray" else ()), *command)

    def need(self, path: str, first: str) -> None:
        """Stop when a stage is started without the one before."""
        if not self.dry and not Path(path).exists():
            raise Stopped(f"no {path}; first {first}")

    def have(self, result: str, file: str = "") -> bool:
        """Is a result of an earlier run there? file: in it, written last. If so, say that it is used."""
        if found := Path(result, file).exists():
            say(f"using {result} of an earlier run")
        return found

    def claim(self, made_with: MadeWith | None = None) -> None:
        """Record what the study, and one folder of it, is made with; Stopped if it was made with something else."""
        for one in (self.study, made_with):
            if one is not None:
                self.claim_folder(one)

    def claim_folder(self, made_with: MadeWith) -> None:
        """`claim` for one folder."""
        say(f"# claim {made_with}")
        if self.dry:
            return
        files = {name: Path(path) for name, path in made_with.data.items()}
        try:
            manifest.claim(Path(made_with.folder), made_with.models, files, made_with.settings)
        except (manifest.StudyError, OSError) as error:
            raise Stopped(str(error)) from error

    def make(self, files: MadeFiles, run: Callable[[], None]) -> None:
        """Make files by `run` unless the present code and inputs made them.

        Stopped if they are not as their command left them.
        """
        try:
            if self.dry:
                # A dry run finds neither the inputs that earlier steps would make, nor refuses anything.
                with suppress(MadeFilesError, OSError):
                    if files.mark.exists() and files.are_made():
                        return
                run()
                return
            with alone(files.folder, files.folder / ".lock"):
                files.make(run)
        except (MadeFilesError, OSError) as error:
            raise Stopped(str(error)) from error

    def make_rows(self, folder: str, module: str, *options: str, files: tuple[str, ...] = ROWS) -> None:
        """Make the rows of a folder by a module of data_prep; a folder made with other options is refused.

        files: patterns of what the module writes.
        """
        made = f"{module.removeprefix('sources.')} {' '.join(options)}"
        self.claim_folder(MadeWith(folder, settings={"made": made}))
        command = (f"data_prep.{module}", "--out", folder, *options)
        rows = MadeFiles(
            Path(folder), "rows", files, command, command[:1], (*judge_files(options), *left_out_rows(options))
        )
        self.make(rows, lambda: self.module(*command))

    def local_model(self, model: str) -> str:
        """The folder of a model; of a hub's name that of its snapshot."""
        if self.dry:
            return model
        try:
            return str(model_folder(model))
        except ModelError as error:
            raise Stopped(str(error)) from error

    def opens_thinking(self, model: str) -> bool:
        """Whether a model's chat template ends a prompt with `<think>`; False in a dry run without the model."""
        return Path(model).is_dir() and opens_thinking(Path(model), self.options.thinking)

    def with_length(self, experiment: str) -> "Steps[Given]":
        """Steps with the answer length of an experiment's file, unless the user named one."""
        given = self.options
        if any(word in one for one in (given.train, given.evaluate, given.probe) for word in _LENGTHS):
            raise Stopped("the answer length is stated once, for training and evaluations: LENGTH=TOKENS")
        return self if given.length else self.changed(length=_answer_length(experiment))

    def evaluate(self, experiment: str, model: str, out: str, data: Mapping[str, str], *options: str) -> None:
        """Evaluate a model as the experiment judges it."""
        given = self.options
        how = ["--experiment", experiment, "--max-tokens", given.length, *self.thinking]
        settings = {"evaluate": f"{' '.join(how)} {' '.join(options)} {given.evaluate}"}
        self.claim(MadeWith(out, {"model": model}, {**data, **_files(experiment)}, settings))
        if self.have(out, "metrics.json"):
            return
        files = [f"{name}={path}" for name, path in data.items()]
        self.serve(
            self.python, "-m", "recipe.evaluate", "--model", model, "--platform", self.serving,
            "--out", out, "--data", *files, *how, *options, *given.evaluate.split(),
        )  # fmt: skip

    def grpo(self, experiment: str, model: str, name: str, *overrides: str) -> None:
        """Train a run, and export its model to outputs/EXPERIMENT/NAME/model."""
        given, folder = self.options, f"outputs/{experiment}/{name}"
        length = " ".join([f"data.max_response_length={given.length}", *self.template_overrides])
        files = [one for one in overrides if one.startswith(("data.train_files=", "data.val_files="))]
        settings = " ".join(one for one in overrides if one not in files)
        data = _files(experiment)
        for one in files:
            data |= files_in(one)
        self.claim(MadeWith(folder, {"start": model}, data, {"train": f"{length} {settings} {given.train}"}))
        if self.have(f"{folder}/model"):
            return
        self._train((), experiment, model, name, *overrides)
        self.export(folder)

    def export(self, run: str) -> None:
        """Export a run's last checkpoint to RUN/model."""
        self.serve(
            self.python, "-m", "recipe.export", run, "--out", f"{run}/model", "--platform", self.serving,
            *self.options.export.split(), all_gpus=False,
        )  # fmt: skip

    def grpo_runs(self, experiment: str, model: str, name: str, *overrides: str) -> None:
        """Train, as `grpo`, a run for each of the overrides' values; name: of the runs, built from them."""
        self._multirun(lambda: self._train(("--multirun",), experiment, model, name, *overrides))

    def _train(self, how: Sequence[str], experiment: str, model: str, name: str, *overrides: str) -> None:
        given = self.options
        one_machine = () if self.on_gpus or experiment in _MADE_FOR_A_CPU else _ONE_MACHINE
        self.module(
            "recipe.train", *how, f"experiment={experiment}", f"platform={self.platform}",
            f"actor_rollout_ref.model.path={model}", f"run.name={name}", f"data.max_response_length={given.length}",
            *one_machine, *self.template_overrides, *overrides, *given.train.split(),
        )  # fmt: skip

    def settle(self, experiment: str, model: str, name: str, *overrides: str) -> None:
        """CommandFailed if a finished run has other settings than `grpo` would give it.

        name: of the run, built from its overrides, as a multirun needs it.
        """
        self._train(("--multirun",), experiment, model, name, *overrides)

    def micro_start(self, *options: str) -> None:
        """Make the environment, the micro suite and its starting model. options: of recipe.micro_start."""
        self.run("bash", "scripts/setup.sh", self.serving)
        self.run("bash", "scripts/micro_start.sh", *options)

    def multirun(self, *overrides: str) -> None:
        """A run for each of the overrides' values; one that fails stops neither the others nor the study."""
        platform = [f"platform={self.platform}"] if self.on_gpus else []
        arguments = ("--multirun", *platform, *overrides, *self.options.train.split())
        self._multirun(lambda: self.module("recipe.train", *arguments))

    def _multirun(self, run: Callable[[], None]) -> None:
        self.claim()
        try:
            run()
        except CommandFailed as error:
            if error.status == TERMINATED:
                raise  # it was asked to stop
            self.failed = error.status

    def take_kept(self: "Steps[KeptOptions]", folder: str) -> None:
        """Count the runs of the file KEPT, made on an earlier machine, as done."""
        if self.options.kept and Path(self.options.kept).exists():
            self.module("recipe.keep", self.options.kept, folder)

    def keep_runs(self: "Steps[KeptOptions]", folder: str, *names: str) -> None:
        """Add what tables need of finished runs to the file KEPT. names: of the runs; none: all in the folder."""
        if self.options.kept:
            self.module("recipe.keep", folder, self.options.kept, *(("--runs", *names) if names else ()))


def _failure(command: str, status: int) -> CommandFailed:
    """status: as Popen has it, negative for a signal; a shell's 128 + signal in the error."""
    if status > 0:
        return CommandFailed(f"{command} ended with status {status}", status)
    hint = ", often for lack of memory" if status == -signal.SIGKILL else ""
    return CommandFailed(f"{command} was killed by {signal.Signals(-status).name}{hint}", 128 - status)


def say(text: str) -> None:
    """Print a line for the user; the standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def files_in(override: str) -> dict[str, str]:
    """The files of `data.train_files=[A,B]` by name: data.train1, data.train2."""
    key, _, files = override.partition("=")
    parts = files.strip("[]").split(",")
    return {f"{key.partition('_')[0]}{number}": path for number, path in enumerate(parts, 1)}


def last_checkpoint(folder: str) -> str:
    """The Hugging Face folder of the last step; a pattern in a dry run, which has none."""
    return str(last_model(Path(folder)) or f"{folder}/global_step_*/huggingface")


# A second place that states the answer length.
_LENGTHS = ("max_response_length", "--max-tokens")
_MADE_FOR_A_CPU = ("quickstart", "pretrained")
# Without a GPU there is no sequence parallelism, and micro-batches are counted, not filled by tokens.
_ONE_MACHINE = (
    "actor_rollout_ref.actor.ulysses_sequence_parallel_size=1",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
)


def _show(command: Sequence[str]) -> None:
    say(f"+ {' '.join(map(_quoted, command))}")


def _quoted(word: str) -> str:
    """A word as bash reads it, on one line."""
    if "\n" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def _files(experiment: str) -> dict[str, str]:
    """The experiment's file and those that it inherits, by name."""
    inherited = config_files(f"experiment/{experiment}", CONFIGS)[1:]
    named = {str(path.relative_to(CONFIGS).with_suffix("")): str(path) for path in inherited}
    return {"experiment": f"{CONFIGS}/experiment/{experiment}.yaml"} | named


def _answer_length(experiment: str) -> str:
    path = CONFIGS / f"experiment/{experiment}.yaml"
    if not path.exists():
        raise Stopped(
            f"no {path}; valid experiments: {', '.join(sorted(one.stem for one in path.parent.glob('*.yaml')))}"
        )
    if found := stated(experiment, "data.max_response_length", CONFIGS):
        return str(found)
    raise Stopped(f"{path} has no data.max_response_length: name it, LENGTH=TOKENS")
