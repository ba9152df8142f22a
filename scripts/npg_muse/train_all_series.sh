#!/usr/bin/env bash
# Step 5 of the study: the chosen setting on other base models.
#   bash scripts/npg_muse/train_all_series.sh mixed|curriculum REWARD VOLUME MODEL ...
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
[ $# -ge 4 ] || { say "expected: mixed|curriculum REWARD VOLUME MODEL ..."; exit 2; }
check strategy "$1" mixed curriculum
settings=()
for model in "${@:4}"; do settings+=("$1 $model $2 $3"); done
train_all "${settings[@]}"
