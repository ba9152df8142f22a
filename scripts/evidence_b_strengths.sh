#!/usr/bin/env bash
# Choose the strengths of paper B's baselines that have one: runs with several values, on a seed that the evidence does
# not use.
#   [SEED=100] [KEPT=FILE] bash scripts/evidence_b_strengths.sh [key=value ...]
# Can be stopped and restarted: finished runs are not repeated.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study evidence_b_strengths "$@"
