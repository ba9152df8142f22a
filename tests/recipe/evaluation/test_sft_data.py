from omegaconf import OmegaConf

from data_prep.schema import Demonstration, read_rows
from data_prep.tasks import write_task_rows
from recipe.sft import launch, trained_model, verified_files
from tests.recipe.evaluation.conftest import task
from tests.recipe.evaluation.test_verified import evaluation, sample


def config(folder):
    return OmegaConf.create({"verified": {"evaluations": [str(folder)], "per_problem": 2, "held_out_percent": 30}})


def test_accepted_answers_become_training_files_that_share_no_problem(tmp_path):
    tasks = [task(number, role="train") for number in range(12)]
    texts = [sample(one.id, n, f"x = {n}", 1.0) for one in tasks for n in range(3)]
    files = verified_files(config(evaluation(tmp_path, tasks, texts).path), tmp_path / "verified")
    rows = {split: read_rows(tmp_path / "verified" / f"{split}.parquet", Demonstration) for split in ("train", "val")}
    ids = {split: {row.extra_info.id for row in found} for split, found in rows.items()}
    assert files == {split: str(tmp_path / f"verified/{split}.parquet") for split in ("train", "val")}
    assert ids["train"] | ids["val"] == {one.id for one in tasks}
    assert not ids["train"] & ids["val"]
    assert len(rows["train"]) == 2 * len(ids["train"])


def test_no_evaluation_leaves_the_configured_files(tmp_path):
    assert verified_files(OmegaConf.create({"verified": {"evaluations": []}}), tmp_path) == {}


def test_the_model_of_the_last_step_is_the_trained_one(tmp_path):
    for step in (9, 100):
        (tmp_path / f"global_step_{step}" / "huggingface").mkdir(parents=True)
    assert trained_model(tmp_path).parent.name == "global_step_100"


def test_rows_that_are_no_demonstrations_are_refused_before_training(tmp_path, capsys):
    write_task_rows(tmp_path / "rows.parquet", [task(1)])
    settings = OmegaConf.create(
        {
            "trainer": {"default_local_dir": str(tmp_path / "out")},
            "data": {"train_files": str(tmp_path / "rows.parquet")},
            "verified": {"evaluations": []},
        }
    )
    assert launch(settings) == 2
    assert "refused before training: " in (message := capsys.readouterr().err)
    assert "row 0, field 'messages'" in message
