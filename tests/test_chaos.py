"""What benchmarks/chaos.py finds: processes left behind by a run, and numbers that are not the undisturbed run's."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks import chaos
from recipe.records.run_directory import RunDirectory


def run(folder: Path, name: str, rows: dict[int, dict[str, float]]) -> RunDirectory:
    made = RunDirectory.prepare(str(folder), "chaos", name)
    for step, metrics in rows.items():
        made.log_metrics(step, metrics)
    return made


def test_a_run_differs_by_a_step_that_it_lacks_or_the_last_bit_of_a_number(tmp_path):
    alone = run(tmp_path, "alone", {1: {"actor/entropy": 0.1}, 2: {"actor/entropy": 0.2}, 3: {"actor/entropy": 0.3}})
    same = run(tmp_path, "same", {1: {"actor/entropy": 0.1, "timing_s/step": 9.0}, 2: {"actor/entropy": 0.2}})
    assert chaos.differences(alone, alone) == []
    assert chaos.differences(same, alone) == ["lacks step 3"]
    other = run(tmp_path, "other", {1: {"actor/entropy": 0.1}, 2: {"actor/entropy": 0.1 + 0.1000000000000001}})
    assert chaos.differences(other, alone) == [
        "lacks step 3", "step 2: actor/entropy 0.20000000000000012, not 0.2",
    ]  # fmt: skip


def test_a_process_that_outlives_its_run_is_found_by_the_run_that_started_it_and_ended():
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    left = subprocess.Popen(sleeper, env=os.environ | {chaos.MARK: "chaos_left"})
    other = subprocess.Popen(sleeper, env=os.environ | {chaos.MARK: "chaos_other"})
    try:
        found = chaos.left_behind("chaos_left", chaos.shared_memory(), seconds=0.5)
        assert len(found) == 1
        assert found[0].startswith("left python")
        assert left.wait(10) == -9
        assert other.poll() is None
        assert chaos.left_behind("chaos_left", chaos.shared_memory(), seconds=0.5) == []
    finally:
        left.kill()
        other.kill()
        other.wait()
