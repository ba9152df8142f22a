#!/usr/bin/env bash
# Set up, then check style and types and run the tests.
#   bash scripts/test.sh                 unit tests, then slow tests in parallel with end-to-end tests
#   bash scripts/test.sh night           also the end-to-end tests marked `night`: 17 more starts of the real stack
#   bash scripts/test.sh unit            only the unit tests
#   bash scripts/test.sh gpu_pins        on a machine without a GPU: tests of configurations, recipe and workers with
#                                        the pins of GPUs, in .venv-gpu (11 GB)
#   bash scripts/test.sh ARGUMENTS...    pytest with these arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = gpu_pins ]; then
    VENV_FOLDER=.venv-gpu FLASH_ATTN=0 bash scripts/setup.sh gpu
    cpu_build=(tests/workers/cpu/test_{lora,sampling,weights}.py)
    slow_cpu_build=(tests/workers/cpu/test_vllm_{plugin,worker}.py)
    more=(tests/configs tests/recipe/checks/test_{asynchronous,combinations,packages}.py
        tests/recipe/training/test_shared_validation.py tests/workers)
    echo "not run: ${cpu_build[*]} and slow tests of ${slow_cpu_build[*]}, which need vLLM's build for CPUs;" \
        "slow tests outside ${more[*]}; tests/e2e; kernels of a GPU"
    export OMP_NUM_THREADS=1
    .venv-gpu/bin/python -m pytest -m "not slow and not e2e" tests/configs tests/recipe tests/workers \
        "${cpu_build[@]/#/--ignore=}"
    exec .venv-gpu/bin/python -m pytest -m "slow and not e2e" "${more[@]}" \
        "${cpu_build[@]/#/--ignore=}" "${slow_cpu_build[@]/#/--ignore=}"
fi
bash scripts/setup.sh cpu
# Tests of the run page open it in Chromium. Without it they are skipped.
if [ "${1:-}" != unit ] && ! command -v chromium chromium-browser google-chrome chrome >/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing Chromium (once), for the tests of the run page"
        apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
            echo "warning: Chromium could not be installed: tests in a browser will be skipped" >&2
    else
        echo "warning: no Chromium: tests in a browser will be skipped. As root:" \
            "apt-get install -y --no-install-recommends chromium" >&2
    fi
fi
.venv/bin/ruff check .
.venv/bin/ruff format --check .
# The first time, mypy takes as long as half of the unit tests, on one core: beside them.
types=$(mktemp)
.venv/bin/mypy >"$types" 2>&1 &
checker=$!
# `|| :` because a trap's failed command, too, ends a script under `set -e`: with status 1, all tests passed or not.
trap '[ -z "$checker" ] || kill "$checker" 2>/dev/null || :; rm -f "$types"' EXIT
typed() {
    local status=0
    wait "$checker" || status=$?
    checker= # ended: its number may be another process's by the time of the trap
    cat "$types"
    return "$status"
}
python=.venv/bin/python
# Processes run side by side: threads that wait for each other while one has no core take ten times as long.
export OMP_NUM_THREADS=1
# Tests whose imports take ten seconds (verl, transformers): one process runs them, another one all other tests.
stack=(tests/configs tests/data_prep tests/examples tests/recipe/checks tests/recipe/training tests/workers
    tests/recipe/test_{export,memory_plan,merge,room}.py tests/recipe/runtime/test_supervised_folder.py
    tests/recipe/evaluation/test_{dpo,judging,perplexity,sft_data}.py tests/scripts/test_evidence_pretrained.py
    tests/recipe/reports/test_general.py tests/rewards/test_{manager,patterns,requests,verl_rows}.py
    tests/rewards/counterfactual/test_{advantages,crediting,groups,tokens}.py
    tests/rewards/sandbox/test_sandbox_coverage.py
    tests/test_{documented_commands,gpu_check,step_parts,tutorial_blocks}.py)
# Files with end-to-end tests: to look for them in all files takes half a minute of imports.
e2e=(tests/e2e tests/recipe/runtime/test_death_watch.py)

unit() {
    local fast=(-m "not slow and not e2e" --durations=10)
    $python -m scripts.side_by_side "${fast[@]}" "${stack[@]}" "$@" -- \
        "${fast[@]}" --ignore=tests/e2e "${stack[@]/#/--ignore=}" "$@"
}

case ${1:-} in
    "" | night)
        [ "${1:-}" = night ] && real="e2e" || real="e2e and not night"
        unit
        typed
        slow=(-m "slow and not e2e" --durations=10)
        # Ray runs its workers at niceness 15: beside other tests they would get a fraction of a core. (Niced tests of
        # the sandbox would get one instead, and a program that waits too long for a core has timed out.)
        export RAY_worker_niceness=0
        # One run at a time has Ray and vLLM. The other tests take the second place, and both once it has ended.
        $python -m scripts.side_by_side -m "$real" --durations=10 "${e2e[@]}" -- \
            "${slow[@]}" --ignore=tests/rewards --ignore=tests/e2e -- "${slow[@]}" tests/rewards
        ;;
    unit) unit "${@:2}" && typed ;;
    *) typed && $python -m pytest "$@" ;;
esac
