"""Exceptions of weftrun, one for each kind of error."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple


class Error(Exception):
    """What failed, on which value, and what to try.

    ``str(error)`` is one sentence with the hints behind it.
    """

    #: Stable word for the kind of failure, as in ``-o json`` (``not-found``, ``refused``).
    code = "unexpected"

    def __init__(self, report: Mapping[str, Any]) -> None:
        self._report = dict(report)
        self.message: str = str(report.get("message", ""))
        #: Whether the same call may succeed later.
        self.retryable: bool = bool(report.get("retryable", False))
        #: The values that the failure is about.
        self.context: Dict[str, str] = dict(report.get("context") or {})
        #: What to try.
        self.hints: List[str] = list(report.get("hints") or [])
        #: The findings behind it, as in ``-o json``.
        self.findings: List[Dict[str, Any]] = list(report.get("findings") or [])
        #: The failures underneath, outermost first.
        self.causes: List[str] = list(report.get("causes") or [])
        super().__init__(self.message)

    def __str__(self) -> str:
        lines = [self.message]
        lines += [f"  {key}: {value}" for key, value in self.context.items()]
        for finding in self.findings:
            lines.append(f"  {finding.get('message', '')}")
            fix = finding.get("fix")
            text = fix.get("text") if isinstance(fix, Mapping) else fix
            if text:
                lines.append(f"    fix: {text}")
        lines += [f"  hint: {hint}" for hint in self.hints]
        return "\n".join(lines)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self._report,)


class UsageError(Error, ValueError):
    """A call is wrong."""

    code = "usage"


class InvalidSpecError(Error, ValueError):
    """A job, manifest or script is wrong or cannot be changed."""

    code = "invalid-spec"


class InvalidConfigError(Error):
    """A configuration file or target is wrong."""

    code = "invalid-config"


class RefusedError(Error):
    """The cluster refused the request."""

    code = "refused"


class CredentialsError(Error, PermissionError):
    """Credentials are missing, expired or insufficient."""

    code = "credentials"


class UnsupportedError(Error):
    """The backend cannot do this."""

    code = "unsupported"


class UnreachableError(Error, ConnectionError):
    """No answer. After a submission the job may exist: list the jobs before you submit it again."""

    code = "unreachable"


class NotFoundError(Error, LookupError):
    """There is no such job, file, target or backend."""

    code = "not-found"


class AlreadyExistsError(Error):
    """The name is taken; or an earlier submission of the same job was interrupted, and the error names its job, once."""

    code = "already-exists"


class TimedOutError(Error, TimeoutError):
    """The time allowed ran out."""

    code = "timeout"


class InterruptedSubmissionError(Error):
    """The call was interrupted before anything was sent."""

    code = "interrupted"


class SubmissionInterrupted(KeyboardInterrupt):
    """Ctrl-C during a submission. It says what became of the job."""

    def __init__(
        self,
        handle: Optional[str],
        submission: Optional[str] = None,
        name: Optional[str] = None,
        target: Optional[str] = None,
        folder: Optional[str] = None,
    ) -> None:
        #: The job that was submitted; none if there is none, or if the cluster had not answered yet.
        self.handle = handle
        #: The id of the submission, if the job exists or may exist.
        self.submission = submission
        if handle is not None:
            text = f"the job was submitted: {handle}"
            if folder is not None:
                text += f"; weftrun.FunctionJob.attach({folder!r}) has its result"
        elif submission is not None:
            text = (
                f"the job `{name}` may have been submitted to `{target}`, as submission {submission}: "
                f"`weftrun list -b {target}` tells"
            )
        else:
            text = "nothing was submitted"
        super().__init__(text)
        self._words = (handle, submission, name, target, folder)

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), self._words


class InputOutputError(Error, OSError):
    """A local file or process could not be used."""

    code = "io"


class ProtocolError(Error):
    """The cluster sent an unexpected answer."""

    code = "protocol"


class FabricNotAsPlannedError(Error):
    """The ranks prove another fabric than planned."""

    code = "fabric-not-as-planned"


class MissingPackageError(Error, ImportError):
    """An optional package is not installed."""

    code = "missing-package"


class FunctionError(Error, RuntimeError):
    """A submitted function failed in a way that is no exception here: a rank that died, or whose exception cannot be sent."""

    code = "function"


_CLASSES = {
    kind.code: kind
    for kind in (
        UsageError,
        InvalidSpecError,
        InvalidConfigError,
        RefusedError,
        CredentialsError,
        UnsupportedError,
        UnreachableError,
        NotFoundError,
        AlreadyExistsError,
        TimedOutError,
        InterruptedSubmissionError,
        InputOutputError,
        ProtocolError,
        FabricNotAsPlannedError,
    )
}


def from_report(report: Mapping[str, Any]) -> Error:
    """Returns the exception for an error report of weftrun (``-o json``)."""
    error = report.get("error") or {}
    return _CLASSES.get(error.get("code", ""), Error)(error)
