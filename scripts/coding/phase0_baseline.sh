#!/usr/bin/env bash
# Phase 0 of the coding pipeline: the unchanged model, evaluated on the dev set and linked as OUT/phase0/model.
#   [DATA=data/coding] [OUT=outputs/coding] [PLATFORM=...] bash scripts/coding/phase0_baseline.sh MODEL
# DATA holds train.parquet and dev.parquet of data_prep.govern, which decides what may be trained on.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.phase0_baseline "$@"
