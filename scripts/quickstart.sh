#!/usr/bin/env bash
# From a fresh checkout to a trained model on one machine without a GPU: setup, micro data, supervised start,
# GRPO, report. Arguments go to recipe.train:
#   bash scripts/quickstart.sh [key=value ...]
# Data in data/micro are reused; the training is a new run each time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
begin=$SECONDS
bash scripts/micro_start.sh
echo "[4/4] GRPO with verl, vLLM and LoRA (about 3 minutes)"
.venv/bin/python -m recipe.train experiment=quickstart "$@"
echo "total time after setup: $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s"
