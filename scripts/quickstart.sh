#!/usr/bin/env bash
# From a fresh checkout to a trained model on one machine without a GPU: setup, micro data, supervised start,
# GRPO with credit and protection, the run's page. Arguments go to recipe.train:
#   bash scripts/quickstart.sh [key=value ...]
# Data in data/micro are reused; the training is a new run each time. Plain GRPO: credit=off projection=off
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cat <<'TEXT'
A language model of 0.7 M parameters learns four skills on this machine's processor:
  packages into .venv (once, 2 to 6 minutes), then micro data and a supervised start (once, 3 minutes on two cores
  without other work), then 12 updates of GRPO in verl with counterfactual credit and protected skills (3 minutes).
  Started again it reuses the data; a training that was stopped continues by the command that it prints.
  It ends with a page, run.html: did it learn, which step earned it, what was lost?
TEXT
bash scripts/setup.sh cpu
begin=$SECONDS
bash scripts/micro_start.sh
echo "[4/4] GRPO with verl, vLLM and LoRA, credit and protection"
.venv/bin/python -m recipe.train experiment=three_questions "$@"
echo "total time after setup: $(((SECONDS - begin) / 60)) min $(((SECONDS - begin) % 60)) s"
