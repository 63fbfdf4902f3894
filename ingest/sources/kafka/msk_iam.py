"""Access tokens for Amazon MSK: addresses that are signed with credentials of AWS. Nothing is asked but AWS's STS.

Source: `aws-msk-iam-sasl-signer-python`, which is optional.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from tidelake.errors import BadInput
from tidelake.ingest.access_tokens import AccessToken, TokenUnavailable
from tidelake.ingest.secrets import Secret
from tidelake.storage.base import env

_REMEDY = (
    "Give this process credentials of AWS (a role of the machine or the pod, AWS_… variables, `source.aws_profile` or "
    "`source.aws_role_arn`)"
)


@dataclass(frozen=True)
class MskIamSigner:
    """Signs tokens. Set at most one of profile and role."""

    region: str
    profile: str | None = None
    role_arn: str | None = None

    def request(self) -> AccessToken:
        """See `TokenSource.request`."""
        signed_s, now = env.monotonic_s(), env.wall_s()
        try:
            value, expires_ms = self._sign(_signer())
        except BadInput:
            raise
        except Exception as error:  # of botocore, or AttributeError where it has found no credentials
            kind = type(error).__name__
            text = "no credentials were found" if isinstance(error, AttributeError) else f"{kind}: {error}"
            raise TokenUnavailable(
                f"no token for Amazon MSK could be signed: {text}. {_REMEDY}", _is_final(error)
            ) from None
        return AccessToken(Secret(value), signed_s, signed_s + max(0.0, expires_ms / 1000 - now))

    def _sign(self, signer: Any) -> tuple[str, int]:
        if self.profile is not None:
            signed = signer.generate_auth_token_from_profile(self.region, self.profile)
        elif self.role_arn is not None:
            signed = signer.generate_auth_token_from_role_arn(self.region, self.role_arn)
        else:
            signed = signer.generate_auth_token(self.region)
        return str(signed[0]), int(signed[1])


def check_signer() -> None:
    """Raise BadInput if the package is missing."""
    _signer()


def _signer() -> Any:
    try:
        return importlib.import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")
    except ImportError:
        raise BadInput(
            "`source.sasl_mechanism` AWS_MSK_IAM needs the package aws-msk-iam-sasl-signer-python: "
            "pip install 'tidelake[msk]'"
        ) from None


_FINAL_ERRORS = frozenset({"AttributeError", "ValueError", "ProfileNotFound", "NoCredentialsError", "ClientError"})


def _is_final(error: Exception) -> bool:
    return type(error).__name__ in _FINAL_ERRORS
