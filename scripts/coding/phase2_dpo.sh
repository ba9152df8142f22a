#!/usr/bin/env bash
# Phase 2 (optional): preferences among verified samples of the same problem. Aim: fewer answers without reward.
#   [SAMPLES=8] [DPO="--lr 5e-6 ..."] bash scripts/coding/phase2_dpo.sh     after phase1_sft.sh and scripts/setup.sh dpo
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.phase2_dpo "$@"
