#!/usr/bin/env bash
# The evidence of paper B on the micro suite: every arm, two orders of the four skills, several seeds; one table.
#   [SEEDS="0 1 2 3 4"] [ORDERS="forward backward"] [ARMS="grpo kl ..."] [EPSILONS="0.03 ..."] \
#       [KEPT=docs/evidence/paper_b/runs.jsonl.xz] bash scripts/evidence_b.sh [key=value ...]
# Can be stopped and restarted: finished runs are not repeated. All arms generate the same number of samples.
# EPSILONS: how much protected skills may lose, as a cosine; with the arm qp_solutions, whose epsilon is 0, they form a
# curve. A run has 32 steps (4 stages of 8). KEPT: as in scripts/evidence_a.sh.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_b "$@"
