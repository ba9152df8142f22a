#!/usr/bin/env bash
# Set up, then check style and types and run the tests. Arguments go to pytest:
#   bash scripts/test.sh                        everything
#   bash scripts/test.sh -m "not slow and not e2e"   the unit tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
exec .venv/bin/python -m pytest "$@"
