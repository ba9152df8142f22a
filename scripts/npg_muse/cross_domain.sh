#!/usr/bin/env bash
# Test sets of other domains: of mathematics with pass@k by recipe.evaluate, gsm8k and others by lm-eval's own command
# line in a separate environment (bash scripts/setup.sh lm_eval). The data are downloaded; finished sets are kept.
#   [SETS="gsm8k ..."] [LM_EVAL="--limit 100"] bash scripts/npg_muse/cross_domain.sh MODEL OUT
# MODEL: a Hugging Face folder or a hub name.
# LENGTH: tokens of an answer (default: the study's, overriding lm-eval's task).
# LM_EVAL: more options of `lm_eval run`; VLLM_ARGS: of its vLLM, such as "tensor_parallel_size=8,max_model_len=16384".
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
study npg_muse.cross_domain "$@"
