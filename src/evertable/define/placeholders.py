"""`${x}`, `${x:-default}` and `${secret:x}`: filled in, or left for the moment of use.

A secret stays in the model as its own placeholder, so that nothing that prints, stores or
compares a model can show it. `spark/secrets.py` reads it right before Spark gets it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from evertable.errors import Finding
from evertable.model.names import did_you_mean

_PLACEHOLDER = re.compile(r"\$(\$\{[^}]*\})|\$\{([^}]*)\}")


class Placeholders:
    """Fills in parameters and environment variables; collects what cannot be filled in."""

    def __init__(self, parameters: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._environment = environment

    def fill(self, text: str, *, secrets_allowed: bool) -> tuple[str, list[Finding]]:
        """The text with its placeholders filled in, and what was wrong with them."""
        findings: list[Finding] = []

        def replace(match: re.Match[str]) -> str:
            if match[1] is not None:  # $${x} is a literal ${x}
                return match[1]
            name, _, default = match[2].partition(":-")
            if name.startswith("secret:"):
                if not secrets_allowed:
                    findings.append(
                        Finding(
                            "SECRET_MISPLACED",
                            f"${{{name}}} stands where its value would be shown",
                            detail="secrets may stand in the options of streams, statics and "
                            "sinks only: those are never printed, logged or stored",
                            hint="use a plain ${x} for what is no secret",
                        )
                    )
                return match[0]
            if name in self._parameters:
                return self._parameters[name]
            if name in self._environment:
                return self._environment[name]
            if ":-" in match[2]:
                return default
            findings.append(
                Finding(
                    "PARAMETER_UNKNOWN",
                    f"${{{name}}} is no parameter and no environment variable",
                    hint=did_you_mean(name, self._parameters)
                    or f"add it to `parameters:`, pass --set {name}=…, "
                    f"or give it a default: ${{{name}:-…}}",
                )
            )
            return match[0]

        return _PLACEHOLDER.sub(replace, text), findings
