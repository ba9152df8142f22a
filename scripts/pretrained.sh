#!/usr/bin/env bash
# A pretrained model learns on the CPU: SmolLM2-135M-Instruct, a suite in English, a supervised start, GRPO, a report.
#   [OUT=outputs/pretrained] [NAME=study] [SEEDS="0 1 2"] [SFT=...] [TRAIN=...] [KEPT=FILE] \
#       bash scripts/pretrained.sh [MODEL]
# MODEL, an argument or a variable: a Hugging Face folder or hub name in place of SmolLM2. A stopped study resumes.
# NAME: of the runs in outputs/pretrained, by default that of another OUT's folder, so that each model has its own.
# KEPT: as in scripts/evidence_a.sh. It has no weights: its seeds are in the table of runs, but are not evaluated again.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
study pretrained "$@"
