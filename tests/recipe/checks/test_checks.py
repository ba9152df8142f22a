"""Every kind of bad input gives one problem with what is wrong, where, and how to fix it."""

import itertools
import json
import shutil
import socket
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, open_dict

from recipe import preflight, sft
from recipe.checks import combinations, data, machine, model, names, protocol, ray_cluster, reward, sandbox
from recipe.records import versions
from recipe.records.run_directory import RunDirectory
from recipe.settings import read_settings
from recipe.training.schedule import rows_by_skill
from rewards.settings import REWARD_KWARGS, JudgeSettings
from tests.composing import composed

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.prepare(str(tmp_path / "outputs"), "quickstart", "r")


def _config(tiny_arguments: list[str], *more: str) -> DictConfig:
    return composed(*tiny_arguments, *more)


def _only(problems: list) -> str:
    assert len(problems) == 1, problems
    return str(problems[0])


def test_a_sound_configuration_has_no_problem(tiny_arguments, run):
    assert preflight.examine(_config(tiny_arguments), run) == []


def test_the_command_prints_every_check_and_exits_with_zero(tiny_arguments, capsys):
    assert preflight.main(tiny_arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count("ok") >= len(preflight.CHECKS)
    assert "16 prompts x 8 answers of up to 224 tokens" in printed


def test_the_command_exits_with_two_and_names_the_file(tiny_arguments, capsys):
    assert preflight.main([*tiny_arguments, "data.train_files=/nowhere/train.parquet"]) == 2
    assert "FAILS the data files can be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        (b"not parquet", "not a readable parquet file"),
    ],
)
def test_a_data_file_that_is_missing_or_no_parquet(tiny_arguments, run, tmp_path, content, message):
    path = tmp_path / "train.parquet"
    if content is not None:
        path.write_bytes(content)
    problem = _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))
    assert message in problem
    assert "data.train_files" in problem


def _changed(tiny_suite: Path, path: Path, change) -> Path:
    frame = pd.read_parquet(tiny_suite / "train.parquet")
    change(frame).to_parquet(path)
    return path


def test_an_empty_data_file(tiny_arguments, tiny_suite, run, tmp_path):
    path = _changed(tiny_suite, tmp_path / "t.parquet", lambda frame: frame.head(0))
    assert "has no rows" in _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))


def test_a_protected_skill_and_one_of_the_sequence_without_rows_are_named(tiny_arguments, tiny_suite, run, tmp_path):
    path = _changed(tiny_suite, tmp_path / "t.parquet", lambda frame: frame[frame["skill"] != "sql"])
    words = [f"data.train_files={path}", f"data.val_files={path}", "data.train_batch_size=1"]
    protected = _only(data.check(_config(tiny_arguments, "projection=qp", *words), run))
    assert protected.startswith("no row of the skill 'sql', which protocol or projection names [data.train_files]")
    sequence = data.check(_config(tiny_arguments, "protocol=sequential", *words), run)
    assert ["data.train_files" in str(problem) for problem in sequence] == [True, False]  # and one for data.val_files


@pytest.mark.parametrize("word", ["projection.when=forgetting", "projection.protected=[write,sql]"])
def test_a_skill_whose_forgetting_has_to_be_seen_needs_rows_to_validate_on(
    tiny_arguments, tiny_suite, run, tmp_path, word
):
    path = _changed(tiny_suite, tmp_path / "v.parquet", lambda frame: frame[frame["skill"] != "sql"])
    words = ["projection=qp", f"data.val_files={path}"]
    assert data.check(_config(tiny_arguments, *words), run) == []
    assert "no row of the skill 'sql'" in _only(data.check(_config(tiny_arguments, *words, word), run))


def test_rows_that_are_kept_for_testing_may_not_be_trained_on(tiny_arguments, tiny_suite, run, tmp_path):
    def reserve(frame: pd.DataFrame) -> pd.DataFrame:
        infos = list(frame["extra_info"])
        infos[1] = infos[1] | {"role": "test"}
        infos[2] = infos[2] | {"id": "humaneval/7"}
        return frame.assign(extra_info=infos)

    path = _changed(tiny_suite, tmp_path / "t.parquet", reserve)
    problem = _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))
    assert "2 rows may not be trained on" in problem
    assert "humaneval/7" in problem
    assert data.check(_config(tiny_arguments, f"data.val_files={path}"), run) == []


def test_credit_with_verls_tools_and_rows_with_images_are_refused(tiny_arguments, tiny_suite, run, tmp_path):
    credit = "credit=counterfactual"
    path = _changed(tiny_suite, tmp_path / "t.parquet", lambda frame: frame.assign(agent_name="tool_agent"))
    assert data.check(_config(tiny_arguments, f"data.train_files={path}"), run) == []
    for words in ([f"data.train_files={path}"], ["actor_rollout_ref.rollout.agent.default_agent_loop=tool_agent"]):
        problem = _only(data.check(_config(tiny_arguments, credit, *words), run))
        assert "cannot distinguish the answers of tool_agent's tools" in problem
    path = _changed(tiny_suite, tmp_path / "i.parquet", lambda frame: frame.assign(images=[[]] * len(frame)))
    assert "'images'" in _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))


def test_a_row_that_breaks_the_schema_is_named_by_number_and_field(tiny_arguments, tiny_suite, run, tmp_path):
    def break_third(frame: pd.DataFrame) -> pd.DataFrame:
        frame.at[2, "ability"] = ""
        return frame

    path = _changed(tiny_suite, tmp_path / "t.parquet", break_third)
    problem = _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))
    assert "row 2, field 'ability'" in problem


def test_an_unknown_verifier_is_named_with_the_valid_ones(tiny_arguments, tiny_suite, run, tmp_path):
    path = _changed(tiny_suite, tmp_path / "t.parquet", lambda frame: frame.assign(data_source="cod"))
    problem = _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))
    assert "cod" in problem
    assert "sql" in problem


def test_an_unknown_skill_is_named_with_the_nearest(tiny_arguments, tiny_suite, run, tmp_path):
    path = _changed(tiny_suite, tmp_path / "t.parquet", lambda frame: frame.assign(skill="wrte"))
    problem = _only(data.check(_config(tiny_arguments, f"data.train_files={path}"), run))
    assert "unknown skill 'wrte'. Did you mean write?" in problem


def test_a_skill_with_the_name_of_a_metric_over_all_skills_is_refused(tiny_arguments, tiny_suite, run, tmp_path):
    path = _changed(tiny_suite, tmp_path / "t.parquet", lambda frame: frame.assign(skill="mean"))
    problem = _only(data.check(_config(tiny_arguments, f"data.train_files={path}", "skills=any"), run))
    assert "a skill named 'mean', the name of a metric over all skills" in problem


TOPIC = ["skills=any", "skills.column=topic"]


def _with_column(tiny_suite: Path, path: Path, name: str, *values: object) -> Path:
    """Training rows with an additional column that cycles through these values."""
    column = itertools.cycle(values)
    return _changed(tiny_suite, path, lambda frame: frame.assign(**{name: list(itertools.islice(column, len(frame)))}))


def half_of(row: dict) -> str:
    return f"half{row['extra_info']['index'] % 2}"


@pytest.mark.parametrize(
    ("words", "skills"),
    [
        (TOPIC, ["first", "second"]),
        (["skills.by=data_source"], ["code", "sql", "trace"]),
        (["skills.by=function", "skills.function=tests.recipe.checks.test_checks:half_of"], ["half0", "half1"]),
    ],
    ids=["column", "data_source", "function"],
)
def test_rows_have_the_skills_that_the_user_says_in_the_check_and_in_training(
    tiny_arguments, tiny_suite, run, tmp_path, words, skills
):
    path = tiny_suite / "train.parquet"
    if words is TOPIC:
        path = _with_column(tiny_suite, tmp_path / "t.parquet", "topic", "first", "second")
    words = [*words, f"data.train_files={path}", f"data.val_files={path}", "protocol=sequential"]
    config = _config(tiny_arguments, *words, f"skills.names=[{','.join(skills)}]")
    assert data.check(config, run) == []
    dataset = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    found = rows_by_skill(dataset, read_settings(config).skills)
    assert sorted(found) == skills
    assert sorted(row for rows in found.values() for row in rows) == list(range(32))
    assert data.check(_config(tiny_arguments, *words, f"skills.names=[{','.join(skills[1:])}]"), run) != []


@pytest.mark.parametrize("names", ["null", "[first,second]"])
def test_a_column_that_no_row_has_is_refused_and_makes_no_skill(tiny_arguments, run, names):
    config = _config(tiny_arguments, *TOPIC, f"skills.names={names}")
    for problem, key in zip(data.check(config, run), ("train_files", "val_files"), strict=True):
        assert str(problem).startswith("no row has text in the column 'topic', which names the skill")
        assert f"[skills.column, data.{key}] -> name an existing column, or choose skills.by=" in str(problem)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("first", None), "16 of 32 rows have no text in the column 'topic'"),
        (("", "first", "first", "first"), "8 of 32 rows have no text in the column 'topic'"),
        ((3,), "no row has text in the column 'topic'"),
    ],
)
def test_a_row_whose_column_names_no_skill_is_refused(tiny_arguments, tiny_suite, run, tmp_path, values, message):
    train = _with_column(tiny_suite, tmp_path / "t.parquet", "topic", *values)
    val = _with_column(tiny_suite, tmp_path / "v.parquet", "topic", "first")
    files = [f"data.train_files={train}", f"data.val_files={val}"]
    assert message in _only(data.check(_config(tiny_arguments, *TOPIC, *files), run))


def test_beside_the_column_that_names_the_skill_no_other_is_allowed(tiny_arguments, tiny_suite, run, tmp_path):
    train = _with_column(tiny_suite, tmp_path / "t.parquet", "topics", "first")
    val = _with_column(tiny_suite, tmp_path / "v.parquet", "topic", "first")
    files = [f"data.train_files={train}", f"data.val_files={val}"]
    problem = _only(data.check(_config(tiny_arguments, *TOPIC, *files), run))
    assert "unknown columns ['topics']: the only additional column allowed is that of skills.column, 'topic'" in problem


def test_fewer_rows_than_a_batch(tiny_arguments, run):
    problems = data.check(_config(tiny_arguments, "data.train_batch_size=64"), run)
    assert "32 training rows are fewer than one batch of 64" in _only(problems)


@pytest.mark.parametrize(
    ("missing", "message"),
    [("*.safetensors", "no weights"), ("tokenizer*.json", "no tokenizer"), ("config.json", "no config.json")],
)
def test_a_model_folder_that_is_not_complete(tiny_arguments, tiny_suite, run, tmp_path, missing, message):
    folder = tmp_path / "model"
    shutil.copytree(tiny_suite / "initial_model", folder)
    for path in folder.glob(missing):
        path.unlink()
    problem = _only(model.check(_config(tiny_arguments, f"actor_rollout_ref.model.path={folder}"), run))
    assert message in problem
    assert str(folder) in problem


def test_the_sizes_that_vllm_is_not_asked_about_are_sizes_that_it_serves():
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    from recipe.checks.model import COMMON_HEAD_SIZES

    assert set(COMMON_HEAD_SIZES) <= set(CPUAttentionBackend.get_supported_head_sizes())


def _capped(tiny_suite: Path, folder: Path) -> Path:
    """The tiny model's folder with the configuration of an architecture with soft caps."""
    shutil.copytree(tiny_suite / "initial_model", folder)
    shape = json.loads((folder / "config.json").read_text())
    keys = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    named = {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 32, "vocab_size": 512}
    (folder / "config.json").write_text(json.dumps(named | {key: shape[key] for key in keys}))
    return folder


def test_an_architecture_whose_log_probabilities_would_be_wrong_on_a_cpu(tiny_arguments, tiny_suite, run, tmp_path):
    words = f"actor_rollout_ref.model.path={_capped(tiny_suite, tmp_path / 'model')}"
    found = [str(problem) for problem in model.check(_config(tiny_arguments, words), run)]
    assert len(found) == 2
    assert "the fused kernels do not compute final_logit_softcapping=30.0 [actor_rollout_ref.model.path]" in found[0]
    assert "attn_implementation=packed does not compute attn_logit_softcapping=50.0" in found[1]
    assert "-> set use_fused_kernels=false use_remove_padding=false override_config.attn_impl" in found[1]
    plain = [
        "use_fused_kernels=false", "use_remove_padding=false", "override_config.attn_implementation=eager"
    ]  # fmt: skip
    changed = _config(tiny_arguments, words, *(f"actor_rollout_ref.model.{word}" for word in plain))
    assert model.check(changed, run) == []


def test_a_gpu_without_flash_attn_refuses_it_too(tiny_arguments, tiny_suite, run, tmp_path):
    words = [f"actor_rollout_ref.model.path={_capped(tiny_suite, tmp_path / 'model')}", "platform=gpu_1x8"]
    found = [str(problem) for problem in model.check(_config(tiny_arguments, *words, "+kernels=torch"), run)]
    assert len(found) == 2
    assert model.check(_config(tiny_arguments, *words), run) == []


def test_the_supervised_training_of_such_an_architecture_is_refused(tiny_suite, tmp_path, capsys):
    folder = _capped(tiny_suite, tmp_path / "model")
    with initialize_config_module("configs", version_base=None):
        config = compose(
            "sft", ["sft_experiment=english", f"model.path={folder}", f"trainer.default_local_dir={tmp_path}/out"]
        )
    assert sft.launch(config) == 2
    assert "refused before training: the fused kernels do not compute" in (said := capsys.readouterr().err)
    assert "final_logit_softcapping=30.0" in said


def test_a_head_size_that_vllm_cannot_serve_on_a_cpu(tiny_arguments, tiny_suite, run, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_suite / "initial_model", folder)
    shape = json.loads((folder / "config.json").read_text())
    shape.pop("head_dim", None)
    (folder / "config.json").write_text(json.dumps(shape | {"num_attention_heads": shape["hidden_size"] // 40}))
    problem = _only(model.check(_config(tiny_arguments, f"actor_rollout_ref.model.path={folder}"), run))
    assert "no attention for heads of size 40" in problem


def test_a_model_path_that_is_no_folder(tiny_arguments, run):
    problem = _only(model.check(_config(tiny_arguments, "actor_rollout_ref.model.path=/nowhere/model"), run))
    assert "no such model folder: /nowhere/model" in problem


def test_a_checkpoint_of_another_model_is_not_continued(tiny_arguments, tiny_suite, run, tmp_path):
    model.remember(_config(tiny_arguments), run)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("10")
    assert model.check(_config(tiny_arguments), run) == []
    other = tmp_path / "other"
    shutil.copytree(tiny_suite / "initial_model", other)
    text = (other / "config.json").read_text()
    (other / "config.json").write_text(text.replace('"intermediate_size": ', '"intermediate_size": 1'))
    problem = _only(model.check(_config(tiny_arguments, f"actor_rollout_ref.model.path={other}"), run))
    assert "the checkpoint is of another model" in problem
    problem = _only(model.check(_config(tiny_arguments, "actor_rollout_ref.model.lora_rank=4"), run))
    assert "LoRA rank 8, the configuration 4" in problem
    problem = _only(model.check(_config(tiny_arguments, "trainer.n_gpus_per_node=2"), run))
    assert "written by 1 ranks, the configuration has 2" in problem


def test_a_checkpoint_is_not_continued_with_other_weights_of_the_same_shape(tiny_arguments, tiny_suite, run, tmp_path):
    config = _config(tiny_arguments)
    model.remember(config, run)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("10")
    other = tmp_path / "other"
    shutil.copytree(tiny_suite / "initial_model", other)
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (other / "model.safetensors").write_bytes(weights)
    elsewhere = _config(tiny_arguments, f"actor_rollout_ref.model.path={other}")
    assert "trained from weights other than" in _only(model.check(elsewhere, run))


def test_a_checkpoint_of_another_version_is_refused_by_its_number(tiny_arguments, run):
    config = _config(tiny_arguments)
    kept = model.remember(config, run)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("10")
    file = run.checkpoints / "model.json"
    assert json.loads(file.read_text()) == {versions.KEY: versions.CHECKPOINT_VERSION} | kept
    file.write_text(json.dumps(kept))  # as release 0.2.0 wrote it
    assert model.check(config, run) == []
    file.write_text(json.dumps({versions.KEY: versions.CHECKPOINT_VERSION + 1} | kept))
    assert f"{file} has version 2 with the keys architecture," in _only(model.check(config, run))
    del kept["weights"]
    file.write_text(json.dumps(kept))
    assert "has version 1 with the keys architecture, lora_rank, ranks, data;" in _only(model.check(config, run))


def test_a_checkpoint_is_not_continued_on_other_training_rows(tiny_arguments, tiny_suite, run, tmp_path):
    train = tmp_path / "train.parquet"
    shutil.copyfile(tiny_suite / "train.parquet", train)
    config = _config(tiny_arguments, f"data.train_files={train}")
    model.remember(config, run)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("10")
    assert model.check(_config(tiny_arguments, f"data.train_files=[{train}]"), run) == []
    shutil.copyfile(tiny_suite / "val.parquet", train)
    assert "the checkpoint was trained on other rows" in _only(model.check(config, run))


def test_a_hub_name_continues_a_run_of_the_same_name_alone(tiny_arguments, run):
    model.remember(_config(tiny_arguments, "actor_rollout_ref.model.path=owner/one"), run)
    (run.checkpoints / "latest_checkpointed_iteration.txt").write_text("10")
    assert model.check(_config(tiny_arguments, "actor_rollout_ref.model.path=owner/one"), run) == []
    problem = _only(model.check(_config(tiny_arguments, "actor_rollout_ref.model.path=owner/two"), run))
    assert "the checkpoint is of another model" in problem


def test_batches_that_do_not_divide(tiny_arguments, run):
    problems = machine.check_memory(_config(tiny_arguments, "actor_rollout_ref.actor.ppo_mini_batch_size=12"), run)
    assert "ppo_mini_batch_size" in _only(problems)
    problems = machine.check_memory(
        _config(tiny_arguments, "trainer.n_gpus_per_node=2", "actor_rollout_ref.rollout.n=1",
                "data.train_batch_size=15", "actor_rollout_ref.actor.ppo_mini_batch_size=15"), run)  # fmt: skip
    assert "over 2 data-parallel ranks" in _only(problems)


def test_stages_that_cannot_be_filled_are_the_protocols_problem_and_no_plans(tiny_arguments, run):
    config = _config(tiny_arguments, "protocol=sequential", "projection=qp", "protocol.memory_per_protected=16")
    assert "leaves no new prompt to train on" in _only(protocol.check(config, run))
    assert not any("memory prompts" in str(problem) for problem in machine.check_memory(config, run))


def test_verls_own_rules_are_asked(tiny_arguments, run):
    problem = _only(
        combinations.check_rules(_config(tiny_arguments, "actor_rollout_ref.actor.ppo_mini_batch_size=32"), run)
    )
    assert "train_batch_size" in problem


def test_a_trainer_that_verl_does_not_know(tiny_arguments, run):
    problem = _only(names.check(_config(tiny_arguments, "trainer.v1.trainer_mode=skilcredit"), run))
    assert "skilcredit" in problem
    assert "skillcredit" in problem


def test_a_sandbox_that_does_not_answer(tiny_arguments, run):
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # bound, not listening: refused at once
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/run_code"
        problem = _only(sandbox.check(_config(tiny_arguments, f"sandbox.url={url}"), run))
    assert "does not answer /v1/ping" in problem
    assert "sandbox.url=null" in problem


def test_a_ray_address_that_nobody_listens_on(tiny_arguments, run, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert "no Ray listens at 127.0.0.1:1" in _only(ray_cluster.check(_config(tiny_arguments), run))


def test_a_dashboard_port_that_is_busy(tiny_arguments, run, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        options = ["ray_kwargs.ray_init.include_dashboard=true", f"+ray_kwargs.ray_init.dashboard_port={port}"]
        assert f"port {port} is busy" in _only(ray_cluster.check(_config(tiny_arguments, *options), run))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("shape=bnary", "reward setting shape: unknown 'bnary'; valid ones: binary, binary_format"),
        ("refuse=[lenght]", "reward setting refuse: unknown 'lenght'; valid ones: "),
        (
            "+partal_credit=false",
            "unknown reward setting 'partal_credit'; valid ones: partial_credit, hidden_tests, timeout, ",
        ),
        ("partial_credit=almost", "reward setting partial_credit: 'almost' is not true or false"),
        ("timeout=soon", "reward setting timeout: 'soon' is not a number of seconds above 0"),
        ("memory_mb=0.5", "reward setting memory_mb: 0.5 is not a whole number above 0"),
        ("refuse=length", "reward setting refuse: 'length' is not a list"),
    ],
)
def test_a_reward_that_does_not_exist_is_named_with_the_valid_ones(tiny_arguments, run, word, message):
    added = "+" if word.startswith("+") else ""
    config = _config(tiny_arguments, f"{added}{REWARD_KWARGS}.{word.removeprefix('+')}")
    assert message in _only(reward.check_settings(config, run))


@pytest.mark.parametrize("value", [5, None])
def test_reward_settings_that_are_none_by_name_are_refused(tiny_arguments, run, value):
    config = _config(tiny_arguments)
    config.reward.custom_reward_function.reward_kwargs = value
    message = _only(reward.check_settings(config, run))
    assert f"reward settings must be a mapping, got {value}; valid keys: partial_credit, " in message


def test_a_reward_without_settings_takes_the_defaults(tiny_arguments):
    config = _config(tiny_arguments)
    with open_dict(config):
        del config.reward.custom_reward_function["reward_kwargs"]
    assert JudgeSettings.of_config(config) == JudgeSettings()


def test_the_users_own_reward_function_may_have_its_own_settings(tiny_arguments, run):
    own = ("reward.custom_reward_function.path=pkg://mine", f"+{REWARD_KWARGS}.colour=red")
    assert reward.check_settings(_config(tiny_arguments, *own), run) == []


def test_prompts_and_answers_longer_than_the_context_are_refused(tiny_arguments, run):
    problem = _only(machine.check_memory(_config(tiny_arguments, "data.max_prompt_length=480"), run))
    assert "data.max_prompt_length + data.max_response_length = 544 is more than the model's" in problem
    assert "max_position_embeddings=512" in problem


def test_prompts_in_parts_and_seeded_samples_do_not_go_together_on_a_cpu(tiny_arguments, run):
    in_parts = "actor_rollout_ref.rollout.enable_chunked_prefill=true"
    problem = _only(machine.check_engine(_config(tiny_arguments, in_parts), run))
    assert "cannot sample with seeds" in problem
    assert "run.seeded_samples=false" in problem
    assert machine.check_engine(_config(tiny_arguments, in_parts, "run.seeded_samples=false"), run) == []
