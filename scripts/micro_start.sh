#!/usr/bin/env bash
# Make the micro suite and its starting model in data/micro: problems, tokenizer and random weights, supervised start.
# Results of an earlier run from the same modules, options and inputs are reused.
#   bash scripts/micro_start.sh [FOLDER [options of data_prep.micro, overrides of recipe.sft ...]]
#   bash scripts/micro_start.sh data/parts --skills parts trainer.total_training_steps=1080
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec .venv/bin/python -m recipe.micro_start "$@"
