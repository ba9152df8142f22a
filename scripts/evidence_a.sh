#!/usr/bin/env bash
# The evidence of paper A: plain GRPO, counterfactual credit and its controls from the same start; a table and a plot.
#   [SEEDS="0 1 2 3 4"] [ARMS="grpo delete ..."] [REACH=0.8] [KEPT=docs/evidence/paper_a/runs.jsonl.xz] \
#       bash scripts/evidence_a.sh [key=value ...]
# On the skill `parts` (docs/reference/micro_suite.md), whose lines are separable, redundant or harmful;
# SUITE="write repair trace sql parts" adds the whole suite. All arms generate the same number of samples; the table
# compares them at the same number of generated tokens. The controls replay like `delete` and assign a solution's
# credits in another order or with the opposite sign. Can be stopped and restarted: finished runs are not repeated.
# KEPT, a file *.jsonl.xz of recipe.keep, continues a study on another machine: its runs count as finished, and new ones
# are added to it. A run counts as finished only with the same settings: those of docs/evidence/paper_a/runs.jsonl.xz
# were validated with actor_rollout_ref.rollout.val_kwargs.n=2.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_a "$@"
