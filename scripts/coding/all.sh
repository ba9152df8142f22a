#!/usr/bin/env bash
# The coding pipeline, phases 0 to 4, and one table of their results. WITHOUT="2 4" skips phases 2 and 4.
#   [DATA=data/coding] [OUT=outputs/coding] [LENGTH=2048] [PLATFORM=...] [DRY_RUN=1] bash scripts/coding/all.sh MODEL
# MODEL: a Hugging Face folder or a hub name. A finished phase is not repeated.
# With the micro model: scripts/coding/micro.sh.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study coding.all "$@"
