"""Answers in several turns: the model acts, its environment says what came of it, the model acts again."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from recipe.evaluation.samples import EPISODE_FAILED, TOO_LONG, Answer
from recipe.training.settings import AgentsSettings
from rewards.environments import Environment

Message = dict[str, str]

# One turn of the model: the messages so far, the number of the turn, and the tokens that earlier turns took. None
# where no token is left for it.
Ask = Callable[[Sequence[Message], int, int], Awaitable[Answer | None]]


async def play_episode(ask: Ask, environment: Environment, prompt: Sequence[Message], agents: AgentsSettings) -> Answer:
    """One episode as one answer: the text of the turn that is the agent's answer, the tokens of all turns.

    Its `finish` is that turn's, TOO_LONG where even the prompt exceeds the context, EPISODE_FAILED where the
    environment could not be run, which is no fault of the model.
    """
    turns: list[Answer] = []
    talk: list[Message] = []
    while len(turns) < agents.max_turns:
        turn = await ask([*prompt, *talk], len(turns), sum(one.tokens for one in turns))
        if turn is None or turn.finish == TOO_LONG:
            if turn is not None and not turns:
                return turn
            break
        turns.append(turn)
        talk.append({"role": "assistant", "content": turn.text})
        try:
            observation = await environment.act(turn.text)
        except Exception:  # whatever the sandbox raises
            return replace(_together(turns, talk, environment), finish=EPISODE_FAILED)
        if observation.done:
            break
        talk.append({"role": agents.role, "content": observation.text})
    return _together(turns, talk, environment)


def _together(turns: Sequence[Answer], talk: Sequence[Message], environment: Environment) -> Answer:
    entropies = [(one.entropy, one.tokens) for one in turns if one.entropy is not None]
    tokens = sum(count for _, count in entropies)
    return replace(
        turns[environment.answer],
        tokens=sum(one.tokens for one in turns),
        entropy=sum(value * count for value, count in entropies) / tokens if tokens else None,
        started=turns[0].started,
        ended=turns[-1].ended,
        conversation=list(talk),
        first_failed=environment.first_failed,
    )
