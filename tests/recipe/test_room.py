"""Memory and disk of a CPU machine are compared with a run's needs before it starts, with the arithmetic."""

import json
import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

import recipe.sft
from data_prep import machine as machine_room
from data_prep.schema import Demonstration, write_rows
from recipe.capacity import room, supervised
from recipe.capacity.memory_plan import plan_memory
from recipe.capacity.model_shape import KNOWN_SHAPES, ModelShape
from recipe.checks import machine
from recipe.records.run_directory import RunDirectory
from recipe.sft import RoomError, longest_micro_batch, require_room
from tests.composing import composed
from tests.studying import study

pytestmark = pytest.mark.slow

GIB = 2**30
SMALL = ModelShape(576, 1536, 30, 9, 3, 64, 49152, 8192, tie_word_embeddings=True)
PARAMETERS = 134_515_008
SMALL_CONFIG = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder that describes SmolLM2-135M."""
    (folder := tmp_path / "small").mkdir()
    (folder / "config.json").write_text(json.dumps(SMALL_CONFIG))
    return folder


def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gib: float) -> None:
    """A container with this much memory, all of it free, on a machine that does not say what it has."""
    files = (tmp_path / "memory.max", tmp_path / "memory.current")
    files[0].write_text(str(int(gib * GIB)))
    files[1].write_text("0")
    monkeypatch.setattr(machine_room, "_CGROUPS", ((*files, "inactive_file"),))
    monkeypatch.setattr(machine_room, "_stated", lambda *_: [])


def disk_of(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    class Usage:
        def __init__(self, path: object):
            self.free = free

    monkeypatch.setattr(shutil, "disk_usage", Usage)


def pretrained(small: Path, *words: str) -> DictConfig:
    config = composed("experiment=pretrained", f"actor_rollout_ref.model.path={small}", *words)
    config.run.precision = "bfloat16"
    return config


def supervised_config(*words: str) -> DictConfig:
    with initialize_config_module("configs", version_base=None):
        return compose("sft", ["sft_experiment=english", "precision=bfloat16", *words])


def test_a_container_too_small_for_the_run_is_refused_with_the_parts(small, tmp_path, monkeypatch):
    run = RunDirectory.prepare(str(tmp_path / "o"), "pretrained", "r")
    limited(monkeypatch, tmp_path, 1000)
    assert machine.check_memory(pretrained(small), run) == []
    limited(monkeypatch, tmp_path, 11)
    problems = [str(problem) for problem in machine.check_memory(pretrained(small), run)]
    assert "training needs 12.2 of 11.0 GiB (actor_rollout_ref.actor): 0.5 weights" in problems[0]
    # 4 prompts of 256 tokens and 32 responses of 128, with keys and values of 32 x 384; see memory_parts._packed_block.
    assert f"{30 * (5_120 * 27_264 + 32 * 384 * 1_536) / GIB:.1f} activations" in problems[0]
    assert "1.0 KV cache + 5.5 processes" in problems[0]
    assert "ppo_micro_batch_size_per_gpu=16" in problems[0]


def test_a_change_that_a_refusal_on_a_cpu_names_does_fit(small, tmp_path, monkeypatch):
    run = RunDirectory.prepare(str(tmp_path / "o"), "pretrained", "r")
    limited(monkeypatch, tmp_path, 11)
    (problem,) = machine.check_memory(pretrained(small), run)
    key = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16"
    assert key in str(problem)
    assert machine.check_memory(pretrained(small, key), run) == []


def test_memory_that_other_programs_use_is_a_warning_with_the_parts(small, tmp_path, monkeypatch):
    limited(monkeypatch, tmp_path, 1000)
    monkeypatch.setattr(machine, "free_memory", lambda: 100 * GIB)
    assert not any("are free" in note for note in machine.notes(pretrained(small)))
    monkeypatch.setattr(machine, "free_memory", lambda: 9 * GIB)
    (note,) = [note for note in machine.notes(pretrained(small)) if "are free" in note]
    assert note.startswith(
        "warning: 9.0 GiB of memory are free, and with full sequences the run needs 12.2 (0.5 weights"
    )


def test_checkpoints_hold_weights_adapters_and_moments(small):
    config = pretrained(small)
    plan = plan_memory(config, SMALL, 24)
    adapters = SMALL.lora_parameters(16)
    assert SMALL.parameters == PARAMETERS
    assert room.checkpoint_bytes(config, plan) == {"weights": 4 * (PARAMETERS + adapters), "optimiser": 8 * adapters}
    assert room.checkpoints(config) == 2  # of steps 20 and 40
    assert sum(room.run_disk(config, plan).values()) == 2 * (4 * PARAMETERS + 12 * adapters)
    assert sum(room.run_disk(config, plan, present=1).values()) == 4 * PARAMETERS + 12 * adapters
    several = sum(room.study_disk(config, plan, 3).values())
    assert several == 3 * (2 * (4 * PARAMETERS + 12 * adapters) + 4 * PARAMETERS)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("trainer.save_freq=-1",), 0),
        (("trainer.save_freq=100",), 1),
        (("trainer.max_actor_ckpt_to_keep=1",), 2),  # the old one goes once the new one is there
        (("trainer.save_freq=1",), 2),
        (("trainer.save_freq=4", "trainer.max_actor_ckpt_to_keep=null"), 10),
    ],
)
def test_number_of_checkpoints_at_a_time(words, count):
    assert room.checkpoints(composed("experiment=pretrained", *words)) == count


def test_shared_memory_too_small_for_the_weights_is_refused(small, tmp_path, monkeypatch):
    """verl passes weights through /dev/shm; beyond its size the writing process would die of SIGBUS."""
    run = RunDirectory.prepare(str(tmp_path / "o"), "pretrained", "r")
    limited(monkeypatch, tmp_path, 1000)
    sizes = {"/dev/shm": 64 * 2**20}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: type("Usage", (), {"free": sizes.get(str(path), 10**12)}))
    assert machine.check_memory(pretrained(small), run) == [], "adapters fit"
    for words in (
        ["adaptation=full"],
        ["actor_rollout_ref.model.lora.merge=true"],
        ["actor_rollout_ref.rollout.load_format=dummy"],
    ):
        (problem,) = machine.check_memory(pretrained(small, *words), run)
        assert f"at /dev/shm: {2 * PARAMETERS / 1e9:.2f} GB needed" in str(problem)
        assert "0.07 GB free; start the container with a larger --shm-size" in str(problem)
    bucket = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=48"
    assert machine.check_memory(pretrained(small, "adaptation=full", bucket), run) == []


def test_a_disk_too_small_for_the_checkpoints_is_refused_with_the_parts(small, tmp_path, monkeypatch):
    run = RunDirectory.prepare(str(tmp_path / "o"), "pretrained", "r")
    limited(monkeypatch, tmp_path, 1000)
    disk_of(monkeypatch, 10**9)
    (problem,) = machine.check_memory(pretrained(small), run)
    assert "too little disk at" in str(problem)
    assert "1.19 GB needed (1.12 GB of weights in 2 checkpoints + 0.08 GB of optimiser in 2 checkpoints)" in str(
        problem
    )
    (run.checkpoints / "global_step_20").mkdir()
    assert machine.check_memory(pretrained(small), run) == []


def test_a_supervised_training_counts_sixteen_bytes_per_parameter_and_its_tokens():
    found = supervised.supervised_parts(supervised_config(), SMALL, 10_000)
    assert sum(found[name] for name in ("weights", "gradients", "optimiser")) == 16 * PARAMETERS
    # 2 (6 H + Q + 4 I) + 8 (Q + H + K): all weights, norms and attention in float32.
    assert found["activations"] == 10_000 * (2 * 10_176 + 8 * 1_344) * 30
    assert found["logits"] == 0  # made in blocks
    # A step of 64 demonstrations, about 9,200 tokens, was measured at 11.8 GB.
    nearby = sum(supervised.supervised_parts(supervised_config(), SMALL, 9_212).values())
    assert nearby / 1e9 == pytest.approx(11.8, rel=0.1)


def demonstrations(folder: Path, letters: list[int]) -> Path:
    rows = [
        Demonstration.model_validate(
            {
                "messages": [{"role": "user", "content": "say"}, {"role": "assistant", "content": "x" * count}],
                "skill": "say",
                "correct": True,
                "extra_info": {"split": "train", "index": number, "id": str(number)},
            }
        )
        for number, count in enumerate(letters)
    ]
    write_rows(folder / "train.parquet", rows)
    return folder / "train.parquet"


def test_the_longest_micro_batch_has_the_longest_demonstrations(tiny_suite, tmp_path, monkeypatch):
    monkeypatch.setattr(recipe.sft, "CANDIDATES", 1)
    files = [str(demonstrations(tmp_path, [10, 30, 20]))]
    model = tiny_suite / "initial_model"
    one, two, all_three = (
        longest_micro_batch(supervised_config(f"data.micro_batch_size_per_gpu={count}"), model, files)
        for count in (1, 2, 3)
    )
    # A byte is a token of this model: the turns around an answer cost the same in each.
    assert (two - one) - one == 20 - 30
    assert (all_three - two) - one == 10 - 30


def test_a_supervised_training_that_cannot_fit_is_refused_before_it_starts(tiny_suite, tmp_path, monkeypatch, capsys):
    demonstrations(tmp_path, [10, 30, 20])
    started: list[object] = []

    def train(*given: object) -> int:
        started.append(given)
        return 1

    monkeypatch.setattr(recipe.sft, "train_under_torchrun", train)
    config = supervised_config(
        f"model.path={tiny_suite}/initial_model", f"data.train_files={tmp_path}/train.parquet", "data.val_files=null",
        f"trainer.default_local_dir={tmp_path}/out",
    )  # fmt: skip
    limited(monkeypatch, tmp_path, 1)
    assert recipe.sft.launch(config) == 2
    assert "refused before training: the supervised training needs 1.5 of 1.0 GiB" in (said := capsys.readouterr().err)
    assert "1.5 processes" in said
    limited(monkeypatch, tmp_path, 1000)
    disk_of(monkeypatch, 1000)
    assert recipe.sft.launch(config) == 2
    assert "too little disk at" in capsys.readouterr().err
    assert started == []
    disk_of(monkeypatch, 10**12)
    assert recipe.sft.launch(config) == 1
    assert len(started) == 1


def test_smaller_micro_batches_are_named_where_they_fit(small, tmp_path, monkeypatch):
    demonstrations(tmp_path, [10])
    monkeypatch.setattr(recipe.sft, "longest_micro_batch", lambda *_: 14_108)
    limited(monkeypatch, tmp_path, 10)
    with pytest.raises(RoomError, match=r"data.micro_batch_size_per_gpu=16$"):
        require_room(supervised_config(), small, [])


def test_the_pretrained_study_fits_24_gb_in_float32(small, tmp_path, monkeypatch):
    limited(monkeypatch, tmp_path, 23.5)
    config = pretrained(small)
    config.run.precision = "float32"
    plan = plan_memory(config, SMALL, 23.5)
    assert plan.refusals == []
    # Two micro-batches of 32 samples, each of four groups.
    assert plan.sizes.update_tokens == plan.sizes.log_prob_tokens == 4 * 256 + 32 * 128
    assert plan.sizes.attended_tokens == 32 * 384
    assert plan.layout.training_bytes < 15 * GIB
    assert machine.check_memory(config, RunDirectory.prepare(str(tmp_path / "o"), "pretrained", "r")) == []
    # The longest 64 demonstrations of the suite have 14,108 tokens.
    start = supervised_config("precision=float32")
    tokens = 14_108 * start.data.micro_batch_size_per_gpu // 64
    assert sum(supervised.supervised_parts(start, SMALL, tokens).values()) < 15 * GIB
    assert supervised.supervised_refusals(start, SMALL, tokens) == []


def test_a_study_refuses_a_model_that_can_never_fit_before_it_makes_anything(tmp_path):
    """Larger than any machine: the preset's 7B model has the same way, but might fit where the test runs."""
    (model := tmp_path / "huge").mkdir()
    huge = SMALL_CONFIG | {"hidden_size": 576_000, "intermediate_size": 1_536_000, "num_hidden_layers": 300}
    (model / "config.json").write_text(json.dumps(huge))
    status, commands, printed = study("pretrained", str(model), dry=False, OUT=f"{tmp_path}/o", FOLDER=f"{tmp_path}/d")
    assert status == 2, printed
    assert [command.split()[0] for command in commands] == ["recipe.memory"]
    assert "training needs " in printed
    assert " weights + " in printed
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "d").exists()


def test_a_preset_of_7b_is_refused_on_24_gib_with_its_figures():
    plan = plan_memory(
        composed("experiment=pretrained", "run.precision=bfloat16"), KNOWN_SHAPES["Qwen/Qwen2.5-7B-Instruct"], 24
    )
    assert plan.refusals[0].startswith("training needs 99.3 of 24.0 GiB (actor_rollout_ref.actor): 28.5 weights + ")
    assert "use a smaller model" in plan.refusals[0]


def test_a_hub_name_without_a_network_is_refused_before_anything_is_made(cache, tmp_path):
    status, commands, printed = study("pretrained", "owner/none", dry=False, OUT=f"{tmp_path}/o")
    assert (status, commands) == (2, [])
    assert "stopped: owner/none is not a local folder and could not be loaded from the Hugging Face hub" in printed
    assert "without a network, download it elsewhere and give its folder" in printed
