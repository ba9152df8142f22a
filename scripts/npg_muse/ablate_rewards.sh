#!/usr/bin/env bash
# Step 3 of the study: which reward. A run with each, all else the same; prints the best reward.
#   bash scripts/npg_muse/ablate_rewards.sh MODEL mixed|curriculum VOLUME
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.ablate_rewards "$@"
