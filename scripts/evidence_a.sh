#!/usr/bin/env bash
# The evidence of paper A: plain GRPO, counterfactual credit and its controls from the same start; a table and a picture.
#   [SEEDS="0 1 2 3 4"] [ARMS="grpo delete ..."] [REACH=0.8] bash scripts/evidence_a.sh [key=value ...]
# On the skill `parts` (docs/micro_suite.md), whose lines are separable, redundant or harmful;
# SUITE="write repair trace sql parts" takes the whole suite with it. All arms generate the same number of samples; the
# table compares them at the same number of generated tokens. The controls replay as `delete` does, and give a solution's
# credits in another order or with the opposite sign. Can be stopped and started again: finished runs are not done again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/arms_a.sh
suite=${SUITE:-parts}
data=data/${suite// /_}
bash scripts/setup.sh cpu
# shellcheck disable=SC2086
bash scripts/micro_start.sh "$data" --skills $suite
folder=outputs/evidence_a
[ "$suite" = parts ] || folder=$folder.${suite// /_}
for seed in ${SEEDS:-0 1 2 3 4}; do
    for arm in ${ARMS:-grpo delete truncate shapley shuffled inverted}; do
        seeded=()
        [ "$arm" = grpo ] || seeded=("credit.seed=$seed")
        # shellcheck disable=SC2046
        run_once "$folder" "$arm" "$arm.s$seed" experiment=evidence_a data.train_files="$data/train.parquet" \
            data.val_files="$data/val.parquet" actor_rollout_ref.model.path="$data/model" \
            skills.names="[${suite// /,}]" $(seed_words "$seed") "${seeded[@]}" "$@"
    done
done
${PYTHON:-.venv/bin/python} -m recipe.compare_speed "$folder" --reach "${REACH:-0.8}"
