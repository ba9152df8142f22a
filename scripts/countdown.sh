#!/usr/bin/env bash
# Countdown: is the data worth it, GRPO with the study's settings, base against trained.
#   [PLATFORM=gpu_1x8] [PRESET=qwen3_4b] [LENGTH=1024] [DRY_RUN=1] bash scripts/countdown.sh MODEL
# MODEL: a Hugging Face folder, or a hub's name. Validation is on the dev rows; test is for the two evaluations at the end.
# Data: the public set (downloaded; SOURCE=countdown generates it offline, SOURCE=countdown_tasks is the default).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study task countdown "$@"
