"""Preflight names the tokens that the nodes of a joined cluster do not get from the driver."""

import pytest

from recipe import preflight
from recipe.checks import ray_cluster
from recipe.cluster import most_free
from recipe.records.run_directory import RunDirectory
from recipe.runtime.ray_session import run_environment
from tests.composing import composed

JOINED = "+ray_kwargs.ray_init.address=10.0.0.7:6379"


@pytest.fixture(autouse=True)
def _one_token(monkeypatch):
    for name in (*ray_cluster.TOKENS, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")


@pytest.mark.slow
def test_a_token_is_named_with_its_file_and_never_shown():
    (note,) = ray_cluster.token_notes(composed("experiment=quickstart", JOINED))
    assert note.startswith("HF_TOKEN is not sent to the Ray at 10.0.0.7:6379")
    assert "HF_TOKEN_PATH" in note
    assert "hf_secret" not in note


@pytest.mark.slow
def test_every_token_that_is_set_is_named(monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "w")
    monkeypatch.setenv("SANDBOX_TOKEN", "s")
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    found = ray_cluster.token_notes(composed("experiment=quickstart"))
    assert [note.split()[0] for note in found] == ["HF_TOKEN", "WANDB_API_KEY", "SANDBOX_TOKEN"]


@pytest.mark.parametrize("address", [None, "local"])
def test_a_ray_of_the_runs_own_has_the_drivers_environment(monkeypatch, address: str | None):
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    assert ray_cluster.token_notes(composed("experiment=quickstart")) == []


@pytest.mark.slow
def test_preflight_prints_the_note_and_does_not_refuse_for_it(tiny_arguments, monkeypatch, capsys):
    monkeypatch.setattr(ray_cluster, "_listens", lambda host, port: True)
    assert preflight.main([*tiny_arguments, JOINED]) == 0
    assert "HF_TOKEN is not sent" in " ".join(capsys.readouterr().out.split())


def test_the_file_of_a_token_is_named_to_the_nodes_and_not_the_token(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN_PATH", "/shared/hf_token")
    found = run_environment(RunDirectory(tmp_path))
    assert found["HF_TOKEN_PATH"] == "/shared/hf_token"
    assert "HF_TOKEN" not in found


@pytest.mark.parametrize(
    ("nodes", "gpus"), [([8, 4], 8), ([3.5, None], 3), ([None], 1), ([], 1)], ids=["most", "whole", "none", "empty"]
)
def test_an_evaluation_on_a_cluster_asks_for_the_gpus_that_are_free_on_one_node(nodes, gpus):
    free = {str(node): {"CPU": 9} | ({} if count is None else {"GPU": count}) for node, count in enumerate(nodes)}
    assert most_free(free) == gpus
