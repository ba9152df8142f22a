#!/usr/bin/env bash
# GRPO on level 1, then 2, to 5, in one run, and its Hugging Face folder outputs/npg_muse/curriculum_.../model. Every level
# has as many steps as its rows fill batches; the model is validated at the end of each.
#   bash scripts/npg_muse/curriculum.sh MODEL REWARD VOLUME   smoke: VOLUME 750
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.curriculum "$@"
