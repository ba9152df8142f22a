#!/usr/bin/env bash
# Set up, then check style and types and run the tests.
#   bash scripts/test.sh                 everything: the unit tests on both cores, then what needs the machine for itself
#   bash scripts/test.sh unit            the unit tests alone
#   bash scripts/test.sh ARGUMENTS...    what pytest makes of them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
python=.venv/bin/python
# Whose imports take ten seconds (verl, transformers): one process pays them, while another runs everything else.
stack=(tests/configs tests/data_prep tests/recipe/checks tests/workers tests/recipe/test_export.py tests/recipe/evaluation/test_sft_data.py
    tests/recipe/training/test_{agents,batch_skills,credit_batch,equal_counts,failure_buffer,first_validation,protector}.py
    tests/rewards/test_manager.py tests/rewards/counterfactual/test_{crediting,tokens}.py)

unit() {
    local fast=(-m "not slow and not e2e" --durations=10) log status=0
    log=$(mktemp)
    set -m  # a job of its own: without it the shell would have it ignore SIGINT, and tests see that
    $python -m pytest "${fast[@]}" "${stack[@]}" "$@" >"$log" 2>&1 &
    set +m
    trap "kill $! 2>/dev/null" EXIT
    $python -m pytest "${fast[@]}" "${stack[@]/#/--ignore=}" "$@" || status=$?
    wait $! || status=$?
    cat "$log"
    rm "$log"
    trap - EXIT
    return $status
}

case ${1:-} in
    "")
        unit
        exec $python -m pytest -m "slow or e2e" --durations=20
        ;;
    unit) unit "${@:2}" ;;
    *) exec $python -m pytest "$@" ;;
esac
