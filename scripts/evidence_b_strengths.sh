#!/usr/bin/env bash
# How strong the baselines of the evidence of paper B that have a strength should be: runs with several, on a seed that
# the evidence does not use.
#   [SEED=100] [KEPT=docs/evidence/paper_b/strengths.jsonl.gz] bash scripts/evidence_b_strengths.sh [key=value ...]
# Can be stopped and started again: finished runs are not done again.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_b_strengths "$@"
