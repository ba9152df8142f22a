#!/usr/bin/env bash
# GRPO on all five levels shuffled, in one run, and its Hugging Face folder outputs/npg_muse/mixed_.../model.
#   bash scripts/npg_muse/mixed.sh MODEL REWARD VOLUME        smoke: VOLUME 750
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.mixed "$@"
