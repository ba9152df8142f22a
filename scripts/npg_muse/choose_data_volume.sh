#!/usr/bin/env bash
# Step 1 of the study: choose the number of rows.
# Mixed training with the binary reward per volume; prints the best volume.
#   [VOLUMES="45000 60000 90000"] bash scripts/npg_muse/choose_data_volume.sh MODEL
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.choose_data_volume "$@"
