#!/usr/bin/env bash
# The evidence of paper B on the micro suite: every arm, two orders of the four skills, several seeds; one table.
#   [SEEDS="0 1 2 3 4"] [ORDERS="forward backward"] [ARMS="grpo kl ..."] bash scripts/evidence_b.sh [key=value ...]
# Can be stopped and started again: finished runs are not done again. All arms generate the same number of samples.
# What all of it takes has not been measured; a run has 72 steps (4 stages of 18).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/arms_b.sh
bash scripts/setup.sh cpu
bash scripts/micro_start.sh
folder=outputs/evidence_b
declare -A order=([forward]="[write,repair,trace,sql]" [backward]="[sql,trace,repair,write]")
arms=${ARMS:-grpo kl replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both}
for seed in ${SEEDS:-0 1 2 3 4}; do
    for name in ${ORDERS:-forward backward}; do
        for arm in $arms; do
            # shellcheck disable=SC2046
            run_once $folder "$arm" "$arm.$name.s$seed" experiment=paper_b \
                "protocol.skill_sequence=${order[$name]}" $(staged_seed_words "$seed") "$@"
        done
    done
done
.venv/bin/python -m recipe.compare_skills $folder
