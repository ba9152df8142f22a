#!/usr/bin/env bash
# GRPO on levels 1 to 5 in order, in one run, and its Hugging Face folder outputs/npg_muse/curriculum_.../model. Every
# level has as many steps as its rows fill batches; the model is validated at the end of each level.
#   bash scripts/npg_muse/curriculum.sh MODEL REWARD VOLUME   smoke: VOLUME 750
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.curriculum "$@"
