"""The page that lists runs, and renews itself from the address that serves it."""

from collections.abc import Mapping

from markupsafe import Markup

from recipe.pages.page_templates import environment, policy, source
from recipe.pages.text import island


def list_page(folder: str, runs: Mapping[str, object]) -> tuple[str, str]:
    """The HTML of the list and its content security policy. runs: what ``/runs.json`` answers."""
    scripts = [source("list.js")]
    # A header, unlike a page, can also refuse to be shown within another site.
    allowed = policy(scripts, "connect-src 'self'", "form-action 'self'", "base-uri 'none'")
    text = (
        environment()
        .get_template("list.html.j2")
        .render(
            folder=folder,
            runs=island(runs),
            policy=allowed,
            style=Markup(source("run.css")),
            scripts=[Markup(script) for script in scripts],
        )
    )
    return text, f"{allowed}; frame-ancestors 'none'"
