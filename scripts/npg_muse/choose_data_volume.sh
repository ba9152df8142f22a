#!/usr/bin/env bash
# Step 1 of the study: choose the number of rows. Mixed training with the binary reward per volume; prints the best volume.
#   [VOLUMES="45000 60000 90000"] bash scripts/npg_muse/choose_data_volume.sh MODEL
. "$(dirname "${BASH_SOURCE[0]}")/settings.sh"
settings=()
for volume in ${VOLUMES:-45000 60000 90000}; do
    settings+=("mixed ${1:?which model? after supervised training: a folder, or a hub name} binary $volume")
done
train_all "${settings[@]}"
best "${settings[@]}" | cut -d ' ' -f 4
