"""Commands that compile and run programs of each language inside a slot. Python itself runs in the fork server."""

from __future__ import annotations

from dataclasses import dataclass

TOOL_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True)
class Language:
    """Commands for one language; `source` is the file name of the code."""

    source: str
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()

    @property
    def available(self) -> bool:
        """Whether this machine has the tool (in the folders that a program can see)."""
        import shutil

        return shutil.which((self.compile or self.run)[0], path=TOOL_PATH) is not None


COMMANDS = {
    "bash": Language("main.sh", ("bash", "main.sh")),
    "cpp": Language("main.cpp", ("./main",), ("g++", "-std=c++17", "-O1", "-pipe", "main.cpp", "-o", "main")),
    "sql": Language("main.sql", ("sqlite3", "-batch", "-bail", ":memory:", ".read main.sql")),
}

# The languages that SandboxFusion's request model accepts: an unknown one is a bad request (422); a known one that this
# server can't run yields SandboxError, as in SandboxFusion when a runner fails.
KNOWN = (
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda",
    "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog",
    "python_gpu", "lean", "swift", "racket",
)  # fmt: skip


def available_languages() -> list[str]:
    """The languages that this machine can run."""
    return ["python", *(name for name, language in COMMANDS.items() if language.available)]
