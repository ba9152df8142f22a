#!/usr/bin/env bash
# GRPO on all five levels shuffled, in one run, and its Hugging Face folder outputs/npg_muse/mixed_.../model.
#   bash scripts/npg_muse/mixed.sh MODEL REWARD VOLUME        smoke: VOLUME 750
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
read_arguments "$@"
make_data
train "$MODEL" "mixed_$NAME"
in_task "outputs/$EXPERIMENT/mixed_$NAME/model" "outputs/$EXPERIMENT/mixed_$NAME/dev" dev
