#!/usr/bin/env bash
# Step 5: the chosen setting on other base models, one after the other.
#   bash scripts/npg_muse/train_all_series.sh mixed|curriculum REWARD VOLUME MODEL ...
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
[ $# -ge 4 ] || { say "wanted: mixed|curriculum REWARD VOLUME MODEL ..."; exit 2; }
case $1 in mixed | curriculum) ;; *) say "unknown strategy '$1'; valid ones: mixed, curriculum"; exit 2 ;; esac
for model in "${@:4}"; do bash scripts/npg_muse/"$1".sh "$model" "$2" "$3"; done
