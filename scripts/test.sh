#!/usr/bin/env bash
# Set up, then check style and types and run the tests.
#   bash scripts/test.sh                 everything: unit tests, then slow tests beside end-to-end tests
#   bash scripts/test.sh unit            only the unit tests
#   bash scripts/test.sh ARGUMENTS...    pytest with these arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
python=.venv/bin/python
# Tests whose imports take ten seconds (verl, transformers): one process runs them, another one all other tests.
stack=(tests/configs tests/data_prep tests/recipe/checks tests/workers tests/recipe/test_export.py tests/recipe/evaluation/test_sft_data.py
    tests/recipe/training/test_{agents,batch_skills,credit_batch,equal_counts,failure_buffer,first_validation,protector}.py
    tests/rewards/test_manager.py tests/rewards/counterfactual/test_{crediting,tokens}.py)

together() { # pytest's arguments, --, pytest's arguments: two runs side by side; the first (after $first_with) prints at its end
    local first=() log status=0
    while [ "$1" != -- ]; do
        first+=("$1")
        shift
    done
    shift
    log=$(mktemp)
    set -m # a job with its own process group: otherwise the shell would make it ignore SIGINT, which tests notice
    ${first_with:-} $python -m pytest "${first[@]}" >"$log" 2>&1 &
    set +m
    trap "kill -INT $! 2>/dev/null" EXIT
    $python -m pytest "$@" || status=$?
    wait $! || status=$?
    cat "$log"
    rm "$log"
    trap - EXIT
    return $status
}

unit() {
    local fast=(-m "not slow and not e2e" --durations=10)
    together "${fast[@]}" "${stack[@]}" "$@" -- "${fast[@]}" "${stack[@]/#/--ignore=}" "$@"
}

case ${1:-} in
    "")
        unit
        # Ray runs its workers at this niceness: beside other tests they would get a fraction of a core.
        first_with="nice -n 15" together -m "slow and not e2e" --durations=10 -- -m e2e --durations=10
        ;;
    unit) unit "${@:2}" ;;
    *) exec $python -m pytest "$@" ;;
esac
