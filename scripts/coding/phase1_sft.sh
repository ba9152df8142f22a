#!/usr/bin/env bash
# Phase 1: supervised training on the model's own accepted samples (rejection sampling).
# Aim: fewer programs that do not run.
#   [SAMPLES=8] [SFT="optim.lr=1e-5 ..."] bash scripts/coding/phase1_sft.sh     after phase0_baseline.sh
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.phase1_sft "$@"
