#!/usr/bin/env bash
# The table of docs/evidence/learning.md: the quickstart's training from one start with three seeds, 36 updates each.
#   [SEEDS="0 1 2"] bash scripts/learning.sh [key=value ...]
# 13 samples per prompt, 663 per skill: a standard error of at most 1.94 points.
# A finished seed is not repeated; a stopped one resumes from its last checkpoint.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
micro_start
micro_study learning
runs=()
for seed in ${SEEDS:-0 1 2}; do
    folder=outputs/learning/seed$seed
    claim "$folder" --set "train=$* ${TRAIN:-}"
    # shellcheck disable=SC2086
    grep -q '"event": "end"' "$folder/events.jsonl" 2>/dev/null ||
        run "$PYTHON" -m recipe.train "${platform[@]}" experiment=quickstart run.experiment=learning run.name="seed$seed" \
            data.seed="$seed" actor_rollout_ref.rollout.val_kwargs.n=13 \
            trainer.total_training_steps=36 trainer.test_freq=18 trainer.save_freq=18 "$@" ${TRAIN:-}
    runs+=("$folder")
done
run "$PYTHON" -m recipe.report summary "${runs[@]}"
