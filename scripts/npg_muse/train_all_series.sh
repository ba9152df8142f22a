#!/usr/bin/env bash
# Step 5 of the study: the chosen setting on other base models.
#   bash scripts/npg_muse/train_all_series.sh mixed|curriculum REWARD VOLUME MODEL ...
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.train_all_series "$@"
