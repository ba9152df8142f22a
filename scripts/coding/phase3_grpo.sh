#!/usr/bin/env bash
# Phase 3: GRPO with verifiable rewards, from phase 2's model, or phase 1's if phase 2 was skipped.
#   [REWARD=dense|sparse] [EXPERIMENT=code_grpo] [TRAIN="credit=counterfactual projection=qp"] \
#       bash scripts/coding/phase3_grpo.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.phase3_grpo "$@"
