#!/usr/bin/env bash
# GSM8K: a probe of the data's difficulty, GRPO with the study's settings, base model against trained model.
#   [PLATFORM=gpu_1x8] [PRESET=qwen2_5_3b] [LENGTH=1024] [DRY_RUN=1] bash scripts/gsm8k.sh MODEL
# MODEL: a Hugging Face folder or a hub name. Validation uses the dev rows; test is for the two evaluations at the end.
# Data: the public set (downloaded; SOURCE=arithmetic generates word problems offline).
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study task gsm8k "$@"
