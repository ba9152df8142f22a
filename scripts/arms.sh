# How the runs of a study are done, for the scripts that source this. ARM_WORDS (an associative array) holds the words of
# recipe.train that make each arm.

# run_once FOLDER ARM NAME WORDS...: one run under FOLDER/NAME. One that has finished is left alone, one that was stopped
# goes on from its last checkpoint. A run that fails is told and passed over; the next call tries it again.
run_once() {
    local folder=$1 arm=$2 name=$3
    shift 3
    if grep -q '"event": "end"' "$folder/$name/events.jsonl" 2>/dev/null; then
        echo "== $name: finished before"
        return
    fi
    if [ -z "${ARM_WORDS[$arm]+known}" ]; then
        echo "no arm named $arm; there are: ${!ARM_WORDS[*]}" >&2
        exit 2
    fi
    echo "== $name"
    # shellcheck disable=SC2086
    ${PYTHON:-.venv/bin/python} -m recipe.train ${ARM_WORDS[$arm]} run.root="$(dirname "$folder")" \
        run.experiment="$(basename "$folder")" run.name="$name" "$@" || echo "== $name failed: see $folder/$name/logs" >&2
}

# seed_words SEED: everything that is drawn at random follows it.
seed_words() {
    echo "data.seed=$1 actor_rollout_ref.rollout.seed=$1 actor_rollout_ref.actor.data_loader_seed=$1"
}
