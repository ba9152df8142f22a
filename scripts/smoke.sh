#!/usr/bin/env bash
# Countdown and GSM8K from data to comparison at smoke size, with the micro model on one machine without a GPU: 640
# generated problems, 4 updates. It shows that the parts fit together, not that anything is learnt: the micro model
# knows neither task.
#   bash scripts/smoke.sh [countdown] [gsm8k]
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study smoke "$@"
