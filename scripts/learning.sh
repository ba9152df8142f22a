#!/usr/bin/env bash
# The table of docs/learning.md: the quickstart's training from the same start with three seeds, 36 updates each.
#   [SEEDS="0 1 2"] bash scripts/learning.sh [key=value ...]
# A seed that was finished before is not run again; one that was stopped goes on from its last checkpoint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
bash scripts/micro_start.sh
runs=()
for seed in ${SEEDS:-0 1 2}; do
    run=outputs/learning/seed$seed
    if ! grep -q '"event": "end"' "$run/events.jsonl" 2>/dev/null; then
        .venv/bin/python -m recipe.train experiment=quickstart run.experiment=learning run.name=seed$seed \
            data.seed=$seed actor_rollout_ref.rollout.val_kwargs.n=2 \
            trainer.total_training_steps=36 trainer.test_freq=18 trainer.save_freq=18 "$@"
    fi
    runs+=("$run")
done
.venv/bin/python -m recipe.summarize "${runs[@]}"
