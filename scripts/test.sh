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
unit=(-m "not slow and not e2e" -n 2 --dist loadfile)
case ${1:-} in
    "")
        .venv/bin/python -m pytest "${unit[@]}" --durations=10
        exec .venv/bin/python -m pytest -m "slow or e2e" --durations=20
        ;;
    unit) exec .venv/bin/python -m pytest "${unit[@]}" "${@:2}" ;;
    *) exec .venv/bin/python -m pytest "$@" ;;
esac
