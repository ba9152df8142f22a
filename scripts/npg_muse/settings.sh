# shellcheck shell=bash
# What the NPG-Muse launchers share, beside scripts/common.sh. Variables that a user sets:
#   SEQUENCE_PARALLEL   4 (default); out of memory: 8
#   OFFLOAD_REF         false (default); out of memory: true
#   TASKS               graph tasks of data_prep.graphs (default: the study's six that are generated here, see docs/recipes.md)
#   EXPERIMENT          npg_muse (default)
# VOLUME 750 is the smoke setting of the study: five steps.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
EXPERIMENT=${EXPERIMENT:-npg_muse}
read -ra TASKS <<<"${TASKS:-mcp mis mvc tsp}"
REWARDS="binary binary_format binary_format_repeat ratio_quality_format_repeat complicated"

read_arguments() { # MODEL REWARD VOLUME
    [ $# -eq 3 ] || { say "three arguments are wanted: MODEL REWARD VOLUME"; exit 2; }
    MODEL=$1 REWARD=$2 VOLUME=$3 DATA=data/npg_muse/$3
    [[ " $REWARDS " == *" $REWARD "* ]] || { say "unknown reward '$REWARD'; valid ones: $REWARDS"; exit 2; }
    [[ $VOLUME =~ ^[1-9][0-9]*$ ]] || { say "the volume is a number of rows, such as 45000"; exit 2; }
    NAME=${MODEL//[^A-Za-z0-9]/_}
    NAME=${NAME##*_models_}_${REWARD}_${VOLUME}
}

make_data() { # the rows of each level in DATA/level1 .. DATA/level5, a fifth of the volume each
    local level
    for level in 1 2 3 4 5; do
        [ -e "$DATA/level$level/train.parquet" ] || run "$PYTHON" -m data_prep.graphs --out "$DATA/level$level" \
            --tasks "${TASKS[@]}" --levels "$level" --limit $((VOLUME / 5))
    done
}

files() { # split, levels...: as Hydra reads a list
    local list
    list=$(printf ",$DATA/level%s/$1.parquet" "${@:2}")
    echo "[${list#,}]"
}

train() { # model, run name, levels...: one run of the study's settings
    local smoke=() memory=()
    [ "$VOLUME" -gt 750 ] || smoke=(trainer.total_training_steps=5 trainer.save_freq=5 trainer.test_freq=5)
    [ "$PLATFORM" = cpu ] || memory=(adaptation=full
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=${SEQUENCE_PARALLEL:-4}"
        "actor_rollout_ref.ref.fsdp_config.param_offload=${OFFLOAD_REF:-false}")
    grpo "$EXPERIMENT" "$1" "$2" "data.train_files=$(files train "${@:3}")" "data.val_files=$(files dev 1 2 3 4 5)" \
        "reward.custom_reward_function.reward_kwargs.shape=$REWARD" "${memory[@]}" "${smoke[@]}"
}

in_task() { # model, out: the tasks of the study on the dev problems of every level
    local level sets=()
    for level in 1 2 3 4 5; do sets+=("level$level=$DATA/level$level/dev.parquet"); done
    evaluate "$1" "$2" --data "${sets[@]}"
}
