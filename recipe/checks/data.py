"""Do the data files exist, can they be read, and do their rows follow the schema?"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from data_prep.schema import DataFileError, read_rows, row_model
from data_prep.splits import may_train
from recipe.checks import PreflightFinding
from recipe.records.run_directory import RunDirectory
from recipe.settings import did_you_mean, read_settings
from rewards.environments import ENVIRONMENTS
from rewards.skills import skill_assigner
from workers.skill_metrics import OVER_SKILLS


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Refuse missing or unreadable files, rows that break the schema, rows without a skill, unknown skills and
    verifiers, rows reserved for testing, and too few rows.
    """
    problems: list[PreflightFinding] = []
    rows = {key: _read(config, key, problems) for key in ("train_files", "val_files")}
    names = config.skills.names
    skills = _skills_of(config, rows, problems)
    for key, named in skills.items():
        unknown = named - set(names) if names is not None else set()
        for skill in sorted({*OVER_SKILLS} & named):
            what = f"rows of a skill named {skill!r}, the name of a metric over all skills"
            problems.append(PreflightFinding(what, f"data.{key}", "rename this skill"))
        for skill in sorted(unknown):
            problems.append(
                PreflightFinding(
                    f"rows of the unknown skill {skill!r}. {did_you_mean(skill, list(names))}",
                    f"data.{key}",
                    "name it in skills.names, or use skills=any",
                )
            )
    problems += _without_rows(config, skills)
    problems += _not_for_training(rows["train_files"])
    problems += _without_steps(config, rows["train_files"])
    wanted = config.data.train_batch_size
    if rows["train_files"] and len(rows["train_files"]) < wanted:
        problems.append(
            PreflightFinding(
                f"{len(rows['train_files'])} training rows are fewer than one batch of {wanted}",
                "data.train_batch_size",
                "make more rows, or lower the batch size",
            )
        )
    return problems


def _skills_of(config: DictConfig, rows: dict[str, list[Any]], problems: list[PreflightFinding]) -> dict[str, set[str]]:
    """The skills of each file's rows; none for a file without the named column, or if a user's function fails on a row,
    which is added to the problems."""
    chosen = config.skills
    fields = {key: [row.model_dump() for row in found] for key, found in rows.items()}
    if chosen.by == "column":
        nameless = _without_column(fields, chosen.column)
        problems += nameless.values()
        fields = {key: found for key, found in fields.items() if key not in nameless}
    try:
        skill_of = skill_assigner(chosen.by, chosen.column, chosen.function)
        return {key: set(map(skill_of, found)) for key, found in fields.items()}
    except Exception as error:  # a user's function may raise anything
        problems.append(
            PreflightFinding(f"{type(error).__name__}: {error}", "skills", "fix skills.by, column or function")
        )
        return {}


def _without_column(fields: dict[str, list[dict[str, Any]]], column: str) -> dict[str, PreflightFinding]:
    """A problem for each file with rows in which this column names no skill."""
    problems = {}
    for key, rows in fields.items():
        nameless = [row["extra_info"]["id"] for row in rows if not (isinstance(row.get(column), str) and row[column])]
        if nameless:
            many = f"{len(nameless)} of {len(rows)} rows have no" if len(nameless) < len(rows) else "no row has"
            problems[key] = PreflightFinding(
                f"{many} text in the column {column!r}, which names the skill (for example {nameless[0]})",
                f"skills.column, data.{key}",
                "name an existing column, or choose skills.by=data_source or function",
            )
    return problems


def _without_rows(config: DictConfig, skills: dict[str, set[str]]) -> list[PreflightFinding]:
    """Problems for skills of the protocol, and protected ones, that have no row to train or to validate on."""
    settings = read_settings(config)
    projection = settings.projection
    trained = {skill for stage in settings.stages or [] for skill in stage}
    validated = projection.when == "forgetting" and projection.forgetting_accuracy == "validation"
    watched = set(settings.protected) if validated or projection.protected is not None else set()
    wanted = {"train_files": trained | set(settings.protected), "val_files": trained | watched}
    return [
        PreflightFinding(f"no row of the skill {skill!r}, which protocol or projection names", f"data.{key}",
                "add rows of it, or remove it from skills.names, protocol and projection.protected")
        for key, found in skills.items() if found
        for skill in sorted(wanted[key] - found)
    ]  # fmt: skip


TOOL_AGENT = "tool_agent"  # verl's, which appends to a response what tools answer


def _without_steps(config: DictConfig, rows: list[Any]) -> list[PreflightFinding]:
    loops = {config.actor_rollout_ref.rollout.agent.default_agent_loop, *(row.agent_name for row in rows)}
    if config.credit.kind == "off" or TOOL_AGENT not in loops:
        return []
    return [
        PreflightFinding(
            f"credit cannot distinguish the answers of {TOOL_AGENT}'s tools from the policy's own steps",
            "credit, agent_name in data.train_files or actor_rollout_ref.rollout.agent.default_agent_loop",
            f"credit=off, or agents {', '.join(ENVIRONMENTS)}",
        )
    ]


def _not_for_training(rows: list[Any]) -> list[PreflightFinding]:
    """Refuse rows that are reserved for model selection or testing, such as HumanEval's: they void results."""
    ids = [row.extra_info.id for row in rows if not may_train(row.extra_info.id, _role(row))]
    if not ids:
        return []
    message = f"{len(ids)} rows may not be trained on, for example {', '.join(ids[:3])}"
    return [
        PreflightFinding(
            message, "data.train_files", "train on files with role train; these rows belong in data.val_files"
        )
    ]


def _role(row: Any) -> str | None:
    return (row.extra_info.model_extra or {}).get("role")


def _read(config: DictConfig, key: str, problems: list[PreflightFinding]) -> list[Any]:
    value = config.data.get(key)
    paths = list(value) if isinstance(value, ListConfig) else [value]
    rows: list[Any] = []
    for path in paths:
        if not path:
            problems.append(PreflightFinding("no data file is named", f"data.{key}", f"data.{key}=FILE.parquet"))
            continue
        try:
            rows += read_rows(Path(path).expanduser(), row_model(config.skills.by, config.skills.column))
        except DataFileError as error:
            problems.append(PreflightFinding(str(error), f"data.{key}", "fix or make the file, then start again"))
    return rows
