#!/usr/bin/env bash
# The evidence of paper A: plain GRPO, counterfactual credit and its controls from the same start; a table and a picture.
#   [SEEDS="0 1 2 3 4"] [ARMS="grpo delete ..."] [REACH=0.8] [KEPT=docs/evidence/paper_a/runs.jsonl.gz] \
#       bash scripts/evidence_a.sh [key=value ...]
# On the skill `parts` (docs/reference/micro_suite.md), whose lines are separable, redundant or harmful;
# SUITE="write repair trace sql parts" takes the whole suite with it. All arms generate the same number of samples; the
# table compares them at the same number of generated tokens. The controls replay as `delete` does, and give a solution's
# credits in another order or with the opposite sign. Can be stopped and started again: finished runs are not done again.
# With KEPT, a file *.jsonl.gz of recipe.keep, its runs count as done and new ones are added to it: to continue a study on
# another machine. A run counts as done only with the same settings: those of docs/evidence/paper_a/runs.jsonl.gz were
# validated with actor_rollout_ref.rollout.val_kwargs.n=2.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_a "$@"
