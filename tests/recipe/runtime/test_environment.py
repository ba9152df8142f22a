"""Environment variables that a cluster's nodes get from the user's shell."""

import pytest

from recipe.runtime.environment import ROOT, forwarded, job_environment
from recipe.runtime.options import ArmOptions, GraphOptions, OptionError, TaskOptions, forwarded_variables

# Variables that users of the launchers set, according to the launchers' comments.
DOCUMENTED = """
    PLATFORM PYTHON DATA OUT EXPERIMENT LENGTH TRAIN EXPORT EVALUATE SAMPLES SFT SFT_EXPERIMENT DPO REWARD REPAIR AGENTS
    WITHOUT PRESET SOURCE SOURCE_OPTIONS FOLDER PROBE NAME TASKS VOLUMES SEQUENCE_PARALLEL OFFLOAD_REF JOBS ARMS
    EPSILONS SEEDS SEED ORDERS SUITE REACH KEPT REFRESH_STEPS TRAIN_FILES VAL_FILES SKILLS
"""


def test_every_option_of_a_launcher_is_forwarded() -> None:
    assert forwarded_variables() >= set(DOCUMENTED.split())
    assert "DRY_RUN" not in forwarded_variables()


def test_an_option_that_is_not_set_has_its_default_and_an_empty_choice_is_one() -> None:
    found = ArmOptions.of({"TRAIN": "a=b", "LENGTH": "", "NAME": "", "ARMS": "", "SEEDS": "1 2", "HOME": "/h"})
    assert found == ArmOptions(train="a=b", arms="", seeds="1 2")
    assert found.variables() == {"TRAIN": "a=b", "ARMS": "", "SEEDS": "1 2"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"PLATFORM": "gpu"}, "unknown PLATFORM 'gpu'; valid ones: cpu, gpu_1x8, gpu_ray"),
        ({"JOBS": "many"}, "JOBS=many must be a whole number"),
        ({"LENGTH": "-1"}, "LENGTH=-1 must be a whole number"),
    ],
)
def test_an_option_that_cannot_be_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}$"):
        GraphOptions.of(given)


def test_an_option_of_another_study_is_refused_with_those_of_this_one() -> None:
    with pytest.raises(OptionError, match=r"^SEEDS is an option of other studies: unset SEEDS. Options here: .* NAME"):
        TaskOptions.of({"SEEDS": "1", "NAME": "mine"})


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "SANDBOX_TOKEN", "PATH"])
def test_tokens_stay_where_they_are(name: str) -> None:
    assert forwarded({name: "x", "NCCL_SOCKET_IFNAME": "eth0", "HF_HOME": "/h"}) == {
        "NCCL_SOCKET_IFNAME": "eth0",
        "HF_HOME": "/h",
    }


def test_a_module_gets_no_options_of_studies() -> None:
    shell = {"SEEDS": "1 2", "SUBMIT_ENV": "MINE", "MINE": "m", "WANDB_MODE": "offline"}
    variables = job_environment("recipe.train", "/usr/bin/python", shell)["env_vars"]
    assert variables == {
        "MINE": "m", "WANDB_MODE": "offline", "SKILLCREDIT_HOME": str(ROOT), "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
        "PYTHONUNBUFFERED": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "platform"), [({}, "gpu_ray"), ({"PLATFORM": ""}, "gpu_ray"), ({"PLATFORM": "gpu_1x8"}, "gpu_1x8")]
)
def test_a_launcher_gets_its_options_and_a_platform(given: dict[str, str], platform: str) -> None:
    found = job_environment("scripts/gsm8k.sh", "/a b/python", given | {"SEEDS": "1 2", "RAY_ADDRESS": "auto"})
    assert (found["env_vars"]["PLATFORM"], found["env_vars"]["SEEDS"]) == (platform, "1 2")
    assert "RAY_ADDRESS" not in found["env_vars"]
    assert found["py_executable"] == "'/a b/python'"
