# shellcheck shell=bash
# Functions shared by the NPG-Muse launchers, in addition to scripts/common.sh. Variables that a user sets:
#   SEQUENCE_PARALLEL   4 (default); out of memory: 8
#   OFFLOAD_REF         false (default); out of memory: true
#   TASKS               graph tasks of data_prep.graphs (default: the study's six)
#   EXPERIMENT          npg_muse (default)
#   JOBS                concurrent runs (default: as many as the Ray cluster has room for with PLATFORM=gpu_ray, else 1)
# VOLUME 750 is the study's smoke setting: five steps.
. "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
EXPERIMENT=${EXPERIMENT:-npg_muse}
answers_of "$EXPERIMENT"
read -ra TASKS <<<"${TASKS:-mcp mis mvc mcs ged tsp}"
REWARDS="binary binary_format binary_format_repeat ratio_quality_format_repeat complicated"
LEVELS=(1 2 3 4 5)

check() { # name, value, valid values...: stop unless the value is valid
    [[ " ${*:3} " == *" $2 "* ]] || { say "unknown $1 '$2'; valid ones: ${*:3}"; exit 2; }
}

read_arguments() { # MODEL REWARD VOLUME
    [ $# -eq 3 ] || { say "expected three arguments: MODEL REWARD VOLUME"; exit 2; }
    MODEL=$1 REWARD=$2 VOLUME=$3 DATA=data/npg_muse/$3
    # shellcheck disable=SC2086
    check reward "$REWARD" $REWARDS
    [[ $VOLUME =~ ^[1-9][0-9]*$ ]] || { say "VOLUME '$VOLUME' must be a number of rows, such as 45000"; exit 2; }
    NAME=$(name_of "$MODEL")_${REWARD}_$VOLUME
}

name_of() { # model: its last path component and a hash that distinguishes equal last components
    local place=$1 last
    [ ! -e "$1" ] || place=$(realpath --relative-base=. "$1")
    last=$(basename "$place")
    echo "${last//[^A-Za-z0-9]/_}_$(printf %s "$place" | sha256sum | cut -c1-6)"
}

folder() { # mixed|curriculum MODEL REWARD VOLUME: the folder of this run's model and evaluation
    (read_arguments "${@:2}" && echo "outputs/$EXPERIMENT/$1_$NAME")
}

make_data() { # make the rows of each level in DATA/level1 .. DATA/level5, a fifth of the volume each
    local level
    for level in "${LEVELS[@]}"; do
        make_rows "$DATA/level$level" graphs --experiment "$EXPERIMENT" --tasks "${TASKS[@]}" --levels "$level" \
            --limit $((VOLUME / 5))
    done
}

files() { # split: the files of all levels as a Hydra list
    local list
    list=$(printf ",$DATA/level%s/$1.parquet" "${LEVELS[@]}")
    echo "[${list#,}]"
}

train() { # model, run name, overrides...: one run with the study's settings on the rows of all levels
    local smoke=() memory=() model level
    model=$(local_model "$1")
    study=("outputs/$EXPERIMENT" --model "$(name_of "$1")=$model" --data)
    for level in "${LEVELS[@]}"; do
        study+=("${VOLUME}_${level}_train=$DATA/level$level/train.parquet" "${VOLUME}_${level}_dev=$DATA/level$level/dev.parquet")
    done
    [ "$VOLUME" -gt 750 ] || smoke=(trainer.total_training_steps=5 trainer.save_freq=5 trainer.test_freq=5)
    [ "$PLATFORM" = cpu ] || memory=(adaptation=full
        "actor_rollout_ref.actor.ulysses_sequence_parallel_size=${SEQUENCE_PARALLEL:-4}"
        "actor_rollout_ref.ref.fsdp_config.param_offload=${OFFLOAD_REF:-false}")
    grpo "$EXPERIMENT" "$model" "$2" "data.train_files=$(files train)" "data.val_files=$(files dev)" \
        "reward.custom_reward_function.reward_kwargs.shape=$REWARD" "${memory[@]}" "${smoke[@]}" "${@:3}"
}

in_task() { # model, out, split: evaluate the study's tasks on the problems of every level
    local level sets=()
    for level in "${LEVELS[@]}"; do sets+=("level$level=$DATA/level$level/$3.parquet"); done
    evaluate "$1" "$2" --data "${sets[@]}"
}

train_all() { # "mixed|curriculum MODEL REWARD VOLUME"...: run in parallel Ray jobs if the cluster has room, else in sequence
    local setting jobs=${JOBS:-1} how=(bash)
    for setting in "$@"; do # first, because runs that share a volume would make its data at the same time
        read -ra setting <<<"$setting"
        (read_arguments "${setting[@]:1}" && make_data)
    done
    if [ "$PLATFORM" = gpu_ray ] && [ -z "${JOBS:-}${DRY_RUN:-}" ]; then
        # shellcheck disable=SC2086
        jobs=$("$PYTHON" -m recipe.cluster room "experiment=$EXPERIMENT" "platform=$PLATFORM" ${TRAIN:-})
    fi
    [ "$jobs" -le 1 ] || how=(bash scripts/ray_submit.sh)
    printf 'scripts/npg_muse/%s\n' "${@/ /.sh }" | xargs -P "$((jobs > 1 ? jobs : 1))" -L 1 "${how[@]}" >&2
}

best() { # settings as for train_all: print the one with the highest mean accepted@1 over the levels, the first of equals
    local setting folders=() winner
    for setting in "$@"; do
        read -ra setting <<<"$setting"
        folders+=("$(folder "${setting[@]}")/dev")
    done
    [ -z "${DRY_RUN:-}" ] || { echo "$1"; return; }
    winner=$("$PYTHON" -m recipe.report choose "${folders[@]}")
    for setting in "$@"; do
        [ "${folders[0]}" != "$winner" ] || { echo "$setting"; return; }
        folders=("${folders[@]:1}")
    done
}
