"""Resolves the .in files into locks with hashes: `make lock` calls this. `--upgrade` moves to the newest versions.

One universal resolution serves both dependency lines and every Python that they run on. The development lock is held to
the versions of the runtime one.
"""

import re
import subprocess
import sys
from typing import List

import install
import installers

# Without the machine's registry in it, a lock works with any.
COMPILE = (
    *("pip", "compile", "--quiet", "--universal", "--no-strip-extras", "--generate-hashes", "--python-version", "3.10"),
    *("--no-emit-index-url", "--no-emit-find-links"),
)


def main(arguments: List[str]) -> int:
    """Writes the locks anew; the exit code is that of the resolver."""
    with install.one_at_a_time() as lock_fd:
        uv = installers.find_uv(installers.Runner(installers.CACHE / "lock.log", lock_fd), sys.executable)
    for source, target, constraints in (
        ("runtime.in", "lock.txt", []),
        ("dev.in", "dev-lock.txt", ["--constraints", "lock.txt"]),
        ("tools.in", "tools.txt", []),
    ):
        command = [uv, *COMPILE, *arguments, *constraints, "--custom-compile-command", "make lock", source]
        code = subprocess.call([*command, "--output-file", target], cwd=str(installers.REQUIREMENTS))
        if code != 0:
            return code
        entries = re.findall(r"^[^ #]", (installers.REQUIREMENTS / target).read_text(encoding="utf-8"), re.MULTILINE)
        print(f"requirements/{target}: {len(entries)} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
