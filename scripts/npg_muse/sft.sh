#!/usr/bin/env bash
# The supervised start of the study's models, in outputs/npg_muse/sft_.../model: training on accepted answers to VOLUME
# problems, of each model itself or of TEACHER. A model that fails stops no other.
#   [TEACHER=MODEL] [SAMPLES=4] [SFT="optim.lr=..."] bash scripts/npg_muse/sft.sh VOLUME MODEL [OTHER MODEL ...]
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.sft "$@"
