#!/usr/bin/env bash
# Steps 2 and 4 of the study: all levels mixed or one after the other; prints the better strategy.
#   bash scripts/npg_muse/compare_curriculum.sh MODEL REWARD VOLUME
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.compare_curriculum "$@"
