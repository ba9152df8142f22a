#!/usr/bin/env bash
# The evidence of paper B on the micro suite: every arm, two orders of the four skills, several seeds; one table.
#   [SEEDS="0 1 2 3 4"] [ORDERS="forward backward"] [ARMS="grpo kl ..."] [EPSILONS="0.03 ..."] \
#       [KEPT=docs/evidence/paper_b/runs.jsonl.gz] bash scripts/evidence_b.sh [key=value ...]
# Can be stopped and restarted: finished runs are not repeated. All arms generate the same number of samples.
# EPSILONS: how much protected skills may lose, as a cosine; with the arm qp_solutions, whose epsilon is 0, they form a curve.
# A run has 32 steps (4 stages of 8). KEPT: as in scripts/evidence_a.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
micro_start
arms=${ARMS-grpo kl replay refresh ewc l2 sequential_margin qp_rollouts qp_solutions qp_both}
epsilons=${EPSILONS-0.01 0.03 0.1 0.3}
declare -A order=([forward]="[write,repair,trace,sql]" [backward]="[sql,trace,repair,write]")
take_kept outputs/evidence_b
micro_study evidence_b
study+=(--set "train=$* ${TRAIN:-}")
# Seeds in the outer loop: after a stop, the finished runs are comparable.
for seed in ${SEEDS:-0 1 2 3 4}; do
    for name in ${ORDERS:-forward backward}; do
        overrides=(experiment=paper_b run.experiment=evidence_b data.seed="$seed" "protocol.skill_sequence=${order[$name]}")
        arms_and_epsilons "$name.s\${data.seed}" "$@"
    done
done
keep_runs outputs/evidence_b
run "$PYTHON" -m recipe.report skills outputs/evidence_b --pareto qp_solutions
exit $failed
