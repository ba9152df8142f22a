#!/usr/bin/env bash
# Step 3 of the study: choose the reward. One run per reward, all else equal; prints the best reward.
#   bash scripts/npg_muse/ablate_rewards.sh MODEL mixed|curriculum VOLUME
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.ablate_rewards "$@"
