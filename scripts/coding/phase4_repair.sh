#!/usr/bin/env bash
# Phase 4 (optional): repair in several turns. The agent writes a program, sees the first visible test that fails, and
# fixes it; GRPO over whole episodes from phase 3's model. In OUT/phase4: `before` and `repair` are multi-turn evaluations
# with recovery_rate, the share of first-turn failures that end accepted; `dev` is single-turn, as in all phases.
#   [AGENTS=a file of configs/agents] [EXPERIMENT=code_grpo] [REPAIR="actor_rollout_ref.actor.optim.lr=5e-7 ..."] \
#       bash scripts/coding/phase4_repair.sh     after phase3_grpo.sh
# A turn has LENGTH tokens. A training response holds the whole episode, so its limit is LENGTH times the number of turns;
# REPAIR="data.max_response_length=..." makes more room for the environment's answers between them.
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
AGENTS=${AGENTS:-standard}
need "$OUT/phase3/model" "bash scripts/coding/phase3_grpo.sh"
rows=$OUT/phase4/rows
for split in train dev; do
    run "$PYTHON" -m recipe.study "$rows" --data "$split=$DATA/$split.parquet"
    [ -e "$rows/$split.parquet" ] || run "$PYTHON" -m data_prep.sources.agents "$DATA/$split.parquet" --out "$rows/$split.parquet"
done
in_turns() { evaluate "$1" "$2" --data "dev=$rows/dev.parquet" --agents "$AGENTS"; }

in_turns "$OUT/phase3/model" "$OUT/phase4/before"
name=$(basename "$OUT")_repair
turns=$(awk '/^max_turns:/ { print $2; exit }' "configs/agents/$AGENTS.yaml" configs/agents/standard.yaml)
# shellcheck disable=SC2086
grpo "$EXPERIMENT" "$OUT/phase3/model" "$name" "data.train_files=$rows/train.parquet" "data.val_files=$rows/dev.parquet" \
    "agents=$AGENTS" "data.max_response_length=$((turns * LENGTH))" ${REPAIR:-}
run ln -sfn "$(realpath -m "outputs/$EXPERIMENT/$name/model")" "$OUT/phase4/model"
evaluate "$OUT/phase4/model" "$OUT/phase4/dev" --data "dev=$DATA/dev.parquet"
in_turns "$OUT/phase4/model" "$OUT/phase4/repair"
run "$PYTHON" -m recipe.report compare "$OUT/phase4/before" "$OUT/phase4/repair" --out "$OUT/phase4/report.json"
