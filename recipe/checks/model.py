"""Is the model folder complete, and do model and training data match the checkpoint of a resumed run?

And where is the folder of a model that is given by a hub name?
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from data_prep.pretrained.folders import WEIGHTS
from recipe.checks import PreflightFinding
from recipe.records.digests import data_digest, weights_digest
from recipe.records.run_directory import RunDirectory, write_atomically
from recipe.records.versions import CHECKPOINT_VERSION
from recipe.records.versions import KEY as VERSION_KEY

# Importing vLLM takes seconds, so it is queried only about other sizes.
COMMON_HEAD_SIZES = (32, 64, 96, 128)

KEY = "actor_rollout_ref.model.path"


def check(config: DictConfig, run: RunDirectory) -> list[PreflightFinding]:
    """Require a model configuration, a tokenizer with a chat template and weights; a checkpoint must match the model.

    A path that is not a local folder is treated as a hub name and left to transformers.
    """
    folder = Path(config.actor_rollout_ref.model.path).expanduser()
    if not folder.is_dir():
        return [*_check_hub_name(str(config.actor_rollout_ref.model.path)), *_check_continued(config, run, folder)]
    problems = [*_check_files(folder)]
    if not problems:
        problems += [*_check_tokenizer(folder), *_check_head_size(config, folder)]
        problems += [PreflightFinding(*found) for found in left_out_of(folder, config.actor_rollout_ref.model)]
    problems += _check_continued(config, run, folder)
    return problems


def fingerprint(config: DictConfig) -> dict[str, str | int]:
    """Properties that must agree between a checkpoint and the run that loads it."""
    folder = Path(config.actor_rollout_ref.model.path).expanduser()
    source = folder / "config.json"
    architecture = source.read_bytes() if source.exists() else str(folder).encode()
    return {
        "architecture": hashlib.sha256(architecture).hexdigest()[:16],
        "lora_rank": int(config.actor_rollout_ref.model.lora_rank),
        "ranks": int(config.trainer.nnodes * config.trainer.n_gpus_per_node),
        "weights": weights_digest(folder),
        "data": data_digest(config.data.train_files),
    }


def remember(config: DictConfig, run: RunDirectory) -> dict[str, str | int]:
    """Write the fingerprint and its version next to the checkpoints; returns the fingerprint."""
    kept = fingerprint(config)
    write_atomically(run.checkpoints / "model.json", json.dumps({VERSION_KEY: CHECKPOINT_VERSION} | kept))
    return kept


def gguf_fix(name: str) -> str:
    """The command that makes a folder from a GGUF file."""
    return f"first make a folder: python -m data_prep.pretrained --source {name} --out FOLDER"


def _check_hub_name(name: str) -> list[PreflightFinding]:
    if name.lower().endswith(".gguf"):
        return [PreflightFinding(f"{name} is a GGUF file, not a model folder", KEY, gguf_fix(name))]
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        return [
            PreflightFinding(
                f"no such model folder: {name}", KEY, "name a Hugging Face folder, or a hub name (owner/model)"
            )
        ]
    return []


def missing_parts(folder: Path) -> list[str]:
    """The missing parts of a Hugging Face model folder, as text."""
    wanted = {
        "no config.json": ["config.json"],
        "no tokenizer (tokenizer.json or tokenizer_config.json)": ["tokenizer.json", "tokenizer_config.json"],
        f"no weights ({' or '.join(WEIGHTS)})": list(WEIGHTS),
    }
    return [
        f"{what} in {folder}"
        for what, patterns in wanted.items()
        if not any(list(folder.glob(pattern)) for pattern in patterns)
    ]


def _check_files(folder: Path) -> list[PreflightFinding]:
    fix = "save the model and its tokenizer there with save_pretrained"
    return [PreflightFinding(what, KEY, fix) for what in missing_parts(folder)]


def _check_tokenizer(folder: Path) -> list[PreflightFinding]:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:
        return [
            PreflightFinding(f"the tokenizer in {folder} does not load: {error}", KEY, "save the tokenizer there again")
        ]
    if tokenizer.chat_template is None:
        return [
            PreflightFinding(
                f"the tokenizer in {folder} has no chat template",
                KEY,
                "set actor_rollout_ref.model.custom_chat_template",
            )
        ]
    return []


def template_text(folder: Path) -> str:
    """The files of a model folder that may hold its chat template; empty without one."""
    files = [*folder.glob("chat_template.*"), *folder.glob("additional_chat_templates/*")]
    return "\n".join(file.read_text() for file in [*files, *folder.glob("tokenizer_config.json")])


def has_chat_template(folder: Path) -> bool:
    """Whether the files of a model folder hold a chat template."""
    settings = folder / "tokenizer_config.json"
    return any(folder.glob("chat_template.*")) or (settings.exists() and "chat_template" in settings.read_text())


def opens_thinking(folder: Path, thinking: str = "") -> bool:
    """Whether the chat template opens the thinking part (`<think>`) of an answer; thinking: on, off or the default.

    False for a tokenizer that does not load, which preflight reports.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    except Exception:
        return False
    if tokenizer.chat_template is None:
        return False
    chosen = {"enable_thinking": thinking == "on"} if thinking else {}
    question = [{"role": "user", "content": "?"}]
    text = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False, **chosen)
    return str(text).rstrip().endswith("<think>")


def _check_head_size(config: DictConfig, folder: Path) -> list[PreflightFinding]:
    """vLLM on a CPU has kernels for some head sizes only, and fails on others when it generates."""
    if config.trainer.device != "cpu":
        return []
    shape = json.loads((folder / "config.json").read_text())
    size = shape.get("head_dim") or shape["hidden_size"] // shape["num_attention_heads"]
    if size in COMMON_HEAD_SIZES:
        return []
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    valid = CPUAttentionBackend.get_supported_head_sizes()
    if size in valid:
        return []
    what = f"vLLM on a CPU has no attention for heads of size {size}"
    return [PreflightFinding(what, KEY, f"use a model with one of {', '.join(map(str, valid))}")]


def left_out_of(folder: Path, model: DictConfig) -> list[tuple[str, str, str]]:
    """Parts of the architecture that the chosen kernels would leave out: what, the key, how to fix it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from workers.cpu.architecture import beyond_fast_head, beyond_packed_attention
    from workers.cpu.attention import NAME

    packed = (model.get("override_config") or {}).get("attn_implementation") == NAME
    fused = model.get("use_fused_kernels") and model.get("use_remove_padding")
    if not packed and not fused:
        return []
    try:
        with torch.device("meta"):
            built = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    except Exception:  # of an architecture that transformers does not know: left to the engine
        return []
    left_out = []
    if fused and (lacking := beyond_fast_head(built)):
        fix = "set use_fused_kernels=false in the model's group, or use another model"
        left_out.append((f"the fused kernels do not compute {', '.join(lacking)}", KEY, fix))
    if packed and (lacking := beyond_packed_attention(built)):
        settings = "use_fused_kernels=false use_remove_padding=false override_config.attn_implementation=eager"
        fix = f"set {settings} in the model's group, or use another model"
        left_out.append((f"attn_implementation={NAME} does not compute {', '.join(lacking)}", KEY, fix))
    return left_out


def _check_continued(config: DictConfig, run: RunDirectory, folder: Path) -> list[PreflightFinding]:
    file = run.checkpoints / "model.json"
    if run.last_checkpoint is None or not file.exists():
        return []
    before, now = json.loads(file.read_text()), fingerprint(config)
    version = before.pop(VERSION_KEY, 1)
    if version != CHECKPOINT_VERSION or before.keys() != now.keys():
        what = (
            f"{file} has version {version} with the keys {', '.join(before)}; this release reads version "
            f"{CHECKPOINT_VERSION} with the keys {', '.join(now)}"
        )
        return [PreflightFinding(what, str(run.checkpoints), "start a new run, or use the release that wrote it")]
    explained = {
        "architecture": f"the checkpoint is of another model than {folder}",
        "weights": f"the checkpoint was trained from weights other than those in {folder}",
        "data": "the checkpoint was trained on other rows than those in data.train_files",
        "lora_rank": f"the checkpoint has LoRA rank {before['lora_rank']}, the configuration {now['lora_rank']}",
        "ranks": f"the checkpoint was written by {before['ranks']} ranks, the configuration has {now['ranks']}",
    }
    return [
        PreflightFinding(
            what, str(run.checkpoints), "start a new run (omit run.name), or use the settings of the old one"
        )
        for key, what in explained.items()
        if before[key] != now[key]
    ]


# The same weights in the formats of other programs.
OTHER_FORMATS = ["*.gguf", "*.h5", "*.msgpack", "*.onnx", "*.pth", "onnx/*", "original/*"]


class ModelError(ValueError):
    """There is no such model; the message addresses the user."""


def model_folder(name: str) -> Path:
    """Folder with configuration, tokenizer and weights of a model, from its folder or hub name.

    For a hub name (``owner/model``), it is the snapshot in the Hugging Face cache (``HF_HOME``), downloaded if missing;
    commands that get this folder all read the same weights. On a cluster the cache must be on storage shared by all
    nodes.

    Raises:
        ModelError: there is no such folder or hub model, or the folder is incomplete.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _snapshot(name)
    if missing := missing_parts(folder):
        raise ModelError(f"no complete model: {'; '.join(missing)}")
    return folder


def described_model(name: str) -> str:
    """A folder with the `config.json` of a model: of a hub name without its weights. ModelError as `model_folder`."""
    return name if Path(name).expanduser().is_dir() else str(_snapshot(name, ["config.json"]))


def _snapshot(name: str, files: list[str] | None = None) -> Path:
    if name.lower().endswith(".gguf"):
        raise ModelError(f"{name} is a GGUF file, not a model folder; {gguf_fix(name)}")
    if name.startswith(("/", ".", "~")) or name.count("/") != 1:
        raise ModelError(f"no such model folder: {name}; give a Hugging Face folder or a hub name (owner/model)")
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=files, ignore_patterns=OTHER_FORMATS))
    except Exception as error:  # the hub client raises errors of several libraries
        raise ModelError(
            f"{name} is not a local folder and could not be loaded from the Hugging Face hub "
            f"({type(error).__name__}: {' '.join(str(error).split())}); "
            "without a network, download it elsewhere and give its folder"
        ) from error
