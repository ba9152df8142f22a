#!/usr/bin/env bash
# The dense and the sparse reward in phase 3: a multirun of SEEDS for each, their learning speed (outputs/OUT_rewards)
# and the models on the dev set.
#   [SEEDS="0 1"] [REACH=0.5] [TRAIN="..."] bash scripts/coding/ablate_rewards.sh   after phase1_sft.sh or phase2_dpo.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.ablate_rewards "$@"
