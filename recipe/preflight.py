"""Preflight: ``python -m recipe.preflight experiment=NAME key=value ...`` finds in seconds what would fail in an hour.

Takes the arguments of ``recipe.train``, starts only the embedded sandbox, prints each problem and its fix, and exits
non-zero if there is any. ``recipe.train`` runs the same checks before it starts Ray.
"""

import recipe.checks.packages  # refuses packages of other checkouts before their imports fail
import recipe.runtime.quiet  # noqa: F401  (before the stack is imported)

import re  # isort: skip
import sys
from collections.abc import Callable, Iterator

from hydra import compose, initialize_config_module
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from recipe.checks import (
    PreflightFinding,
    asynchronous,
    combinations,
    data,
    engines,
    loggers,
    machine,
    model,
    names,
    packages,
    protocol,
    ray_cluster,
    reward,
    sandbox,
)
from recipe.records.run_directory import RunDirectory, RunDirectoryError
from recipe.settings import SettingsError, did_you_mean, read_settings
from workers.cpu.processor import settle_precision

REFUSED = 2

# In this order: cheap and informative checks first.
CHECKS: dict[str, Callable[[DictConfig, RunDirectory], list[PreflightFinding]]] = {
    "the packages are this checkout's": packages.check,
    "our names are in verl's registries": names.check,
    "optional packages in use are installed": names.check_optional_packages,
    "verl accepts the configuration": combinations.check_rules,
    "the chosen parts of verl are compatible with ours": combinations.check,
    "verl's engines can do what is asked": engines.check,
    "an asynchronous trainer fits the rest": asynchronous.check,
    "the data files can be read and fit the schema": data.check,
    "the reward settings are valid": reward.check_settings,
    "the engine supports weight updates and seeds": machine.check_engine,
    "the protocol's stages can be run": protocol.check,
    "the model folder is complete": model.check,
    "credit can be mapped to the tokenizer's tokens": reward.check_tokenizer,
    "batches divide, memory and disk suffice": machine.check_memory,
    "the loggers have their login": loggers.check,
    "the sandbox can run what the rows need": sandbox.check,
    "the cluster can be reached": ray_cluster.check,
}


def examine(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """All problems found by all checks."""
    return [problem for _, problems in _examine(config, run) for problem in problems]


def _examine(config: DictConfig, run: RunDirectory) -> Iterator[tuple[str, list[PreflightFinding]]]:
    for title, check in CHECKS.items():
        yield title, check(config, run)


def compose_training(overrides: list[str]) -> DictConfig:
    """The configuration that ``recipe.train`` would compose from these arguments.

    Raises:
        SettingsError: an argument names an unknown key, group or file; the message lists the valid ones.
    """
    with initialize_config_module("configs", version_base=None):
        try:
            config = compose("train", overrides)
        except MissingConfigException as error:
            raise SettingsError(str(error)) from None
        except (HydraException, OmegaConfBaseException) as error:
            raise SettingsError(_explain_override(str(error), overrides)) from None
        if OmegaConf.is_missing(config.run, "experiment"):
            available = sorted(path.removesuffix(".yaml") for path in _experiments())
            raise SettingsError(f"no experiment named: add experiment=NAME. Valid: {', '.join(available)}")
    settle_precision(config, "run.precision")
    return config


def _experiments() -> list[str]:
    from importlib.resources import files

    return [entry.name for entry in (files("configs") / "experiment").iterdir() if entry.name.endswith(".yaml")]


def _explain_override(message: str, overrides: list[str]) -> str:
    """Hydra's message, or for an unknown key the nearest valid ones."""
    unknown = re.search(r"Could not override '([^']+)'", message)
    if unknown is None:
        return message
    groups = [override for override in overrides if re.match(r"\w+=", override)]
    node, parent = compose("train", groups), ""
    for part in unknown[1].split("."):
        if not OmegaConf.is_dict(node):
            return f"{unknown[1]}: '{parent}' is a value and has no keys"
        if part not in node:
            valid = did_you_mean(part, [str(name) for name in node])
            return f"there is no key '{part}' in '{parent or 'the configuration'}'. {valid}"
        node, parent = node[part], f"{parent}.{part}".lstrip(".")
    return message


def compose_or_explain(arguments: list[str]) -> None:
    """Exit with one message if these arguments do not compose; leaves Hydra's own flags to Hydra."""
    if any(argument.startswith("-") for argument in arguments):
        return
    try:
        compose_training(arguments)
    except SettingsError as error:
        Console(stderr=True).print(f"refused before training:\n{error}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(REFUSED)


def main(arguments: list[str]) -> int:
    """Print the result of every check; returns the exit status, 0 if all passed."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    console = Console(soft_wrap=True, highlight=False)
    try:
        config = compose_training(arguments)
        settings = read_settings(config)
        run = RunDirectory.prepare(settings.run.root, settings.run.experiment, settings.run.name or "preflight")
    except (SettingsError, RunDirectoryError) as error:
        console.print("[red]refused[/]")
        console.print(f"{error}", markup=False)
        return REFUSED
    OmegaConf.update(config, "run.directory", str(run.path))
    failed = False
    console.print(packages.describe(), markup=False)
    for title, problems in _examine(config, run):
        failed |= bool(problems)
        console.print(f"[{'red' if problems else 'green'}]{'FAILS' if problems else 'ok'}[/] {title}")
        for problem in problems:
            console.print(f"      {problem}", markup=False)
    if not failed:
        console.print(machine.describe(config))
        for line in (*machine.notes(config), *ray_cluster.token_notes(config)):
            console.print(line, markup=False)
    return REFUSED if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
