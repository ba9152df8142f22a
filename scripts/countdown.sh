#!/usr/bin/env bash
# Countdown: a probe of the data's difficulty, GRPO with the study's settings, base model against trained model.
#   [PLATFORM=gpu_1x8] [PRESET=qwen3_4b] [LENGTH=1024] [DRY_RUN=1] bash scripts/countdown.sh MODEL
# MODEL: a Hugging Face folder or a hub name. Validation uses the dev rows; test is for the two evaluations at the end.
# Data: the public set (downloaded; SOURCE=countdown generates it offline, SOURCE=countdown_tasks is the default).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study task countdown "$@"
