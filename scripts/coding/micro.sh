#!/usr/bin/env bash
# The coding pipeline, all phases, with the micro model and two of its skills, without a GPU (docs/how-to/studies.md).
#   bash scripts/coding/micro.sh
# Without .venv-dpo (bash scripts/setup.sh dpo) phase 2 is skipped.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.micro "$@"
