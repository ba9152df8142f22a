#!/usr/bin/env bash
# GSM8K: is the data worth it, GRPO with the study's settings, base against trained.
#   [PLATFORM=gpu_1x8] [PRESET=a file of configs/model_preset] [LENGTH=1024] [DRY_RUN=1] bash scripts/gsm8k.sh MODEL
# MODEL: a Hugging Face folder, or a hub's name. Validation is on the dev rows; test is for the two evaluations at the end.
# Data: the public set (downloaded; SOURCE=arithmetic generates word problems offline).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study task gsm8k "$@"
