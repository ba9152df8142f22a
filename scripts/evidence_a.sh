#!/usr/bin/env bash
# Plain GRPO against counterfactual credit from the same start: methods x seeds, equal numbers of updates and samples.
#   [SEEDS="0 1 2 3 4"] [METHODS="grpo delete truncate shapley"] bash scripts/evidence_a.sh [key=value ...]
# A run that was finished before is not run again; one that was stopped goes on from its last checkpoint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh cpu
bash scripts/micro_start.sh
runs=()
for seed in ${SEEDS:-0 1 2 3 4}; do
    for method in ${METHODS:-grpo delete truncate shapley}; do
        credit=(credit=counterfactual "credit.method=$method" "credit.seed=$seed")
        if [[ $method == grpo ]]; then credit=(credit=off); fi
        run=outputs/evidence_a/$method-seed$seed
        if ! grep -q '"event": "end"' "$run/events.jsonl" 2>/dev/null; then
            .venv/bin/python -m recipe.train experiment=quickstart run.experiment=evidence_a \
                run.name="$method-seed$seed" data.seed="$seed" actor_rollout_ref.rollout.seed="$seed" \
                actor_rollout_ref.rollout.val_kwargs.n=2 trainer.total_training_steps=36 trainer.test_freq=6 \
                trainer.save_freq=18 "${credit[@]}" "$@"
        fi
        runs+=("$run")
    done
done
.venv/bin/python -m recipe.summarize "${runs[@]}"
